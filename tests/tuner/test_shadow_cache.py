"""The live cache that is driven by recorded requests: by the contract of all live caches, and against plain caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.histograms import quantile
from caches.in_process import InProcessCache
from caches.knobs import KnobSettings
from caches.target import Arm, Plan, Split
from tests.contracts.live_cache_contract import DEFAULT, HALVES, SPACE, LiveCacheContract, LiveSubject, alike
from tuner.live.shadow_cache import Requests, ShadowCache, key_name, without_queueing
from tuner.router import assign

CONTROL, TREATMENT = Arm.CONTROL, Arm.TREATMENT
SERVING = without_queueing(hit_seconds=0.001, prefill_seconds=0.0002, decode_seconds=0.02)


def requests_of(keys: list[int], sizes: list[int], times: list[float]) -> Requests:
    """Prompts of 10 tokens and twice the key, answers of 50."""
    ids = np.array(keys, np.int64)
    return Requests(ids, np.array(sizes, np.int64), 10 + 2 * ids, np.full(len(keys), 50), np.array(times, np.float64))


class TestShadowCache(LiveCacheContract):
    @contextmanager
    def make(self) -> Iterator[LiveSubject]:
        cache = ShadowCache(SPACE, SERVING)
        now = [0.0]

        def ask(number: int) -> bool:
            now[0] += 0.001
            (hit,) = cache.replay(requests_of([number], [1_500 + number], now))
            return bool(hit)

        def wait(seconds: float) -> None:
            now[0] += seconds
            cache.wait(now[0])

        def until(true: Callable[[], object]) -> None:
            for _ in range(100):
                if true():
                    return
                wait(0.1)
            pytest.fail("it never came to it")

        yield LiveSubject(cache, ask, key_name, until, wait, largest_bytes=1_800)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 400), st.sampled_from([0.0, 0.3, 2.0])), max_size=200),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.integers(1, 50),
)
def test_each_arm_is_a_cache_of_its_own(rows: list[tuple[int, int, float]], share: float, together: int) -> None:
    """However many requests are replayed in one call."""
    control, treatment = KnobSettings(3_000.0, 20.0, 0.0), KnobSettings(6_000.0, 5.0, 0.0)
    split = Split("salt", share)
    cache = ShadowCache(SPACE, SERVING)
    cache.apply(Plan(split, control, treatment), 1)
    cache.wait(1.0)
    large, small = int(share * control.cache_size), int(share * treatment.cache_size)
    peers = {
        CONTROL: InProcessCache[int, float](3_000 - large, 20.0),
        TREATMENT: InProcessCache[int, float](small, 5.0),
    }
    times = (1.0 + np.cumsum([gap for *_, gap in rows])).tolist() if rows else []
    expected, found = [], []
    for (key, size, _), now in zip(rows, times, strict=True):
        peer = peers[assign(key_name(key), split)]
        expected.append(peer.get(key, now, size) is not None)
        if not expected[-1]:
            peer.put(key, now, size, now)
    for first in range(0, len(rows), together):
        some = rows[first : first + together]
        batch = requests_of([key for key, *_ in some], [size for _, size, _ in some], times[first : first + together])
        found += cache.replay(batch).tolist()
    assert found == expected
    for arm, counters in cache.counters().arms.items():
        stats = peers[arm].stats()
        assert (counters.requests, counters.hits) == (stats.requests, stats.hits)
        assert (counters.hit_bytes, counters.miss_bytes) == (stats.hit_bytes, stats.miss_bytes)
        assert (counters.expirations, counters.evictions) == (stats.expirations, stats.evictions)
        assert (counters.entries, counters.used_bytes) == (stats.entries, stats.used_bytes)


def test_tokens_latencies_and_ages_are_counted_as_stated() -> None:
    """A miss of 12 and 50 tokens takes 0.0024 s to its first token, and a second to its last; a hit takes 0.001 s."""
    cache = ShadowCache(SPACE, SERVING)
    assert cache.replay(requests_of([1, 1, 1], [500] * 3, [0.0, 4.0, 100.0])).tolist() == [False, True, True]
    counters = cache.counters().arms[CONTROL]
    assert (counters.miss_prompt_tokens, counters.miss_output_tokens) == (12, 50)
    assert (counters.hit_tokens, counters.tokens) == (124, 186)
    assert counters.ttft_seconds.total == pytest.approx(0.0024 + 0.002)
    assert counters.latency_seconds.total == pytest.approx(1.0024 + 0.002)
    assert counters.hit_age_seconds.total == 104.0
    assert counters.hit_age_seconds.counts[counters.hit_age_seconds.bounds.index(100.0)] == 1
    assert quantile(counters.latency_seconds, 0.99) == pytest.approx(1.0024, rel=0.16)


def test_a_p99_is_read_to_sixteen_percent_at_worst_over_the_whole_range() -> None:
    for seconds in np.geomspace(0.0002, 500.0, 97):
        cache = ShadowCache(SPACE, without_queueing(seconds, seconds, 0.0))
        cache.replay(replace(requests_of([1] * 200, [10] * 200, [0.0] * 200), prompt_tokens=np.ones(200)))
        assert quantile(cache.counters().arms[CONTROL].ttft_seconds, 0.99) == pytest.approx(seconds, rel=0.16)


def test_each_arm_is_warmed_by_its_own_ratio_and_pays_for_what_it_lacks() -> None:
    cache = ShadowCache(SPACE, SERVING)
    keys = list(range(40))
    mine = {arm: [key for key in keys if assign(key_name(key), HALVES) is arm] for arm in Arm}
    cache.apply(Plan(HALVES, DEFAULT, replace(DEFAULT, warmup_ratio=0.5)), 1)
    cache.replay(requests_of(mine[TREATMENT][:1], [100], [1.0]))
    wanted = round(0.5 * len(mine[TREATMENT]))
    assert cache.warm_up(requests_of(keys, [100] * 40, [0.0] * 40), until_seconds=10.0) == wanted - 1
    counters = cache.counters().arms
    assert (counters[CONTROL].warmups, counters[TREATMENT].warmups) == (0, wanted - 1)
    assert counters[TREATMENT].warmup_output_tokens == 50 * (wanted - 1)
    assert counters[TREATMENT].warmup_prompt_tokens == sum(10 + 2 * key for key in mine[TREATMENT][1:wanted])
    assert (
        cache.replay(requests_of(mine[TREATMENT], [100] * len(mine[TREATMENT]), [2.0] * len(mine[TREATMENT]))).sum()
        == wanted
    )


def test_time_does_not_go_back() -> None:
    cache = ShadowCache(SPACE, SERVING, began_seconds=100.0)
    with pytest.raises(InputError, match="times"):
        cache.replay(requests_of([1], [1], [99.0]))
    with pytest.raises(InputError, match="now_seconds"):
        cache.wait(99.0)
    with pytest.raises(InputError, match="times"):
        requests_of([1, 2], [1, 1], [2.0, 1.0])
    with pytest.raises(InputError, match="sizes"):
        requests_of([1, 2], [1], [1.0, 2.0])


def test_what_has_become_too_old_is_counted_while_nobody_asks() -> None:
    cache = ShadowCache(SPACE, SERVING)
    cache.replay(requests_of([1, 2], [10, 10], [0.0, 1.0]))
    cache.apply(alike(Split(), ttl_seconds=5.0), 1)
    cache.wait(5.5)
    assert cache.counters().arms[CONTROL].expirations == 1
    assert cache.counters().at_seconds == 5.5
