"""What a trace's traffic looks like in each interval, whatever the settings; and whom a warm-up would fetch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]

FEATURES = (
    "requests",
    "entropy_bits",
    "drift",
    "one_hit_ratio",
    "new_key_ratio",
    "prompt_tokens",
    "output_tokens",
)
REQUESTS, ENTROPY, DRIFT, ONE_HIT, NEW_KEY, PROMPT, OUTPUT = range(7)


class Counting(NamedTuple):
    """By key. now: int32, 0 between calls. before: int32, requests in the interval before. seen: bool, whether ever
    requested."""

    now: Array
    before: Array
    seen: Array


class Popularity(NamedTuple):
    """By key. score: float32, as of interval `updated` (int32). latest: int32, position of the latest request. listed:
    int32, the interval that it was last considered in."""

    score: Array
    updated: Array
    latest: Array
    listed: Array


@njit(cache=True)
def traffic_table(key: Array, prompt: Array, output: Array, edges: Array, num_keys: int) -> Array:
    """One row of FEATURES per interval, shape (intervals, 7), NaN where nothing arrived.

    entropy_bits: Shannon entropy of the interval's key distribution p. drift: Jensen-Shannon divergence between p and
    the interval before, in bits, so in [0, 1]. one_hit_ratio: share of the interval's keys requested once in it.
    new_key_ratio: share of its keys never requested before. Tokens: means per request.
    """
    intervals = edges.size - 1
    table = np.full((intervals, 7), np.nan)
    counting = Counting(np.zeros(num_keys, np.int32), np.zeros(num_keys, np.int32), np.zeros(num_keys, np.bool_))
    for i in range(intervals):
        span = edges[i - 1] if i > 0 else edges[i], edges[i], edges[i + 1]
        traffic_row(key, prompt, output, span, counting, table[i])
    return table


@njit(cache=True)
def traffic_row(
    key: Array, prompt: Array, output: Array, span: tuple[int, int, int], counting: Counting, row: Array
) -> None:
    """One interval's FEATURES, written to `row`, which holds NaN. span: where the interval before begins, where this
    one does, and where it ends. Afterwards `counting` is as the next interval needs it."""
    count, before, seen = counting
    previous_start, start, stop = span
    n = stop - start
    row[REQUESTS] = n
    if n > 0:
        ones, fresh, entropy, prompts, outputs = 0, 0, 0.0, 0.0, 0.0
        for t in range(start, stop):
            count[key[t]] += 1
            prompts += prompt[t]
            outputs += output[t]
        for t in range(start, stop):
            k = key[t]
            entropy -= np.log2(count[k] / n) / n
            if count[k] == 1:
                ones += 1
            if not seen[k]:
                fresh += 1
                seen[k] = True
        distinct = 0
        m = start - previous_start
        divergence = 0.0
        for t in range(start, stop):  # each key once: the sign marks it as visited
            k = key[t]
            if count[k] > 0:
                distinct += 1
                if m > 0:
                    p, q = count[k] / n, before[k] / m
                    divergence += 0.5 * p * np.log2(2.0 * p / (p + q))
                    if q > 0:
                        divergence += 0.5 * q * np.log2(2.0 * q / (p + q))
                count[k] = -count[k]
        for t in range(previous_start, start):
            if count[key[t]] == 0 and m > 0:  # requested before, not now: each request adds its share of q
                divergence += 0.5 / m
        for t in range(start, stop):
            count[key[t]] = abs(count[key[t]])
        row[ENTROPY] = max(entropy, 0.0)
        if m > 0:
            row[DRIFT] = min(max(divergence, 0.0), 1.0)
        row[ONE_HIT] = ones / distinct
        row[NEW_KEY] = fresh / distinct
        row[PROMPT] = prompts / n
        row[OUTPUT] = outputs / n
    for t in range(previous_start, start):
        before[key[t]] = 0
    for t in range(start, stop):
        before[key[t]] = count[key[t]]
    for t in range(start, stop):
        count[key[t]] = 0


@njit(cache=True)
def warmup_candidates(key: Array, edges: Array, num_keys: int, wanted: int, decay: float) -> tuple[Array, Array]:
    """Whom to fetch ahead at the start of each interval: the most popular keys of the traffic before it.

    Popularity is a count that decays by `decay` per interval. The ranking goes over the keys requested in the interval
    before and those ranked last time. Returns positions of each key's latest request (int32, shape
    (intervals, wanted), best first; ties by key) and how many there are (int32, shape (intervals,)).
    """
    intervals = edges.size - 1
    chosen, number = np.zeros((intervals, wanted), np.int32), np.zeros(intervals, np.int32)
    popular = Popularity(
        np.zeros(num_keys, np.float32),
        np.zeros(num_keys, np.int32),
        np.full(num_keys, -1, np.int32),
        np.full(num_keys, -1, np.int32),
    )
    for i in range(1, intervals):
        span = edges[i - 1], edges[i]
        number[i] = rank(key, span, i, num_keys, popular, chosen[i - 1, : number[i - 1]], decay, chosen[i])
    return chosen, number


@njit(cache=True)
def rank(
    key: Array,
    span: tuple[int, int],
    index: int,
    num_keys: int,
    popular: Popularity,
    last: Array,
    decay: float,
    chosen: Array,
) -> int:
    """The candidates of interval `index`, written to `chosen` (int32, as many as are wanted); returns how many there
    are. span: of the interval before. last: its candidates. num_keys: more than any key's number."""
    score, updated, latest, listed = popular
    start, stop = span
    wanted = chosen.size
    pool = np.empty(stop - start + last.size, np.int32)
    size = 0
    for t in range(start, stop):
        k = key[t]
        score[k] = score[k] * decay ** (index - updated[k]) + 1.0
        updated[k], latest[k] = index, t
        if listed[k] != index:
            listed[k] = index
            pool[size] = k
            size += 1
    for j in range(last.size):
        k = key[last[j]]
        if listed[k] != index:
            listed[k] = index
            pool[size] = k
            size += 1
    ranks = np.empty(size, np.float64)
    for j in range(size):
        k = pool[j]
        ranks[j] = -(score[k] * decay ** (index - updated[k])) + 1e-9 * (k / num_keys)
    number = min(size, wanted)
    if size > wanted:
        bar = np.partition(ranks, wanted - 1)[wanted - 1]
        kept = np.flatnonzero(ranks <= bar)
    else:
        kept = np.arange(size)
    best = kept[np.argsort(ranks[kept])]
    for j in range(number):
        chosen[j] = latest[pool[best[j]]]
    return number
