"""States of the policy kernel: forked, saved, and as lanes of one array, they go on as one that was left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caches.errors import InputError
from caches.policies.catalog import ADMISSIONS, EVICTIONS
from caches.policies.kernel import advance
from caches.policies.rules import rules_of
from caches.policies.settings import AdmitAll, CostAware, Gdsf, Lru
from caches.policies.state import empty_states, state_at
from caches.shadow import kernel
from caches.shadow.cache import NO_AGE, NO_RECORD, NOTHING_FETCHED, ShadowCache, limits_of, requests_of
from caches.stats import Expiry

RNG = np.random.default_rng(5)
KEYS, LENGTH = 60, 4_000
KEY = (RNG.zipf(1.3, LENGTH) % KEYS).astype(np.int32)
TIME = np.cumsum(RNG.exponential(1.0, LENGTH))
REQUESTS = requests_of(KEY, TIME, RNG.integers(1, 9, KEYS).astype(np.int32)[KEY])
COST = RNG.integers(1, 5, KEYS).astype(np.float32)[KEY]
CASES = [*((eviction, AdmitAll()) for eviction in EVICTIONS.values()), *((Lru(), one) for one in ADMISSIONS.values())]
CASES.append((Gdsf(), CostAware()))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forked_saved_or_in_lanes_it_is_the_same_cache(case: tuple, tmp_path: Path) -> None:
    eviction, admission = case
    whole = ShadowCache(REQUESTS, KEYS, 60, 300.0, Expiry.SINCE_TOUCH, eviction, admission, COST)
    whole.run(2_000)
    forked = whole.fork()
    whole.save(tmp_path / "state.npz")
    whole.run(LENGTH)
    assert forked.stats() != whole.stats()
    forked.run(LENGTH)
    restored = ShadowCache.restore(tmp_path / "state.npz", REQUESTS, COST)
    restored.run(LENGTH)
    assert forked.stats() == restored.stats() == whole.stats()
    assert whole.stats().evictions > 0

    rules = rules_of(eviction, admission)
    lanes, limits = empty_states(rules, KEYS, 3), limits_of(60, 300.0, Expiry.SINCE_TOUCH)
    for start, stop in ((0, 1_500), (1_500, LENGTH)):
        for lane in range(3):
            moment = kernel.Moment(start, TIME[start - 1] if start else -np.inf, 0.0)
            state = state_at(lanes, lane)
            advance(REQUESTS, state, limits, moment, NOTHING_FETCHED, stop, NO_RECORD, rules, COST)
    assert {tuple(counts[:7]) for counts in lanes.counts} == {tuple(whole.state.counts[:7])}


def test_a_cost_for_each_request_or_none() -> None:
    with pytest.raises(InputError, match="cost: got 3 rows, expected one for each of 4000 requests"):
        ShadowCache(REQUESTS, KEYS, 60, eviction=Gdsf(), cost=COST[:3])
    equal = [
        ShadowCache(REQUESTS, KEYS, 60, eviction=Gdsf(), cost=cost) for cost in (None, np.ones(LENGTH, np.float32))
    ]
    for cache in equal:
        cache.run(LENGTH)
    assert equal[0].stats() == equal[1].stats()
    assert len(equal[0].cost) == len(NO_AGE)
