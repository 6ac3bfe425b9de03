"""What freshness has counted, for /v1/cache/stats: what was asked again, how often answers change, drift, feedback."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from api.gateway.feedback import Judged
from api.gateway.freshening import Freshening
from caches.freshness.epoch_keeping import EpochKeeping
from caches.freshness.evidence import Told
from caches.freshness.lifetime import Verdict
from caches.keys.request_key import Partition
from caches.semantic.verification import clopper_pearson
from caches.tiers.selection import Selection


def told(
    freshening: Freshening | None, keeping: EpochKeeping, judged: Iterable[tuple[Partition, Judged]]
) -> dict[str, Any]:
    """As JSON. Of partitions without looks or verdicts nothing is told."""
    epochs = {
        "epochs": len(keeping.epochs.begun()),
        "epochs_last": keeping.lasting,
        "epoch_stores_failed": keeping.failed,
    }
    if freshening is None:
        return epochs
    drift = freshening.parts.drift
    return {
        **asdict(freshening.counts),
        "asked_again_failed": freshening.beside.failed,
        "asked_again_left_out": freshening.beside.left_out,
        "compared": 0 if drift is None else drift.compared,
        "shifts": 0 if drift is None else drift.shifts,
        "shifted": [] if drift is None else [family_told(family) for family in drift.shifted()],
        "change": [_change(one) for one in freshening.freshness.evidence.told()],
        "feedback": [_feedback(partition, one) for partition, one in sorted(judged, key=lambda pair: pair[0])],
        **epochs,
    }


def family_told(family: Selection) -> dict[str, Any]:
    """Without what it does not say."""
    labels = {"model": family.model, "tag": family.tag}
    return asdict(family.partition) | {name: value for name, value in labels.items() if value is not None}


def _change(one: Told) -> dict[str, Any]:
    """rate: per day, the most likely, with its 95 % interval; null for endless."""
    rate = one.rate
    days = (None, None, None) if rate is None else tuple(map(_per_day, (rate.rate, rate.low, rate.high)))
    return asdict(one.partition) | {
        "looks": one.looks,
        "changed": one.changed,
        "reported_stale": one.reported_stale,
        "changes_per_day": days[0],
        "changes_per_day_95": None if rate is None else [days[1], days[2]],
    }


def _per_day(per_second: float) -> float | None:
    return per_second * 86_400.0 if math.isfinite(per_second) else None


def _feedback(partition: Partition, one: Judged) -> dict[str, Any]:
    """wrong_share: of the answers that somebody judged, who chose to."""
    every, wrong = sum(one.counts.values()), one.counts[Verdict.WRONG]
    return asdict(partition) | {
        **{verdict.value: count for verdict, count in one.counts.items()},
        "wrong_by_meaning": one.by_meaning,
        "wrong_share": wrong / every,
        "wrong_share_95": list(clopper_pearson(wrong, every)),
    }
