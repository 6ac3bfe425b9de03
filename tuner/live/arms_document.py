"""What a live cache says of its arms, and what it is told, as JSON: one form for the gateway and for the daemon.

What comes in is read strictly: a field that is missing, of another type or out of range is an error that names it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from caches.knobs import Knob, KnobSettings, KnobSpace
from caches.target import Arm, ArmCounters, Counted, Histogram, Plan, Split, Standing

PATH = "/v1/cache/arms"
LONGEST_SALT, LONGEST_POLICY = 200, 200

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]


class Strict(BaseModel):
    """Nothing is left out, added or taken for something else."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class _Settings(Strict):
    """eviction_policy: left out where none is named, so that who does not know of it reads the same as before."""

    cache_size: float
    ttl_seconds: float
    warmup_ratio: float
    eviction_policy: str | None = Field(None, max_length=LONGEST_POLICY)

    def value(self) -> KnobSettings:
        return KnobSettings(**dict(self))


class _Split(Strict):
    salt: str = Field(max_length=LONGEST_SALT)
    treatment: float = Field(ge=0, le=1)


class _Plan(Strict):
    split: _Split
    control: _Settings
    treatment: _Settings

    def value(self) -> Plan:
        return Plan(Split(**dict(self.split)), self.control.value(), self.treatment.value())


class Wish(Strict):
    """What a cache is told. Settings beyond the ranges are brought within them by the cache."""

    plan: _Plan
    fence: Count


class _Knob(Strict):
    name: str
    unit: str
    low: float
    high: float
    default: float
    max_step: float
    scale: Literal["log", "linear"]

    def value(self) -> Knob:
        return Knob(**dict(self))


class _Space(Strict):
    cache_size: _Knob
    ttl_seconds: _Knob
    warmup_ratio: _Knob

    def value(self) -> KnobSpace:
        return KnobSpace(self.cache_size.value(), self.ttl_seconds.value(), self.warmup_ratio.value())


class _Histogram(Strict):
    bounds: tuple[float, ...]
    counts: tuple[Count, ...]
    total: Amount

    @model_validator(mode="after")
    def _in_order(self) -> _Histogram:
        if len(self.counts) != len(self.bounds) + 1:
            raise ValueError(f"got {len(self.counts)} counts, expected one more than the {len(self.bounds)} bounds")
        if not all(one < other for one, other in pairwise(self.bounds)):
            raise ValueError("got bounds that do not increase")
        return self

    def value(self) -> Histogram:
        return Histogram(**dict(self))


class _Counters(Strict):
    requests: Count
    hits: Count
    errors: Count
    verified_hits: Count
    wrong_hits: Count
    hit_bytes: Count
    miss_bytes: Count
    hit_tokens: Count
    tokens: Count
    miss_prompt_tokens: Count
    miss_output_tokens: Count
    warmups: Count
    warmup_prompt_tokens: Count
    warmup_output_tokens: Count
    expirations: Count
    evictions: Count
    entries: Count
    used_bytes: Count
    ttft_seconds: _Histogram
    latency_seconds: _Histogram
    hit_age_seconds: _Histogram

    @model_validator(mode="after")
    def _add_up(self) -> _Counters:
        if max(self.hits, self.errors) > self.requests:
            raise ValueError(f"got {self.hits} hits and {self.errors} errors of {self.requests} requests")
        if self.wrong_hits > self.verified_hits:
            raise ValueError(f"got {self.wrong_hits} wrong of {self.verified_hits} verified hits")
        return self

    def value(self) -> ArmCounters:
        values: dict[str, Any] = {name: one.value() if isinstance(one, _Histogram) else one for name, one in self}
        return ArmCounters(**values)


class ArmsDocument(Strict):
    """Of one moment. knobs: the operator's ranges."""

    knobs: _Space
    plan: _Plan
    binding: dict[Arm, _Settings]
    fence: Count
    began_seconds: Amount
    at_seconds: Amount
    arms: dict[Arm, _Counters]

    @model_validator(mode="after")
    def _both_arms(self) -> ArmsDocument:
        if set(self.arms) != set(Arm):
            raise ValueError(f"arms: got {', '.join(self.arms) or 'none'}, expected both")
        return self

    def space(self) -> KnobSpace:
        return self.knobs.value()

    def standing(self) -> Standing:
        binding = {arm: settings.value() for arm, settings in self.binding.items()}
        return Standing(self.plan.value(), binding, self.fence, self.began_seconds)

    def counted(self) -> Counted:
        arms = {arm: counters.value() for arm, counters in self.arms.items()}
        return Counted(self.began_seconds, self.at_seconds, arms)


def arms_json(space: KnobSpace, standing: Standing, counted: Counted) -> bytes:
    """An ArmsDocument."""
    return orjson.dumps(
        {
            "knobs": space,
            "plan": _plan_tree(standing.plan),
            "binding": {arm.value: _settings_tree(settings) for arm, settings in standing.binding.items()},
            "fence": standing.fence,
            "began_seconds": standing.began_seconds,
            "at_seconds": counted.at_seconds,
            "arms": {arm.value: counters for arm, counters in counted.arms.items()},
        }
    )


def wish_json(plan: Plan, fence: int) -> bytes:
    return orjson.dumps({"plan": _plan_tree(plan), "fence": fence})


def first_fault(error: ValidationError) -> str:
    """The first thing that is wrong, as "field: what is the matter". What was there is not repeated."""
    fault = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, fault["loc"]))
    told = fault["msg"].removeprefix("Value error, ")
    return f"{place or 'body'}: {told}"


def _plan_tree(plan: Plan) -> dict[str, object]:
    return {"split": plan.split} | {arm.value: _settings_tree(plan.settings(arm)) for arm in Arm}


def _settings_tree(settings: KnobSettings) -> dict[str, object]:
    policy = settings.eviction_policy
    return settings.numbers() | ({} if policy is None else {"eviction_policy": policy})
