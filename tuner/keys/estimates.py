"""From a sample of the keys to all of them: what ghosts in miniature say of the whole, and how far that may be off.

Each key is in the sample or not, whatever the others are, with the same chance. So a sum over the sampled keys, divided
by the rate, is right on average, and its variance is (1 - rate) / rate^2 times the sum of the squares of what each key
adds (W. Cochran, Sampling Techniques, 3rd ed., 1977, chapter 11). Sums over groups of keys, drawn by the hash, give
that without a table of keys. That keys compete for a cache's room is left out: in a cache of many keys, how long an
entry stays depends hardly on any of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.ghost_kernels import BACKEND_USD, HITS, MISSES, STALE_USD
from envs.interval import COLUMN, COSTS
from envs.journal import GROUPS
from envs.traffic import DRIFT, ENTROPY, FEATURES, NEW_KEY, ONE_HIT, OUTPUT, PROMPT, REQUESTS
from envs.world import GHOST_OFFSETS
from tuner.loop.sight import EXTENSIVE
from tuner.whatif_sample import adjusted

Array = NDArray[Any]

SCALED = [COLUMN[name] for name in EXTENSIVE] + list(range(COSTS.start, COSTS.stop))


def stated(rows: Array, rate: float, requests: float) -> Array:
    """Statistics (lanes, STATS) of a sample as those of all keys. requests: of all keys; what the sample has less than
    its share of them are hits, or it has too many (tuner/whatif_sample.py). At a rate of 1 nothing changes."""
    every = adjusted(rows, np.full(rows.shape[:-1], rate * requests))
    every[..., SCALED] /= rate
    return every


def parts_of(tallies: Array, rate: float, requests: float) -> Array:
    """What each group of keys adds to the cost in USD that `stated` says, (lanes, GROUPS), at the sample's own size:
    their differences count, not their sum. Outdated answers follow the adjusted hits, so a key that is asked for often
    adds what it is above the mean of a hit, and takes away with each miss."""
    hits, misses = tallies[..., HITS].sum(-1), tallies[..., MISSES].sum(-1)
    stale = tallies[..., STALE_USD].sum(-1)
    some = hits > 0
    of_hit = np.where(some, stale / np.where(some, hits, 1.0), 0.0)[:, None]
    wanted = np.maximum(rate * requests - misses, 0.0)
    more = np.where(some, wanted / np.where(some, hits, 1.0), 1.0)[:, None]
    stale_parts = more * (tallies[..., STALE_USD] - of_hit * tallies[..., HITS]) - of_hit * tallies[..., MISSES]
    return np.asarray(tallies[..., BACKEND_USD] + stale_parts)


def with_competition(parts: Array, held: Array, costs: Array, sizes: Array) -> Array:
    """What the groups add to the cost of a reference and its neighbours, (1 + NUM_GHOSTS, GROUPS), with what they take
    from each other: a group that holds more bytes than another leaves less room to all, and what room is worth shows in
    how the cost differs between the neighbours of another size. held: bytes, as parts. costs, sizes: (1 + NUM_GHOSTS,),
    the rent left out; all of the sample."""
    order = [0, *range(1, 1 + len(GHOST_OFFSETS))]  # those that differ in size alone
    known, first = np.unique(sizes[order], return_index=True)
    if len(known) < 2:
        return parts
    slopes = np.gradient(costs[order][first], known)
    worth = np.full(len(parts), np.interp(sizes[0], known, slopes))
    worth[order] = np.interp(sizes[order], known, slopes)
    return np.asarray(parts - worth[:, None] * held)


def standard_error(parts: Array, rate: float) -> Array:
    """Of a sum over all keys that was estimated by a sample; parts: (..., GROUPS)."""
    spread = np.square(parts - parts.mean(axis=-1, keepdims=True)).sum(axis=-1) * (GROUPS / (GROUPS - 1.0))
    return np.asarray(np.sqrt((1.0 - rate) * spread) / rate)


def stated_traffic(row: Array, totals: tuple[float, float, float], tokens_stated: tuple[bool, bool]) -> Array:
    """Traffic (envs.traffic.FEATURES) of a sample as that of all keys. totals: requests, prompt and output tokens of
    all keys. tokens_stated: whether the totals of tokens mean anything; else the sample's means stand.

    Requests and tokens are counted. The entropy grows by the bits by which the sample has fewer requests; drift and the
    shares of keys are those of the sample.
    """
    every, requests = row.copy(), totals[0]
    every[REQUESTS] = requests
    if row[REQUESTS] > 0:
        every[ENTROPY] += np.log2(requests / row[REQUESTS])
    if requests > 0:
        for name, total, known in zip((PROMPT, OUTPUT), totals[1:], tokens_stated, strict=True):
            every[name] = total / requests if known else every[name]
    return every


def traffic_error(now: tuple[Array, Array], before: tuple[Array, Array], known: int, rate: float) -> Array:
    """Standard errors of `stated_traffic`, (7,). now, before: key number and group of each request of the interval and
    of the one before it. known: numbers below it were seen before the interval. Those of tokens and requests are 0, as
    they are counted; NaN where there is no value."""
    found = np.full(len(FEATURES), np.nan)
    found[[REQUESTS, PROMPT, OUTPUT]] = 0.0
    key, n, m = now[0], len(now[0]), len(before[0])
    if n == 0:
        return found
    keys, where = np.unique(np.concatenate((key, before[0])), return_index=True)
    group = np.concatenate((now[1], before[1]))[where]
    count, earlier = (np.bincount(np.searchsorted(keys, some), minlength=len(keys)) for some in (key, before[0]))

    def error(values: Array) -> float:
        return float(standard_error(np.bincount(group, values, GROUPS), rate)) * rate

    here, distinct = count > 0, float((count > 0).sum())
    bits = count * np.log2(np.maximum(count, 1))
    found[ENTROPY] = error(bits - bits.sum() / n * count) / n
    ones, fresh = (count == 1).astype(float), (here & (keys >= known)).astype(float)
    found[ONE_HIT] = error(ones - ones.sum() / distinct * here) / distinct
    found[NEW_KEY] = error(fresh - fresh.sum() / distinct * here) / distinct
    if m > 0:
        found[DRIFT] = error(_drift_parts(count / n, earlier / m))
    return found


def _drift_parts(p: Array, q: Array) -> Array:
    """How the divergence changes with each key: it is the sum of half of p log2(2p / (p + q)) and the same for q, and
    both p and q are shares of what the sample holds."""
    with np.errstate(divide="ignore", invalid="ignore"):
        of_p = np.where(p > 0, 0.5 * np.log2(2.0 * p / (p + q)), 0.0)
        of_q = np.where(q > 0, 0.5 * np.log2(2.0 * q / (p + q)), 0.0)
    return np.asarray(p * (of_p - p @ of_p) + q * (of_q - q @ of_q))
