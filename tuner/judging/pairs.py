"""The intervals of both arms side by side, as arrays, and which of them can be used."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from envs.reward import CAUSES
from tuner.experiment import SIGN, Stage, Stretch, stretch_at
from tuner.judging.paired import Series
from tuner.records import IntervalRecord

Array = NDArray[Any]
COSTS = tuple(f"{cause}_usd" for cause in CAUSES)
LEAST_COVARIATE = 8  # intervals of the lead-in from which the covariate's coefficient is fitted


@dataclass(frozen=True)
class Pairs:
    """rows: (control, treatment) of the intervals that can be used, in order. share: of the keys, the treatment arm's.
    sign, stratum, run: as in paired.py; a stratum is what is compared with each other, at one share of the keys,
    `compared` at whatever share. All shape (n,). requests, usd, reference_usd: (n, 2); the last is NaN where a ghost
    cache did not tell. weight: (n,), requests of both arms, times what the share takes from their precision. dropped:
    how many intervals were left out, by reason."""

    rows: tuple[tuple[IntervalRecord, IntervalRecord], ...]
    share: Array
    sign: Array
    stratum: Array
    compared: Array
    run: Array
    requests: Array
    usd: Array
    reference_usd: Array
    weight: Array
    dropped: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lead_in(self) -> NDArray[np.bool_]:
        return np.asarray(self.sign == 0.0)

    def treated(self, challenger: bool) -> NDArray[np.bool_]:
        """Which cells, shape (n, 2), are of the arm with or without the challenger's settings, once one has them."""
        ours = np.stack((self.sign < 0, self.sign > 0), axis=1)
        return ours if challenger else ours[:, ::-1]

    def series(self, difference: Array, weight: Array, stratum: Array | None = None) -> Series:
        """Of those intervals whose difference is known. stratum: where it is not `stratum`."""
        known = np.isfinite(difference) & (weight > 0)
        strata = self.stratum if stratum is None else stratum
        return Series(difference, weight, self.sign, strata, self.run).where(known)


def pairs_of(
    control: Sequence[IntervalRecord], treatment: Sequence[IntervalRecord], stretches: Sequence[Stretch]
) -> Pairs:
    """Intervals that both arms have, from the first stretch on. InputError where an arm has an interval twice, or where
    the shares of an interval do not add up to one."""
    ones, others, dropped = _by_index(control), _by_index(treatment), Counter[str]()
    rows, kept = [], []
    for index in sorted(ones.keys() | others.keys()):
        stretch = stretch_at(stretches, index)
        if stretch is None:
            continue
        if stretch.stage is Stage.WASHOUT:
            dropped["washout"] += 1
            continue
        one, other = ones.get(index), others.get(index)
        if one is None or other is None:
            dropped["only one arm is there"] += 1
        elif (why := _unusable(one, other)) is not None:
            dropped[why] += 1
        else:
            rows.append((one, other))
            kept.append(stretch)
    return _arrays(rows, kept, dropped)


def _by_index(records: Sequence[IntervalRecord]) -> dict[int, IntervalRecord]:
    found = {one.index: one for one in records}
    if len(found) != len(records):
        raise InputError(f"intervals: got {len(records)} records of {len(found)} intervals, expected one each")
    return found


def _unusable(one: IntervalRecord, other: IntervalRecord) -> str | None:
    if abs(one.share + other.share - 1.0) > 1e-6:
        raise InputError(f"interval {one.index}: got shares {one.share} and {other.share}, expected a sum of 1")
    if one.window is None or other.window is None:
        return "nothing is known of an arm"
    if not (one.window.get("requests") and other.window.get("requests")):
        return "an arm had no requests"
    if None in (cost_usd(one), cost_usd(other)):
        return "what an arm cost is not known"
    return None


def cost_usd(record: IntervalRecord) -> float | None:
    """Over all causes; None where one of them is not known."""
    window, total = record.window or {}, 0.0
    for name in COSTS:
        cost = window.get(name)
        if cost is None:
            return None
        total += cost
    return total


def _arrays(
    rows: list[tuple[IntervalRecord, IntervalRecord]], stretches: Sequence[Stretch], dropped: Counter[str]
) -> Pairs:
    share = np.array([other.share for _, other in rows], np.float64)
    among = {one: number for number, one in enumerate(dict.fromkeys(_compared(rows, stretches)))}
    stratum = np.array([among[one] for one in _compared(rows, stretches)], np.int64)
    sign = np.array([SIGN[one.stage] for one in stretches], np.float64)
    changed = (np.diff(sign) != 0) | (np.diff(stratum) != 0)
    requests = _table(rows, lambda one: (one.window or {}).get("requests"))
    return Pairs(
        tuple(rows),
        share,
        sign,
        stratum,
        np.array([one.compared for one in stretches], np.int64),
        np.concatenate(([0], np.cumsum(changed))) if rows else np.zeros(0),
        requests,
        _table(rows, cost_usd),
        _table(rows, lambda one: one.reference_usd),
        requests.sum(axis=1) * share * (1.0 - share),
        dropped,
    )


def _compared(
    rows: Sequence[tuple[IntervalRecord, IntervalRecord]], stretches: Sequence[Stretch]
) -> list[tuple[int, float]]:
    return [(one.compared, round(row[1].share, 6)) for row, one in zip(rows, stretches, strict=True)]


def _table(
    rows: Sequence[tuple[IntervalRecord, IntervalRecord]], value: Callable[[IntervalRecord], float | None]
) -> Array:
    """Of both arms, shape (n, 2), NaN for None."""
    return np.array([[value(one), value(other)] for one, other in rows], np.float64).reshape(-1, 2)


@dataclass(frozen=True)
class Covariate:
    """coefficient: what the ghosts' difference is multiplied by. explained: share of the variance that it takes away,
    in the lead-in's differences or in what the control arm costs from interval to interval where that is more; 0 where
    there is neither to see it in. left: how far ghosts are off for good between the arms, a standard deviation in USD
    per request, by how far they are off on average in the control arm; infinite where that is not known."""

    coefficient: float
    explained: float
    left: float = math.inf


def cost_differences(pairs: Pairs) -> tuple[Array, Covariate | None]:
    """Cost per request, treatment arm minus control arm, USD, shape (n,), less `coefficient` times the same difference
    of what ghost caches say; no covariate where they are silent in half of the intervals.

    An interval in which they are silent, while they speak in others, is NaN. The coefficient is that of a regression
    over the lead-in, where only luck makes arms differ, kept inside [0, 1]: ghosts that see a small sample of the keys
    would add more than they take away. It is 1 where the lead-in is short.
    """
    raw = np.diff(pairs.usd / pairs.requests, axis=1)[:, 0]
    reference = np.diff(pairs.reference_usd / pairs.requests, axis=1)[:, 0]
    told = np.isfinite(reference)
    if 2 * told.sum() < len(pairs) or not told.any():
        return raw, None
    covariate = _seen_in_control(pairs, _covariate(raw, reference, pairs.weight, pairs.lead_in & told))
    return raw - covariate.coefficient * reference, covariate


def _covariate(raw: Array, reference: Array, weight: Array, lead_in: Array) -> Covariate:
    if lead_in.sum() < 2:
        return Covariate(1.0, 0.0)
    x, y, w = reference[lead_in], raw[lead_in], weight[lead_in]
    x, y = x - np.average(x, weights=w), y - np.average(y, weights=w)
    varies, total = float(w @ (x * x)), float(w @ (y * y))
    fitted = lead_in.sum() >= LEAST_COVARIATE and varies > 0
    coefficient = float(np.clip(float(w @ (x * y)) / varies, 0.0, 1.0)) if fitted else 1.0
    rest = y - coefficient * x
    return Covariate(coefficient, _explained(float(w @ (rest * rest)), total))


def _explained(rest: float, total: float) -> float:
    """Share of a sum of squares that is not left over."""
    return max(1.0 - rest / total, 0.0) if total > 0 else 0.0


def _seen_in_control(pairs: Pairs, lead_in: Covariate) -> Covariate:
    """How well ghosts follow the control arm, whose settings they replay. explained: in how far an interval lies off
    the line between its neighbours, which is the work of the requests that came; days and nights, which any ghost
    follows, do not help. left: what they are off by on average, and that average's own error; of the smaller an arm is,
    the more, as of a sample."""
    cost, share = (pairs.usd / pairs.requests)[:, 0], pairs.share
    left = cost - (pairs.reference_usd / pairs.requests)[:, 0]
    index = np.array([one.index for one, _ in pairs.rows], np.int64)
    known = np.isfinite(left) & (pairs.sign >= 0)  # swapped, it has the challenger's settings
    between = known[2:] & known[1:-1] & known[:-2] & (index[2:] - index[:-2] == 2)
    if between.sum() < LEAST_COVARIATE:
        return lead_in
    off, unexplained = np.diff(cost, 2)[between], np.diff(left, 2)[between]
    explained = _explained(float(unexplained @ unexplained), float(off @ off))
    mean = float(left[known].mean())
    always = math.sqrt(mean**2 + float(left[known].var(ddof=1)) / known.sum())
    arms = 1.0 + float(np.average((1.0 - share) / share, weights=pairs.weight))
    return replace(lead_in, explained=max(lead_in.explained, explained), left=always * math.sqrt(arms))
