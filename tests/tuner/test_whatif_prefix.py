"""A what-if of a prefix cache: its surface is what full replays say, and the bound is never below what was found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.policies.pair import PLAIN, CachePolicy
from caches.policies.prefix_settings import PREFIX_EVICTIONS
from envs.interval import column, total_usd
from envs.prefix import PrefixConfig
from envs.serving import load_profile
from envs.world import World
from tests.envs.test_prefix import BLOCK_BYTES, prompts, traffic, world_of
from tests.envs.worlds import problem
from traces.trace import Trace
from tuner.config import TunerConfig, load_tuner_config
from tuner.whatif import Ask, what_if
from tuner.whatif_current import parse_wish
from tuner.whatif_prefix import prefix_cells
from tuner.whatif_surface import axis_of
from tuner.whatif_text import by_policy, sentences


@given(
    traffic(),
    st.sampled_from(["shared", "reserved", "host"]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([PLAIN, CachePolicy("lfu"), CachePolicy("gdsf", "second-hit")]),
)
@settings(max_examples=30, deadline=None)
def test_the_surface_is_what_full_replays_say(trace: Trace, placement: str, warmup: float, policy: CachePolicy) -> None:
    where = PrefixConfig.model_validate({"placement": placement, "below_gib": 3 * BLOCK_BYTES / 2**30})
    world = world_of(trace, where, policy=policy)
    axes = (axis_of(world.problem.knobs.cache_size, 3), axis_of(world.problem.knobs.ttl_seconds, 2))
    cells = prefix_cells(world, axes, warmup)
    every = [KnobSettings(float(s), float(t), warmup) for s in axes[0].values for t in axes[1].values]
    assert list(cells.grid.settings) == every
    rows = world.replay_static(every, len(world))
    requests = column(rows, "requests").sum(axis=1)
    np.testing.assert_allclose(cells.hit_ratio.values.ravel(), column(rows, "hits").sum(axis=1) / requests)
    without_slow = (total_usd(rows) - column(rows, "slow_usd")).sum(axis=1)
    np.testing.assert_allclose(cells.usd_per_1000.values.ravel(), 1000 * without_slow / requests)
    assert cells.bound is not None
    assert (cells.bound.values >= cells.hit_ratio.values - 1e-9).all()
    assert (cells.bound.values <= 1.0).all()
    assert prefix_cells(world, axes, warmup, bounded=False).bound is None


def test_responses_are_asked_about_elsewhere() -> None:
    world = World(problem())
    axes = (axis_of(world.problem.knobs.cache_size, 2), axis_of(world.problem.knobs.ttl_seconds, 2))
    with pytest.raises(InputError, match="cache: got a cache of responses, expected a prefix cache"):
        prefix_cells(world, axes, 0.0)


def config_of(**more: object) -> TunerConfig:
    overrides: dict[str, object] = {
        "cache.kind": "prefix",
        "trace.interval_seconds": 4.0,
        "constraints.p99_ttft_seconds": 100.0,
        "run.workers": 1,
    }
    return load_tuner_config(None, Path("nowhere"), {}, overrides | more)


def scanned() -> Trace:
    """Four prompts of one block in turn, each asked for twice and then followed by four that never come again.

    Between the pairs of one, 19 others are asked for, so with room for 8 or 16 LRU hits the second of each pair and no
    more; LFU lets go what was used once, and from the second pair on hits both: in 50 turns of 24 requests 200 hits and
    396, each of 99 of 100 tokens, as the last one is always computed.
    """
    pairs = [(turn, i) for turn in range(50) for i in range(4)]
    asked = [k for turn, i in pairs for k in (i, i, *(4 + 16 * turn + 4 * i + j for j in range(4)))]
    return prompts(*((39.0 * number / len(asked), [block], 100, 1) for number, block in enumerate(asked)))


def test_policies_stand_side_by_side() -> None:
    profile = load_profile("qwen2.5-7b-a100")
    eight = 8.5 * 100 * profile.kv_bytes_per_token
    sizes = {"knobs.cache_size.low": eight, "knobs.cache_size.high": 16.5 / 8.5 * eight}
    config = config_of(**sizes, **{"knobs.cache_size.default": eight, "cache.eviction_policy": "all"})
    result = what_if(config, scanned(), Ask(parse_wish("ttl=1h"), sizes=2, ttls=2))
    assert [one.policy for one in result.policies] == list(PREFIX_EVICTIONS)
    found = {one.policy: one.best.hit_ratio for one in result.policies}
    assert result.current.policy == "lru"
    assert result.current.hit_ratio == found["lru"] == pytest.approx(0.99 * 200 / 1_200)
    assert found["lfu"] == pytest.approx(0.99 * 396 / 1_200)
    assert result.best.hit_ratio == max(ratio for ratio in found.values() if ratio is not None)
    assert result.best.policy != "lru"
    table = by_policy(result)
    assert {row[0].removesuffix("*") for row in table.rows} == set(PREFIX_EVICTIONS)
    assert any("Of the other policies" in one for one in sentences(result))


def test_what_runs_now_is_under_a_policy_of_this_kind_of_cache() -> None:
    trace = traffic_of(7)
    mine = what_if(config_of(), trace, Ask(parse_wish("size=10%,policy=lru-2"), sizes=2, ttls=2))
    assert (mine.current.policy, mine.shown) == ("lru-2", "lru")
    with pytest.raises(InputError, match=r"eviction_policy: got 'lfu-lru', expected of lru, .* in a prefix cache"):
        what_if(config_of(), trace, Ask(parse_wish("policy=lfu-lru"), sizes=2, ttls=2))


def test_a_whole_what_if_speaks_of_prompts() -> None:
    trace = traffic_of(7)
    result = what_if(config_of(), trace, Ask(parse_wish("size=100%"), sizes=4, ttls=2))
    assert result.subject.kind == "prefix"
    assert result.best.usd_per_1000 <= result.current.usd_per_1000
    assert "of the prompts" in sentences(result)[0]


def traffic_of(seed: int) -> Trace:
    """Sixty prompts that grow from one another."""
    rng = np.random.default_rng(seed)
    blocks = [1, 2, 3, 4]
    requests = []
    for number in range(60):
        blocks = [*blocks[: rng.integers(1, 6)], *(100 * number + 10 + np.arange(3))]
        requests.append((number * 0.6, list(map(int, blocks)), 100 * len(blocks), 5))
    return prompts(*requests)
