"""A change of the eviction policy, against what it says it is: a cache of the new one into which all was just put."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from caches.errors import InputError
from caches.policies.catalog import ADMISSIONS, EVICTIONS
from caches.policies.settings import AdmitAll, Lru, Sieve, TinyLfu
from caches.shadow import kernel
from caches.shadow.cache import ShadowCache, requests_of
from caches.stats import Expiry
from traces.trace import Operation

KEYS, LENGTH, CHANGES_AT = 60, 4_000, 1_500
RNG = np.random.default_rng(8)
KEY = (RNG.zipf(1.3, LENGTH) % KEYS).astype(np.int32)
TIME = np.cumsum(RNG.exponential(1.0, LENGTH))
SIZE = RNG.integers(1, 9, KEYS).astype(np.int32)[KEY]
COST = RNG.integers(1, 5, KEYS).astype(np.float32)[KEY]
CAPACITY = 70


def first_touched(cache: ShadowCache, until: int) -> list[int]:
    """Keys that are held, by their latest request."""
    latest = {int(key): place for place, key in enumerate(KEY[:until])}
    return sorted(cache.resident_keys().tolist(), key=lambda key: latest[key])


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(EVICTIONS, 2)))
def test_it_is_as_if_all_had_just_been_taken_in(before: str, after: str) -> None:
    others = [EVICTIONS[after]]
    changed = ShadowCache(
        requests_of(KEY, TIME, SIZE), KEYS, CAPACITY, eviction=EVICTIONS[before], cost=COST, others=others
    )
    changed.run(CHANGES_AT)
    counts = changed.stats()
    now = float(TIME[CHANGES_AT - 1])
    held = np.array(first_touched(changed, CHANGES_AT), np.int32)
    changed.change_policy(EVICTIONS[after], now)
    assert changed.stats() == counts
    assert counts.evictions > 0
    rest = changed.run_recording(LENGTH)

    latest = np.array([np.flatnonzero(KEY[:CHANGES_AT] == key)[-1] for key in held])
    writes = np.full(len(held), Operation.WRITE, np.uint8)
    fresh = ShadowCache(
        requests_of(
            np.concatenate((held, KEY[CHANGES_AT:])),
            np.concatenate((np.full(len(held), now), TIME[CHANGES_AT:])),
            np.concatenate((SIZE[latest], SIZE[CHANGES_AT:])),
            operation=np.concatenate((writes, np.full(LENGTH - CHANGES_AT, Operation.READ, np.uint8))),
        ),
        KEYS,
        CAPACITY,
        eviction=EVICTIONS[after],
        cost=np.concatenate((COST[latest], COST[CHANGES_AT:])),
    )
    told = fresh.run_recording(LENGTH - CHANGES_AT + len(held))
    np.testing.assert_array_equal(rest.outcome, told.outcome[len(held) :])
    assert (rest.outcome == kernel.HIT).any()
    assert (rest.outcome == kernel.MISS).any()


@pytest.mark.parametrize("admission", list(ADMISSIONS.values()), ids=str)
def test_there_and_back_without_a_request_between_is_least_recently_used_as_before(admission: object) -> None:
    """Least recently used remembers nothing but the order of touches, so it loses nothing by it; nor does the rule of
    admission, which stays."""
    sketched = isinstance(admission, AdmitAll) is False
    caches = [
        ShadowCache(
            requests_of(KEY, TIME, SIZE), KEYS, CAPACITY, 300.0, Expiry.SINCE_TOUCH, Lru(), admission, COST, [Sieve()]
        )
        for _ in range(2)
    ]
    for cache in caches:
        cache.run(CHANGES_AT)
    for eviction in (Sieve(), Lru()):
        caches[1].change_policy(eviction, float(TIME[CHANGES_AT - 1]))
    outcomes = [cache.run_recording(LENGTH).outcome for cache in caches]
    np.testing.assert_array_equal(*outcomes)
    assert caches[0].stats() == caches[1].stats()
    assert (caches[0].stats().refusals > 0) == sketched


def test_a_warm_up_counts_as_a_touch_before_the_request_that_follows_it() -> None:
    """a, b, c asked for in this order, then a fetched ahead once it was too old: of equal ones b is the first to go."""
    key, time = np.array([0, 1, 2, 3], np.int32), np.array([0.0, 5.0, 6.0, 12.0])
    cache = ShadowCache(requests_of(key, time), 4, 3, 10.0, eviction=Sieve(), others=[Lru()])
    cache.run(3)
    assert cache.warm(np.array([0]), 11.0, 21.0).tolist() == [0]
    cache.change_policy(Lru(), 11.0)
    cache.run(4)
    assert cache.resident_keys().tolist() == [0, 2, 3]


def test_only_to_what_it_was_made_for() -> None:
    alone = ShadowCache(requests_of(KEY, TIME, SIZE), KEYS, CAPACITY)
    with pytest.raises(InputError, match=r"eviction: got Sieve\(\), expected of none"):
        alone.change_policy(Sieve(), 0.0)
    cache = ShadowCache(requests_of(KEY, TIME), KEYS, 9, admission=TinyLfu(), others=[Sieve()])
    with pytest.raises(InputError, match=r"expected of Lru\(\), Sieve\(\)"):
        cache.change_policy(EVICTIONS["gdsf"], 0.0)
