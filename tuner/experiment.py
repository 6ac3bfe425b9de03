"""The design of an experiment: who is in which arm, for how long, and when the arms swap. Fixed before it begins.

A cache that can be split runs both arms at once, each with its share of the keys and of the capacity:

    lead-in      both arms under the control's settings: how they differ by luck of the split
    treated      the treatment arm under the challenger's settings
    swapped      with a crossover, the other way round; the luck then counts with the other sign

After every change of settings some intervals are washed out: caches take time to become what settings make of them.
Luck drifts as keys come into fashion and go out of it, so a crossover swaps again and again, and a block is compared
with the one after it; benchmarks/experiments.py shows what becomes of a single swap half-way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from caches.errors import InputError
from caches.target import Arm

Array = NDArray[Any]

SHARES = (0.05, 0.2, 0.5)  # of a ramp, for which a salt is balanced at once


class Stage(StrEnum):
    """Of an experiment. WASHOUT: settings have changed lately; not counted."""

    LEAD_IN = "lead_in"
    TREATED = "treated"
    SWAPPED = "swapped"
    WASHOUT = "washout"


class Stretch(NamedTuple):
    """From interval `begins` on. compared: stretches of one number are compared with each other."""

    begins: int
    stage: Stage
    compared: int


SIGN = {Stage.LEAD_IN: 0.0, Stage.TREATED: 1.0, Stage.SWAPPED: -1.0}


class Margins(BaseModel):
    """How much worse the treatment may certainly be in each guard metric before it counts as WORSE; not set: measured
    but not judged. Differences of shares, treatment minus control."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slow_ttft_ratio: float | None = Field(
        0.0005,
        ge=0,
        description="Requests beyond the control's P99 to the first token.",
        json_schema_extra={"unit": "share"},
    )
    slow_latency_ratio: float | None = Field(
        0.0005,
        ge=0,
        description="Requests beyond the control's P99 of the whole answer.",
        json_schema_extra={"unit": "share"},
    )
    error_ratio: float | None = Field(
        0.001, ge=0, description="Requests without an answer.", json_schema_extra={"unit": "share"}
    )
    stale_ratio: float | None = Field(
        0.01, ge=0, description="Hits whose answer is outdated.", json_schema_extra={"unit": "share"}
    )
    wrong_hit_ratio: float | None = Field(
        None, ge=0, description="Verified semantic hits that were wrong.", json_schema_extra={"unit": "share"}
    )
    fast_hit_ratio: float | None = Field(
        None,
        ge=0,
        description="Fewer requests answered from the cache within 100 ms.",
        json_schema_extra={"unit": "share"},
    )


class ExperimentDesign(BaseModel):
    """Everything about an experiment that is fixed before it begins. JSON by `model_dump(mode="json")`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    salt: str = Field(
        "",
        description="Of the split; not set: one that past traffic splits well under, else the experiment's name.",
        json_schema_extra={"unit": "text"},
    )
    share: float = Field(0.5, gt=0, lt=1, description="Keys of the treatment arm.", json_schema_extra={"unit": "share"})
    same: bool = Field(
        False, description="A/A: the treatment arm keeps the control's settings.", json_schema_extra={"unit": "yes/no"}
    )
    lead_in_intervals: int = Field(
        12, ge=0, description="Both arms alike before the start.", json_schema_extra={"unit": "intervals"}
    )
    washout_intervals: int = Field(
        1, ge=0, description="Not counted after settings change hands.", json_schema_extra={"unit": "intervals"}
    )
    swap_every_intervals: int | None = Field(
        None,
        gt=1,
        description="Crossover: the arms swap so often; not set: never.",
        json_schema_extra={"unit": "intervals"},
    )
    batch_intervals: int | None = Field(
        None,
        gt=0,
        description="Intervals per batch; not set: by the data.",
        json_schema_extra={"unit": "intervals"},
    )
    min_intervals: int = Field(
        12, gt=0, description="Counted ones before BETTER.", json_schema_extra={"unit": "intervals"}
    )
    max_intervals: int = Field(
        288,
        gt=0,
        description="From the start of treatment, then INCONCLUSIVE.",
        json_schema_extra={"unit": "intervals"},
    )
    min_requests: int = Field(
        1_000, ge=0, description="Of each arm under treatment before BETTER.", json_schema_extra={"unit": "requests"}
    )
    alpha: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="Chance of a false BETTER or WORSE, over all looks.",
        json_schema_extra={"unit": "ratio"},
    )
    guard_alpha_share: float = Field(
        0.2, gt=0, lt=1, description="Of it for all guard metrics together.", json_schema_extra={"unit": "share"}
    )
    margins: Margins = Margins()
    concentration: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Of past traffic, judging/sample_ratio.py; not set: as it was lately, where that is known.",
        json_schema_extra={"unit": "ratio"},
    )
    luck_ratio: float | None = Field(
        None,
        gt=0,
        description="How far arms that are treated alike differ in cost; not set: as lately, where that is known.",
        json_schema_extra={"unit": "ratio"},
    )

    @model_validator(mode="after")
    def _can_be_told(self) -> ExperimentDesign:
        every = self.swap_every_intervals
        if every is not None and self.share != 0.5:
            raise ValueError("share = 0.5 with a crossover, or the challenger would have the larger arm")
        if every is not None and every <= self.washout_intervals:
            raise ValueError("swap_every_intervals above washout_intervals")
        if not (self.lead_in_intervals or every or self.luck_ratio):
            raise ValueError("lead_in_intervals above 0 or a crossover: luck of the split cannot be told otherwise")
        return self

    def stretches(self, began_index: int) -> tuple[Stretch, ...]:
        """What each interval is for, from the first of the lead-in on."""
        start, every = began_index + self.lead_in_intervals, self.swap_every_intervals
        if every is None:
            lead_in = [Stretch(began_index, Stage.LEAD_IN, 0)] if self.lead_in_intervals else []
            return (*lead_in, *self._washed(start, Stage.TREATED, 0))
        found = [Stretch(began_index, Stage.LEAD_IN, -1)] if self.lead_in_intervals else []
        for block in range(-(-self.max_intervals // every)):
            stage = Stage.SWAPPED if block % 2 else Stage.TREATED
            found += self._washed(start + block * every, stage, block // 2)
        return tuple(found)

    def _washed(self, index: int, stage: Stage, compared: int) -> list[Stretch]:
        washed = 0 if self.same else self.washout_intervals
        before = [Stretch(index, Stage.WASHOUT, compared)] if washed else []
        return [*before, Stretch(index + washed, stage, compared)]

    def challenged(self, began_index: int, index: int) -> Arm | None:
        """The arm that is to have the challenger's settings in an interval; None in the lead-in and in an A/A."""
        since = index - began_index - self.lead_in_intervals
        if self.same or since < 0:
            return None
        swapped = self.swap_every_intervals is not None and (since // self.swap_every_intervals) % 2 == 1
        return Arm.CONTROL if swapped else Arm.TREATMENT


def stretch_at(stretches: Sequence[Stretch], index: int) -> Stretch | None:
    """None before the first."""
    place = bisect_right(stretches, index, key=lambda one: one.begins)
    return stretches[place - 1] if place else None


def remembered_seconds(ttl_seconds: float, capacity_bytes: float, written_bytes_per_second: float) -> float:
    """How long a cache shows what settings it had before: until all entries of then are too old, or until as much was
    written as it holds. A washout is to be as long, a block of a crossover several times, for the settings of both."""
    if not (ttl_seconds > 0 and capacity_bytes >= 0 and written_bytes_per_second >= 0):
        raise InputError(
            f"cache: got a lifetime of {ttl_seconds} s, {capacity_bytes} bytes and {written_bytes_per_second} bytes/s, "
            "expected above 0, and 0 or more"
        )
    if not written_bytes_per_second:
        return ttl_seconds
    return min(ttl_seconds, capacity_bytes / written_bytes_per_second)


def choose_salt(
    points_of: Callable[[str], Array], weights: Array, seed: int, candidates: int = 40, shares: Sequence[float] = SHARES
) -> tuple[str, float]:
    """Of so many random salts the one that is best balanced on past traffic, and its imbalance.

    points_of: each key's point on [0, 1) under a salt (tuner.router.points), shape (keys,). weights: (keys, measures),
    what each key stands for by every measure that is to be balanced, such as its requests and its cost; the heaviest
    keys are enough, the many light ones balance by themselves. The imbalance of a measure at a share is how far the
    weight below the share is off, in standard deviations over random salts; that of a salt is its largest.
    """
    parts = np.asarray(weights, np.float64)
    if parts.ndim != 2 or not (parts.sum(axis=0) > 0).all():
        raise InputError(f"weights: got shape {parts.shape}, expected (keys, measures) with something of each")
    parts = parts / parts.sum(axis=0)
    random = np.random.default_rng(seed)
    salts = [random.bytes(8).hex() for _ in range(candidates)]
    found = [imbalance(np.asarray(points_of(salt)), parts, shares) for salt in salts]
    best = int(np.argmin(found))
    return salts[best], found[best]


def imbalance(points: Array, parts: Array, shares: Sequence[float]) -> float:
    """As in `choose_salt`. parts: (keys, measures), each column sums to one."""
    spread = np.sqrt((parts * parts).sum(axis=0))
    worst = 0.0
    for share in shares:
        off = parts[points < share].sum(axis=0) - share
        worst = max(worst, float(np.max(np.abs(off) / (spread * np.sqrt(share * (1.0 - share))))))
    return worst
