"""What a trace's traffic looks like in each interval, whatever the settings; and whom a warm-up would fetch."""

from __future__ import annotations

from typing import Any

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


@njit(cache=True)
def traffic_table(key: Array, prompt: Array, output: Array, edges: Array, num_keys: int) -> Array:
    """One row of FEATURES per interval, shape (intervals, 7), NaN where nothing arrived.

    entropy_bits: Shannon entropy of the interval's key distribution p. drift: Jensen-Shannon divergence between p and
    the interval before, in bits, so in [0, 1]. one_hit_ratio: share of the interval's keys requested once in it.
    new_key_ratio: share of its keys never requested before. Tokens: means per request.
    """
    intervals = edges.size - 1
    table = np.full((intervals, 7), np.nan)
    count, before = np.zeros(num_keys, np.int32), np.zeros(num_keys, np.int32)
    seen = np.zeros(num_keys, np.bool_)
    for i in range(intervals):
        start, stop = edges[i], edges[i + 1]
        n = stop - start
        table[i, REQUESTS] = n
        if n > 0:
            keys, ones, fresh, entropy, prompts, outputs = 0, 0, 0, 0.0, 0.0, 0.0
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
            previous_start = edges[i - 1] if i > 0 else start
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
            keys = distinct
            table[i, ENTROPY] = max(entropy, 0.0)
            if m > 0:
                table[i, DRIFT] = min(max(divergence, 0.0), 1.0)
            table[i, ONE_HIT] = ones / keys
            table[i, NEW_KEY] = fresh / keys
            table[i, PROMPT] = prompts / n
            table[i, OUTPUT] = outputs / n
        if i > 0:
            for t in range(edges[i - 1], start):
                before[key[t]] = 0
        for t in range(start, stop):
            before[key[t]] = count[key[t]]
        for t in range(start, stop):
            count[key[t]] = 0
    return table


@njit(cache=True)
def warmup_candidates(key: Array, edges: Array, num_keys: int, wanted: int, decay: float) -> tuple[Array, Array]:
    """Whom to fetch ahead at the start of each interval: the most popular keys of the traffic before it.

    Popularity is a count that decays by `decay` per interval. The ranking goes over the keys requested in the interval
    before and those ranked last time. Returns positions of each key's latest request (int32, shape
    (intervals, wanted), best first; ties by key) and how many there are (int32, shape (intervals,)).
    """
    intervals = edges.size - 1
    chosen, number = np.zeros((intervals, wanted), np.int32), np.zeros(intervals, np.int32)
    score, updated = np.zeros(num_keys, np.float32), np.zeros(num_keys, np.int32)
    latest, listed = np.full(num_keys, -1, np.int32), np.full(num_keys, -1, np.int32)
    for i in range(1, intervals):
        pool = np.empty(edges[i] - edges[i - 1] + wanted, np.int32)
        size = 0
        for t in range(edges[i - 1], edges[i]):
            k = key[t]
            score[k] = score[k] * decay ** (i - updated[k]) + 1.0
            updated[k], latest[k] = i, t
            if listed[k] != i:
                listed[k] = i
                pool[size] = k
                size += 1
        for j in range(number[i - 1]):
            k = key[chosen[i - 1, j]]
            if listed[k] != i:
                listed[k] = i
                pool[size] = k
                size += 1
        rank = np.empty(size, np.float64)
        for j in range(size):
            k = pool[j]
            rank[j] = -(score[k] * decay ** (i - updated[k])) + 1e-9 * (k / num_keys)
        number[i] = min(size, wanted)
        if size > wanted:
            bar = np.partition(rank, wanted - 1)[wanted - 1]
            kept = np.flatnonzero(rank <= bar)
        else:
            kept = np.arange(size)
        best = kept[np.argsort(rank[kept])]
        for j in range(number[i]):
            chosen[i, j] = latest[pool[best[j]]]
    return chosen, number
