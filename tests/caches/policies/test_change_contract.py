"""A change of the eviction policy comes to the same in the live cache and in the shadow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.policies.catalog import EVICTIONS
from caches.policies.live.cache import live_cache
from caches.policies.settings import Admission, Eviction
from caches.shadow.cache import ShadowCache, requests_of
from caches.stats import CacheStats
from tests.caches.policies.test_live_changes import ADMISSIONS, PAIRS, Cache, long_scripts, perform, told
from tests.contracts.cache_contract import Change, Script, WarmUp, latest
from tests.contracts.policy_contract import COSTS, LABELS

After = list[tuple[CacheStats, frozenset[int]]]


def run_live(script: Script, at: int, before: Eviction, after: Eviction, admission: Admission) -> After:
    cache: Cache = live_cache(script.capacity, script.ttl, script.expiry, None, before, admission)
    found = []
    for index, step in enumerate(script.steps):
        perform(cache, script, index)
        if index == at:
            assert cache.change_policy(after, step.time)
        found.append(told(cache))
    return found


def run_shadow(script: Script, at: int, before: Eviction, after: Eviction, admission: Admission) -> After:
    wanted = script.requests
    requests = requests_of(
        np.array([LABELS[one.key] for one in wanted], np.int32),
        np.array([one.time for one in wanted]),
        np.array([one.size for one in wanted], np.int32),
        np.array([np.nan if one.ttl is None else one.ttl for one in wanted], np.float32),
        np.array([one.operation for one in wanted], np.uint8),
    )
    cost = np.array([COSTS[one.key] for one in wanted], np.float32)
    keys = max(LABELS) + 1
    cache = ShadowCache(
        requests, keys, script.capacity, script.ttl, script.expiry, before, admission, cost, others=[after]
    )
    found = []
    for index, step in enumerate(script.steps):
        if isinstance(step, Change):
            cache.apply(step.capacity, step.ttl, step.time)
        elif isinstance(step, WarmUp):
            positions = np.array([place for place, _ in latest(script, index, step.keys)], np.int32)
            cache.warm(positions, step.time, step.until)
        else:
            cache.run(cache.position + 1)
        if index == at:
            cache.change_policy(after, step.time)
        found.append((cache.stats(), frozenset(LABELS.index(key) for key in cache.resident_keys())))
    return found


@pytest.mark.parametrize(("before", "after"), PAIRS)
@settings(max_examples=4, deadline=None)
@given(case=long_scripts(), admission=st.sampled_from(ADMISSIONS))
def test_live_and_shadow_come_to_the_same(
    before: str, after: str, case: tuple[Script, int], admission: Admission
) -> None:
    script, at = case
    policies = EVICTIONS[before], EVICTIONS[after], admission
    assert run_live(script, at, *policies) == run_shadow(script, at, *policies)
