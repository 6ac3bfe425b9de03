"""How the popularity of keys changes over a trace: entropy per window and the distance between neighbours.

With p(k) the share of a window's requests that go to key k, all logarithms to base 2:

    entropy            H(p) = -sum over k of p(k) log p(k)                           bits
    entropy change     |H(p) - H(q)| of a window p and the window q before it        bits
    JS distance        sqrt(H((p + q) / 2) - (H(p) + H(q)) / 2)                      in [0, 1]

The Jensen-Shannon divergence under the root is in bits; its root is a metric (Endres and Schindelin, 2003):
0 for equal distributions, 1 for windows that share no key. Two finite samples of one distribution differ
too, and a long tail of rare keys makes them differ a lot. `js_floor` is what that alone gives: both windows
pooled, requests dealt into two halves in a pattern that does not repeat, and the distance between the halves.
A distance near its floor is no evidence of drift.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.errors import InputError
from traces.trace import FloatArray, Int32Array, Trace

MAX_WINDOWS = 10_000

Int64Array = NDArray[np.int64]


@dataclass(frozen=True)
class WindowStats:
    """One window. None where it has no requests, and in the columns about change also for the first one."""

    start_seconds: float
    requests: int
    entropy_bits: float | None
    entropy_change_bits: float | None
    js_distance: float | None
    js_floor: float | None


@njit(cache=True)
def _count(key: Int32Array, start: int, stop: int, counts: Int64Array) -> None:
    for i in range(start, stop):
        counts[key[i]] += 1


@njit(cache=True)
def _deal(key: Int32Array, start: int, stop: int, left: Int64Array, right: Int64Array) -> None:
    """Multiples of the golden ratio fall evenly into both halves of [0, 1) and never in a cycle."""
    for i in range(start, stop):
        if (i - start) * 0.6180339887498949 % 1.0 < 0.5:
            left[key[i]] += 1
        else:
            right[key[i]] += 1


@njit(cache=True)
def _entropy(key: Int32Array, start: int, stop: int, counts: Int64Array) -> float:
    """`counts` holds the counts of [start, stop) and is all zeros afterwards."""
    n = stop - start
    weighted = 0.0
    for i in range(start, stop):
        c = counts[key[i]]
        if c > 0:
            weighted += c * np.log2(c)
            counts[key[i]] = 0
    # Rounding may leave something like -1e-16 where a single key has all requests.
    return max(float(np.log2(n) - weighted / n), 0.0)


@njit(cache=True)
def _js_distance(key: Int32Array, start: int, stop: int, left: Int64Array, right: Int64Array) -> float:
    """Distance of the two samples counted in `left` and `right`, whose requests are those of [start, stop).

    Both counts are all zeros afterwards.
    """
    n_left, n_right = 0, 0
    for i in range(start, stop):
        k = key[i]
        if left[k] > 0 or right[k] > 0:
            n_left += left[k]
            n_right += right[k]
            left[k], right[k] = -left[k], -right[k]  # negative: already summed
    divergence = 0.0
    for i in range(start, stop):
        k = key[i]
        if left[k] < 0 or right[k] < 0:
            p, q = -left[k] / n_left, -right[k] / n_right
            middle = (p + q) / 2
            if p > 0:
                divergence += p * np.log2(p / middle) / 2
            if q > 0:
                divergence += q * np.log2(q / middle) / 2
            left[k], right[k] = 0, 0
    return float(np.sqrt(min(max(divergence, 0.0), 1.0)))


@njit(cache=True)
def _scan(key: Int32Array, bounds: Int64Array, num_keys: int) -> FloatArray:
    """Shape (windows, 3): entropy, JS distance to the window before, its floor; NaN where undefined."""
    left, right = np.zeros(num_keys, np.int64), np.zeros(num_keys, np.int64)
    result = np.full((len(bounds) - 1, 3), np.nan)
    for w in range(len(bounds) - 1):
        start, stop = bounds[w], bounds[w + 1]
        if stop == start:
            continue
        _count(key, start, stop, left)
        result[w, 0] = _entropy(key, start, stop, left)
        if w == 0 or start == bounds[w - 1]:
            continue
        before = bounds[w - 1]
        _count(key, before, start, left)
        _count(key, start, stop, right)
        result[w, 1] = _js_distance(key, before, stop, left, right)
        _deal(key, before, stop, left, right)
        result[w, 2] = _js_distance(key, before, stop, left, right)
    return result


def entropy_bits(counts: NDArray[np.integer]) -> float:
    """Shannon entropy of the distribution proportional to `counts`, in bits.

    Raises InputError if no count is above zero.
    """
    positive = counts[counts > 0].astype(np.float64)
    if not len(positive):
        raise InputError("entropy: got counts without a value above 0, expected at least one")
    total = positive.sum()
    return max(float(np.log2(total) - (positive * np.log2(positive)).sum() / total), 0.0)


def windows(trace: Trace, window_seconds: float) -> tuple[WindowStats, ...]:
    """Statistics of the consecutive windows of `window_seconds`, from the first arrival on.

    The rest at the end that does not fill a window is left out. Raises InputError if the window is not a
    positive number of seconds or would give more than MAX_WINDOWS windows.
    """
    if not (math.isfinite(window_seconds) and window_seconds > 0):
        raise InputError(f"window: got {window_seconds!r} seconds, expected a finite number above 0")
    if trace.span_seconds / window_seconds > MAX_WINDOWS:
        least = trace.span_seconds / MAX_WINDOWS
        raise InputError(f"window: got {window_seconds!r} seconds, expected at least {least:.3g} for this trace")
    first = float(trace.arrival_seconds[0])
    count = int(trace.span_seconds / window_seconds)
    starts = first + window_seconds * np.arange(count + 1)
    bounds = np.searchsorted(trace.arrival_seconds, starts).astype(np.int64)
    table = _scan(trace.key, bounds, trace.num_keys)
    stats: list[WindowStats] = []
    for w, (entropy, distance, floor) in enumerate(table.tolist()):
        before = stats[-1].entropy_bits if stats else None
        here = _known(entropy)
        change = None if here is None or before is None else abs(here - before)
        requests = int(bounds[w + 1] - bounds[w])
        stats.append(WindowStats(float(starts[w]), requests, here, change, _known(distance), _known(floor)))
    return tuple(stats)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
