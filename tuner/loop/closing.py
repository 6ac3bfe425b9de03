"""The interval that is over, as records: steps 2 and 4 of a tick. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.target import Arm, ArmCounters, Counted, Standing
from envs.live import Gap, LivePrices, as_window, difference, live_row, ratio
from envs.traffic import REQUESTS
from tuner.keys.past import PastTraffic
from tuner.loop.sight import KeysSeen
from tuner.records import ControlState, IntervalRecord

Array = NDArray[Any]

# beside envs.interval.NAMES in a record's window
ERRORS, ERROR_RATIO, VERIFIED_HITS, WRONG_HITS = "errors", "error_ratio", "verified_hits", "wrong_hits"
LEAST_SEEN = 0.5  # of the requests that the cache counted, for the key stream to be believed
MOST_MISSED = 1_000  # intervals without a daemon that are recorded one by one; before them there is a hole


@dataclass(frozen=True)
class Looked:
    """What a tick found when it looked. counted, standing: None where the cache could not be asked. keys: of the
    interval that is over, for the whole. reference_usd: by arm, what the control settings would have cost on the arm's
    own requests; an arm of which that is not known is left out. drafts: by role, what the settings that it wanted would
    have cost on all requests, where a ghost followed them. past: what keys weighed in the intervals that are over; None
    where nothing follows them. keys_problem: why the key stream says nothing, a sentence. signals: values by names of
    envs.interval.NAMES."""

    now_seconds: float
    counted: Counted | None = None
    standing: Standing | None = None
    keys: KeysSeen = field(default_factory=KeysSeen.nothing)
    reference_usd: Mapping[Arm, float] = field(default_factory=dict)
    drafts: Mapping[str, float] = field(default_factory=dict)
    past: PastTraffic | None = None
    keys_problem: str | None = None
    signals: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Closed:
    """records: of the arms that had a share. rows: by arm, shape (STATS,), where something can be said of it."""

    records: Mapping[Arm, IntervalRecord]
    rows: Mapping[Arm, Array]


def close(state: ControlState, looked: Looked, prices: LivePrices) -> Closed:
    """Of the interval that the state has open, which ends now."""
    found = difference(state.opened, looked.counted)
    records, rows = {}, {}
    for arm in Arm:
        share = state.plan.split.share(arm)
        if share <= 0.0:
            continue
        settings = state.plan.settings(arm)
        if looked.standing is not None:
            settings = looked.standing.binding.get(arm, settings)
        common: dict[str, Any] = {
            "cache": state.cache,
            "index": state.index,
            "arm": arm,
            "began_seconds": state.opened_seconds,
            "ended_seconds": looked.now_seconds,
            "settings": settings,
            "share": share,
        }
        if isinstance(found, Gap):
            records[arm] = IntervalRecord(**common, window=None, reason=found.reason)
            continue
        assert state.opened is not None
        assert looked.counted is not None
        counted, seconds = found[arm], looked.counted.at_seconds - state.opened.at_seconds
        rows[arm] = live_row(counted, settings, share, seconds, prices, looked.signals)
        records[arm] = IntervalRecord(
            **common,
            window=as_window(rows[arm]) | _beside(counted),
            reference_usd=looked.reference_usd.get(arm),
            ttft_seconds=counted.ttft_seconds,
            latency_seconds=counted.latency_seconds,
        )
    return Closed(records, rows)


def believed(state: ControlState, looked: Looked) -> Looked:
    """Without what the key stream says of the interval, where it had less than half of the requests that the cache
    counted, as when nothing can be logged: what ghosts make of the others is no cost of the interval."""
    found = difference(state.opened, looked.counted)
    if isinstance(found, Gap) or not looked.reference_usd:
        return looked
    counted = sum(one.requests - one.errors for one in found.values())
    seen = float(np.nan_to_num(looked.keys.traffic[REQUESTS]))
    if seen >= LEAST_SEEN * counted:
        return looked
    keys = replace(KeysSeen.nothing(), ghosts=looked.keys.ghosts)
    problem = f"the key stream had {seen:,.0f} requests of {counted:,} that the cache counted"
    return replace(looked, keys=keys, reference_usd={}, drafts={}, keys_problem=problem)


def missed(state: ControlState, index: int, interval_seconds: float) -> list[IntervalRecord]:
    """Intervals between the state's and `index` in which no tick came: recorded as such, so that none is lost."""
    first = max(state.index + 1, index - MOST_MISSED)
    return [
        IntervalRecord(
            cache=state.cache,
            index=number,
            arm=arm,
            began_seconds=number * interval_seconds,
            ended_seconds=(number + 1) * interval_seconds,
            settings=state.plan.settings(arm),
            share=state.plan.split.share(arm),
            window=None,
            reason="No daemon was at work in this interval.",
        )
        for number in range(first, index)
        for arm in Arm
        if state.plan.split.share(arm) > 0.0
    ]


def _beside(counted: ArmCounters) -> dict[str, float | None]:
    """What training has no word for. The error ratio is of all requests, answered or not."""
    share = ratio(counted.errors, counted.requests)
    return {
        ERRORS: float(counted.errors),
        ERROR_RATIO: None if math.isnan(share) else share,
        VERIFIED_HITS: float(counted.verified_hits),
        WRONG_HITS: float(counted.wrong_hits),
    }
