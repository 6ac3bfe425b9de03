"""What the REST interface says of caches, experiments and policies, and what it takes. Times are Unix seconds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.schema_records import (
    DecisionOut,
    ExperimentOut,
    IntervalOut,
    JudgementOut,
    Out,
    SettingsOut,
    WishOut,
)
from tuner.experiment import ExperimentDesign
from tuner.records import Phase, WishKind

Text = Annotated[str, StringConstraints(max_length=500, pattern=r"^[^\x00]*$")]


class CacheOut(Out):
    """A cache that a daemon has acted on."""

    name: str = Field(examples=["gateway"])
    status: str = Field(description="Where its status is.", examples=["/v1/caches/gateway/status"])


class CachesOut(Out):
    items: list[CacheOut]


class LeaseOut(Out):
    """The right to act on the cache. active: it has not run out, so a daemon is at work."""

    holder: str = Field(examples=["host-1:4711"])
    fence: int = Field(examples=[7])
    until_seconds: float = Field(examples=[1_796_000_060.0])
    active: bool


class SplitOut(Out):
    """treatment: the treatment arm's share of the keys."""

    treatment: float = Field(ge=0, le=1, examples=[0.05])


class StatusOut(Out):
    """Where the control loop of a cache stands. index: of the interval that is open. confirmed: whether the cache has
    taken its plan. paused, latched: why; null while it is not. decisions, intervals: the newest of each arm."""

    cache: str = Field(examples=["gateway"])
    revision: int = Field(description="Of the ledger; grows with every write.", examples=[4_212])
    index: int = Field(examples=[1_187])
    opened_seconds: float = Field(examples=[1_796_000_000.0])
    confirmed: bool
    phase: Phase
    step: int = Field(description="Place in the ramp.", examples=[0])
    experiment: str | None = Field(examples=["2026-11-30-a"])
    paused: str | None
    latched: str | None
    in_words: str = Field(description="The same in a sentence.", examples=["An experiment runs on 5 % of the keys."])
    split: SplitOut
    lease: LeaseOut | None
    decisions: list[DecisionOut]
    intervals: list[IntervalOut]
    open_wishes: list[WishOut]


class LimitOut(Out):
    """Of one knob. max_step: the largest change per interval, as a share of the range."""

    name: str = Field(examples=["ttl_seconds"])
    unit: str = Field(examples=["seconds"])
    low: float = Field(examples=[60.0])
    high: float = Field(examples=[86_400.0])
    default: float = Field(description="The operator's static setting, which a kill restores.", examples=[3_600.0])
    max_step: float = Field(examples=[0.1])
    scale: Literal["log", "linear"]


class CacheSettingsOut(Out):
    """Settings are stated for the whole cache. control, treatment: the plan of the open interval. limits: null where
    the daemon has not said."""

    cache: str = Field(examples=["gateway"])
    index: int = Field(examples=[1_187])
    confirmed: bool
    split: SplitOut
    control: SettingsOut
    treatment: SettingsOut
    limits: list[LimitOut] | None


class IntervalsOut(Out):
    """By index and arm. next: of the page with older ones; null at the end."""

    items: list[IntervalOut]
    next: str | None


class DecisionsOut(Out):
    """Newest first. next: of the page with older ones; null at the end."""

    items: list[DecisionOut]
    next: str | None


class WishesOut(Out):
    """Newest first."""

    items: list[WishOut]
    next: str | None


class ExperimentsOut(Out):
    """Newest first. next: of the page with older ones; null at the end."""

    items: list[ExperimentOut]
    next: str | None


class AccountOut(Out):
    """An experiment with what the analysis said last; null before that."""

    experiment: ExperimentOut
    judgement: JudgementOut | None
    judgements: int = Field(description="How often it was looked at.", examples=[42])


class PolicyOut(Out):
    """A version of a policy in the registry. Savings are percent of the best static setting's cost."""

    version: int = Field(examples=[3])
    aliases: list[str] = Field(examples=[["champion"]])
    kind: str | None = Field(examples=["ppo"])
    created_seconds: float = Field(examples=[1_795_000_000.0])
    validation_saving_percent: float | None = Field(examples=[2.1])
    test_saving_percent: float | None = Field(examples=[1.6])
    bundle_sha256: str | None
    run_id: str | None


class PoliciesOut(Out):
    """Newest first."""

    items: list[PolicyOut]


class AliasesOut(Out):
    """Version by alias."""

    aliases: dict[str, int] = Field(examples=[{"champion": 3, "challenger": 4}])


class CallerOut(Out):
    """Who you are here."""

    name: str = Field(examples=["ana"])
    role: str = Field(examples=["operator"])


class In(BaseModel):
    """Of bodies: what is not known is an error, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class WishIn(In):
    """What to ask of the daemon. START goes to /v1/caches/{cache}/experiments."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "pause", "reason": "The backend is being upgraded."}]}
    )

    kind: Literal["pause", "resume", "promote", "roll_back", "release", "stop", "kill"]
    reason: Text = Field("", description="Shown with the wish, and kept.")

    @property
    def wish_kind(self) -> WishKind:
        return WishKind(self.kind)


class ExperimentIn(In):
    """An experiment to start. design: what is left out has the daemon's default."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"challenger": 4, "design": {}, "reason": "Version 4 won on test traffic."}]}
    )

    challenger: int = Field(ge=1, le=2**31 - 1, description="A version in the registry.")
    design: Annotated[ExperimentDesign, Field(strict=False)] = ExperimentDesign()
    reason: Text = ""


class ReasonIn(In):
    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "It has run long enough."}]})

    reason: Text = ""


class FieldError(Out):
    pointer: str = Field(examples=["body/kind"])
    detail: str = Field(examples=["Input should be 'pause' or 'resume'"])


class ProblemOut(Out):
    """An error, as RFC 9457 words it."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["Not found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["cache 'x': no daemon has acted on it, there is: gateway"])
    errors: list[FieldError] | None = Field(None, description="Of single fields.")
