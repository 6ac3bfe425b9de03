"""What is to be expected of a block: hits per second of room, learned from who came back and when.

Every use of a block puts it into a class, by three things that whoever keeps the cache sees:

- uses: how often it was used as far as is remembered: once, twice, 3, 4 to 5, or more often;
- size: of a block used for the first time, whether it is its prompt's last, which is often a partial one; else whether
  the prompt goes on from one that was used once only (a conversation's next turn) and adds few blocks or many, or
  begins anew, and is short, middling or long. Of a block used before, how many new ones the prompt adds: one at most,
  few or many;
- gap: how long it had been unused: below 45 s, 90 s, 240 s, or longer; nothing of a first use.

Of each class it is counted how many blocks came to an age (time since their last use) in each bin, and how many of
these were used again in it. The chance of a return in bin b of a block of class c is h(g, b) x m(c): a curve over age
for each gap g, and a factor that is a product of one per level of uses, size and gap, fitted so that each level has as
many returns as were seen (iterated proportional fitting, W. E. Deming and F. F. Stephan, Annals of Mathematical
Statistics 11, 1940), with `strength` returns of the average added to each level.

The density of a block of class c at the age of bin i is the best ratio of expected hits to expected time that stopping
at the end of some bin j can have:

    max over j of  sum(i..j) S(k) h(k)  /  sum(i..j) S(k) (1 - h(k) / 2) w(k),    S(k) = product(i..k-1) (1 - h)

w: widths of bins. It may rise with age, where hardly anybody returns at once.

Loops stand here where whole arrays would do: every kernel around compiles them anew, and they compile much sooner.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]

USES, SIZES, GAPS = 5, 9, 5  # levels
CLASSES = USES * SIZES * GAPS
BINS, RATIO = 29, 1.5  # edges: 0, 1, 1.5, ... seconds; the last bin has no end
EDGES = np.concatenate([[0.0], RATIO ** np.arange(BINS - 1)])
WIDTHS = np.diff(EDGES, append=2 * EDGES[-1])
ROUNDS = 8  # of the fitting
MOST = 0.9  # a chance of a return within a bin
LAST, SHORT, MIDDLING, LONG, FEW_MORE, MANY_MORE, ONE_NEW, FEW_NEW, MANY_NEW = range(SIZES)


@njit(cache=True)
def bin_of(age_seconds: float) -> int:
    """Below one second: 0."""
    low, high = 0, BINS - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if EDGES[middle] <= age_seconds:
            low = middle
        else:
            high = middle - 1
    return low


@njit(cache=True)
def uses_level(times: int) -> int:
    return times - 1 if times <= 3 else 3 if times <= 5 else 4


@njit(cache=True)
def gap_level(times: int, gap_seconds: float) -> int:
    if times == 1:
        return 0
    return 1 + (gap_seconds >= 45.0) + (gap_seconds >= 90.0) + (gap_seconds >= 240.0)


@njit(cache=True)
def size_level(times: int, place: int, blocks: int, known: int, goes_on: bool, limits: tuple[int, int]) -> int:
    """place: of the block in its prompt. blocks: of the prompt, of which so many are known. limits: short prompts and
    short continuations, in blocks."""
    new = blocks - known
    if times > 1:
        return ONE_NEW if new <= 1 else FEW_NEW if new <= limits[1] else MANY_NEW
    if place == blocks - 1:
        return LAST
    if goes_on:
        return FEW_MORE if new <= limits[1] else MANY_MORE
    return SHORT if blocks <= limits[0] else MIDDLING if blocks <= 4 * limits[0] else LONG


@njit(cache=True)
def class_of(uses: int, size: int, gap: int) -> int:
    return (uses * SIZES + size) * GAPS + gap


@njit(cache=True)
def densities(returned: Array, lost: Array, strength: float) -> Array:
    """Hits per second, float64 (classes, BINS). returned, lost: blocks that were used again at an age in a bin, and
    that were watched no longer once they had survived it; float64 (classes, BINS)."""
    at_risk, used, count = np.empty(returned.shape), np.empty(returned.shape[0], np.int64), 0
    for c in range(returned.shape[0]):
        still = 0.0
        for b in range(BINS - 1, -1, -1):
            still = returned[c, b] + lost[c, b] + still
            at_risk[c, b] = still
        if still > 0.0:
            used[count] = c
            count += 1
    curve = _curves(returned, at_risk, strength)
    factor = _factors(returned, at_risk, curve, used[:count], strength)
    best = np.zeros(returned.shape)
    for i in range(count):
        _index(curve[used[i] % GAPS], factor[used[i]], best[used[i]])
    return best


@njit(cache=True)
def _curves(returned: Array, at_risk: Array, strength: float) -> Array:
    """Chances of a return by bin for each gap, (GAPS, BINS): as seen, with 8 x `strength` blocks of the average over
    gaps; that as seen too, with `strength` blocks that return at the same rate at any age, or nothing would be expected
    of ages that nobody has come to yet."""
    came, were, average = np.zeros((GAPS, BINS)), np.zeros((GAPS, BINS)), np.empty(BINS)
    for c in range(returned.shape[0]):
        for b in range(BINS):
            came[c % GAPS, b] += returned[c, b]
            were[c % GAPS, b] += at_risk[c, b]
    returns, seconds = 0.0, 0.0
    for b in range(BINS):
        returns += _down(came, b)
        seconds += (_down(were, b) - 0.5 * _down(came, b)) * WIDTHS[b]
    for b in range(BINS):
        steady = 1.0 - math.exp(-returns / max(seconds, 1e-9) * WIDTHS[b])
        average[b] = (_down(came, b) + strength * steady) / (_down(were, b) + strength)
    for g in range(GAPS):
        seen, expected = 0.0, 0.0
        for b in range(BINS):
            seen += came[g, b]
            expected += were[g, b] * average[b]
        more = (seen + strength) / (expected + strength)
        for b in range(BINS):
            prior = min(average[b] * more, MOST)
            came[g, b] = (came[g, b] + 8.0 * strength * prior) / (were[g, b] + 8.0 * strength)
    return came


@njit(inline="always")
def _down(table: Array, column: int) -> Any:
    total = 0.0
    for row in range(table.shape[0]):
        total += table[row, column]
    return total


@njit(cache=True)
def _factors(returned: Array, at_risk: Array, curve: Array, used: Array, strength: float) -> Array:
    """By class; 1 for those never seen. used: those that were."""
    factor, seen, expected = np.ones(returned.shape[0]), np.zeros(returned.shape[0]), np.zeros(returned.shape[0])
    for c in used:
        for b in range(BINS):
            seen[c] += returned[c, b]
            expected[c] += at_risk[c, b] * curve[c % GAPS, b]
    strides, levels = (SIZES * GAPS, GAPS, 1), (USES, SIZES, GAPS)
    effect, came, were = np.ones((3, SIZES)), np.empty(SIZES), np.empty(SIZES)
    for _ in range(ROUNDS):
        for f in range(3):
            for level in range(levels[f]):
                came[level], were[level] = 0.0, 0.0
            for c in used:
                level = c // strides[f] % levels[f]
                came[level] += seen[c]
                were[level] += expected[c] * factor[c] / effect[f, level]
            for level in range(levels[f]):
                came[level] = (came[level] + strength) / (were[level] + strength)
            for c in used:
                level = c // strides[f] % levels[f]
                factor[c] *= came[level] / effect[f, level]
            for level in range(levels[f]):
                effect[f, level] = came[level]
    return factor


@njit(cache=True)
def _index(curve: Array, factor: float, best: Array) -> None:
    """Writes the density at each bin; 0 in the last, whose end nobody knows."""
    for i in range(BINS - 1):
        survive, hits, seconds = 1.0, 0.0, 0.0
        for j in range(i, BINS - 1):
            hit = survive * min(curve[j] * factor, MOST)
            hits += hit
            seconds += (survive - 0.5 * hit) * WIDTHS[j]
            survive -= hit
            best[i] = max(best[i], hits / seconds)
