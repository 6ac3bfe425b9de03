"""What sections of tiers in the gateway's settings have in common: lifetimes, capacity, admission."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from caches.admission import Doorkeeper, SecondHitCounts
from caches.keys.by_name import ByName
from caches.knobs import KNOB_NAMES, Knob, KnobSpace
from caches.policies.settings import SecondHit
from envs.units import described

SECTION = ConfigDict(frozen=True, extra="forbid")
SECOND_HIT = "second-hit"
SHORT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")

LEAST_BYTES, LEAST_SERVER_BYTES, LEAST_CASSANDRA_BYTES = 2**16, 2**24, 2**22
MEMORY_BYTES, KEPT_BYTES = 256 * 2**20, 2**30
TTL_SECONDS, LONGEST_TTL_SECONDS = 3_600.0, 30 * 86_400.0
# How far a change at run time may go: in this process a few times what was stated, else what somebody set there.
ROOM, MOST_KEPT_BYTES = 4, 2**40


def seconds(default: Any, help: str, **limits: Any) -> Any:
    return described(default, help, "s", strict=True, allow_inf_nan=False, **{"gt": 0, **limits})


def size(default: Any, help: str) -> Any:
    return described(default, help, "bytes", strict=True, ge=LEAST_BYTES)


def warmup(default: Any, more: str = "") -> Any:
    told = f"Of the ranked requests, how many are fetched ahead where it is the top tier, see [warming]{more}."
    return described(default, told, "share", strict=True, ge=0, le=1)


def shards(of: str) -> Any:
    return described(1, f"{of}parts over the nodes of a cluster.", "number", ge=1, le=1024, strict=True)


def _check_order(lowest: float, value: float, highest: float, name: str) -> None:
    if not lowest <= value <= highest or lowest == highest:
        raise ValueError(f"lowest_{name} <= {name} <= highest_{name}, got {lowest}, {value}, {highest}")


class TtlLimits(BaseModel):
    """Lifetimes of a tier."""

    model_config = SECTION

    lowest_ttl_seconds: float = seconds(1.0, "Nobody can set a shorter lifetime at run time.")
    highest_ttl_seconds: float = seconds(LONGEST_TTL_SECONDS, "Nobody can set a longer one.")

    def space(
        self, cache_size: int, lowest: int, highest: int, ttl_seconds: float, warmup_ratio: float = 0.0
    ) -> KnobSpace:
        """The ranges within which settings can be changed at run time."""
        return KnobSpace(
            Knob("cache_size", "bytes", lowest, highest, cache_size, 0.1, "log"),
            Knob("ttl_seconds", "seconds", self.lowest_ttl_seconds, self.highest_ttl_seconds, ttl_seconds, 0.1, "log"),
            Knob("warmup_ratio", "share", 0.0, 1.0, warmup_ratio, 0.25, "linear"),
        )


class LocalConfig(TtlLimits):
    """A tier in this process."""

    cache_size: int = size(MEMORY_BYTES, "Capacity.")
    lowest_cache_size: int = size(LEAST_BYTES, "Nobody can set a smaller capacity at run time.")
    highest_cache_size: int | None = size(None, f"Nobody can set a larger one; not set: {ROOM} times `cache_size`.")
    ttl_seconds: float = seconds(TTL_SECONDS, "Lifetime of an answer, from when the backend gave it.")
    warmup_ratio: float = warmup(0.0)

    @model_validator(mode="after")
    def _in_order(self) -> LocalConfig:
        _check_order(self.lowest_cache_size, self.cache_size, self._highest, "cache_size")
        _check_order(self.lowest_ttl_seconds, self.ttl_seconds, self.highest_ttl_seconds, "ttl_seconds")
        return self

    @property
    def _highest(self) -> int:
        return ROOM * self.cache_size if self.highest_cache_size is None else self.highest_cache_size

    @property
    def knobs(self) -> KnobSpace:
        return self.space(self.cache_size, self.lowest_cache_size, self._highest, self.ttl_seconds, self.warmup_ratio)


class AdmissionConfig(BaseModel):
    """Which answers a tier takes in. Each gateway counts the requests that reach it."""

    model_config = SECTION

    admission: Literal["all", "second-hit", "tinylfu", "cost-aware"] | None = described(
        None,
        "Which answers it takes in, see the page on eviction; not set: second-hit where `admission_requests` is set, "
        "else all. Of tinylfu and cost-aware only memory is capable.",
        "name",
    )
    admission_requests: int | None = described(
        None,
        "Of second-hit: an answer is kept once it was asked for so often; not set: 2.",
        "number",
        ge=1,
        le=100,
        strict=True,
    )
    admission_window_seconds: float = seconds(3_600.0, "Within so long.")

    @model_validator(mode="after")
    def _of_one_rule(self) -> AdmissionConfig:
        if self.admission_requests is not None and self.admission not in (None, SECOND_HIT):
            raise ValueError("admission_requests only with admission second-hit")
        return self

    def doorkeeper(self, namespaces: Mapping[str, str | None]) -> Doorkeeper | None:
        """A new one, which knows of no request yet. namespaces: what each says, None for what the tier does."""
        rule = SecondHit(self.admission_requests or 2, self.admission_window_seconds)
        own = self.admission == SECOND_HIT or (self.admission is None and self.admission_requests is not None)
        default = SecondHitCounts[bytes](rule) if own else None
        named = {
            name: default if said is None else SecondHitCounts[bytes](rule) if said == SECOND_HIT else None
            for name, said in namespaces.items()
        }
        return (
            None if all(counts is None for counts in (default, *named.values())) else Doorkeeper(ByName(named, default))
        )


class KeptConfig(AdmissionConfig, TtlLimits):
    """A tier whose settings lie beside its entries: what is not stated stays as somebody set it."""

    cache_size: int | None = size(None, "Capacity; not set: what it was set to before, at first 1 GiB.")
    lowest_cache_size: int | None = size(
        None,
        "Nobody can set a smaller capacity at run time; not set: 64 KiB, for Redis in the mode server 16 MiB, for "
        "Cassandra 4 MiB.",
    )
    highest_cache_size: int = size(MOST_KEPT_BYTES, "Nobody can set a larger one.")
    ttl_seconds: float | None = seconds(None, "Lifetime; not set: what it was set to before, at first an hour.")
    warmup_ratio: float | None = warmup(None, "; not set: what it was set to before, at first 0")

    @model_validator(mode="after")
    def _in_order(self) -> KeptConfig:
        if self.admission in ("tinylfu", "cost-aware"):
            raise ValueError("admission all or second-hit: only memory knows which entry would go")
        _check_order(self._lowest, self.cache_size or KEPT_BYTES, self.highest_cache_size, "cache_size")
        _check_order(self.lowest_ttl_seconds, self.ttl_seconds or TTL_SECONDS, self.highest_ttl_seconds, "ttl_seconds")
        return self

    @property
    def _lowest(self) -> int:
        return self._least if self.lowest_cache_size is None else self.lowest_cache_size

    @property
    def _least(self) -> int:
        return LEAST_BYTES

    @property
    def knobs(self) -> KnobSpace:
        return self.space(
            self.cache_size or KEPT_BYTES,
            self._lowest,
            self.highest_cache_size,
            self.ttl_seconds or TTL_SECONDS,
            self.warmup_ratio or 0.0,
        )

    @property
    def stated(self) -> dict[str, float]:
        """The knobs that the settings state."""
        named = {name: getattr(self, name) for name in KNOB_NAMES}
        return {name: float(value) for name, value in named.items() if value is not None}
