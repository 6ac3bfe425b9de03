"""Experiments on a cache that cannot be split, such as the KV cache of a GPU: all of it takes turns.

Time is cut into blocks, two blocks make a pair, and in each pair chance decides who is first: then neither the hour nor
a trend favours an arm. The first intervals of each block are washed out, because the cache still is what the settings
before have made of it. A pair's difference is one observation; pairs are compared as batches are in judging/paired.py,
with no luck of a split to tell apart. What outlasts the washout (the carry-over) makes the arms look more alike than
they are; I. Bojinov, D. Simchi-Levi, J. Zhao, Design and analysis of switchback experiments, Management Science 69
(2023), show how blocks should be longer than it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from caches.target import Arm
from tuner.judging.confidence_sequence import prior_information
from tuner.judging.paired import NO_LUCK, Effect, Series, effect
from tuner.judging.pairs import cost_usd
from tuner.records import IntervalRecord


class Switchback(BaseModel):
    """The design: who has the whole cache when. Fixed before it begins."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(0, description="Of the order inside pairs.", json_schema_extra={"unit": "number"})
    block_intervals: int = Field(6, gt=0, description="Length of a block.", json_schema_extra={"unit": "intervals"})
    washout_intervals: int = Field(
        2, ge=0, description="Not counted at its beginning.", json_schema_extra={"unit": "intervals"}
    )
    max_pairs: int = Field(24, gt=1, description="Then it is over.", json_schema_extra={"unit": "pairs"})
    alpha: float = Field(
        0.05, gt=0, lt=1, description="Chance of a false result, over all looks.", json_schema_extra={"unit": "ratio"}
    )

    @model_validator(mode="after")
    def _leaves_something(self) -> Switchback:
        if self.washout_intervals >= self.block_intervals:
            raise ValueError("washout_intervals below block_intervals")
        return self

    def arm(self, interval: int) -> Arm | None:
        """Whose settings all keys have in the n-th interval of the experiment; None when it is over."""
        pair, inside = divmod(interval, 2 * self.block_intervals)
        if not 0 <= pair < self.max_pairs:
            return None
        first = np.random.default_rng((self.seed, pair)).random() < 0.5
        return Arm.TREATMENT if first == (inside < self.block_intervals) else Arm.CONTROL

    def counted(self, interval: int) -> bool:
        """Whether it is past the washout of its block."""
        return interval % self.block_intervals >= self.washout_intervals


@dataclass(frozen=True)
class PairDifference:
    """pair: its number. usd: cost per request, treatment minus control, less that of the covariate where it is known
    in all its intervals. requests: of both blocks."""

    pair: int
    usd: float
    requests: float


def pair_differences(records: Sequence[IntervalRecord], design: Switchback, began_index: int) -> list[PairDifference]:
    """Of the pairs that are over and of which both blocks have an interval that is known. records: of the whole cache,
    whatever arm they are put down to; reference_usd: at the control's settings, used where all of them have it."""
    known = [one for one in records if cost_usd(one) is not None and (one.window or {}).get("requests")]
    adjusted = all(one.reference_usd is not None for one in known)
    over = max((one.index + 1 - began_index for one in records), default=0) // (2 * design.block_intervals)
    found = []
    for pair in range(min(over, design.max_pairs)):
        sums = {arm: [0.0, 0.0] for arm in Arm}
        for one in known:
            interval = one.index - began_index
            arm = design.arm(interval) if interval // (2 * design.block_intervals) == pair else None
            if arm is not None and design.counted(interval):
                sums[arm][0] += (cost_usd(one) or 0.0) - ((one.reference_usd or 0.0) if adjusted else 0.0)
                sums[arm][1] += (one.window or {}).get("requests") or 0.0
        (usd, requests), (control_usd, control_requests) = sums[Arm.TREATMENT], sums[Arm.CONTROL]
        if requests and control_requests:
            difference = usd / requests - control_usd / control_requests
            found.append(PairDifference(pair, difference, requests + control_requests))
    return found


def switchback_effect(records: Sequence[IntervalRecord], design: Switchback, began_index: int) -> Effect:
    """Of the treatment on the cost per request, USD, with its confidence sequence over the pairs."""
    pairs = pair_differences(records, design, began_index)
    ones = np.ones(len(pairs))
    requests = np.array([one.requests for one in pairs])
    weight = requests / requests[0] if len(pairs) else requests
    series = Series(np.array([one.usd for one in pairs]), weight, ones, 0.0 * ones, 0.0 * ones)
    return effect(series, prior_information(design.max_pairs / 2.0, design.alpha), design.alpha, NO_LUCK)


def settled(found: Effect) -> bool:
    """Whether the sequence excludes zero."""
    return math.isfinite(found.low) and (found.low > 0.0 or found.high < 0.0)
