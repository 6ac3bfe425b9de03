"""A what-if of a prefix cache: its surface is what full replays say, and the bound is never below what was found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.knobs import KnobSettings
from envs.interval import column, total_usd
from envs.prefix import PrefixConfig
from envs.world import World
from tests.envs.test_prefix import BLOCK_BYTES, prompts, traffic, world_of
from tests.envs.worlds import problem
from traces.trace import Trace
from tuner.config import load_tuner_config
from tuner.whatif import Ask, what_if
from tuner.whatif_current import parse_wish
from tuner.whatif_prefix import prefix_cells
from tuner.whatif_surface import axis_of
from tuner.whatif_text import sentences


@given(traffic(), st.sampled_from(["shared", "reserved", "host"]), st.sampled_from([0.0, 1.0]))
@settings(max_examples=25, deadline=None)
def test_the_surface_is_what_full_replays_say(trace: Trace, placement: str, warmup: float) -> None:
    where = PrefixConfig.model_validate({"placement": placement, "below_gib": 3 * BLOCK_BYTES / 2**30})
    world = world_of(trace, where)
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


def test_responses_are_asked_about_elsewhere() -> None:
    world = World(problem())
    axes = (axis_of(world.problem.knobs.cache_size, 2), axis_of(world.problem.knobs.ttl_seconds, 2))
    with pytest.raises(InputError, match="cache: got a cache of responses, expected a prefix cache"):
        prefix_cells(world, axes, 0.0)


def test_a_whole_what_if_speaks_of_prompts() -> None:
    trace = traffic_of(7)
    overrides: dict[str, object] = {
        "cache.kind": "prefix",
        "trace.interval_seconds": 4.0,
        "constraints.p99_ttft_seconds": 100.0,
        "run.workers": 1,
    }
    config = load_tuner_config(None, Path("nowhere"), {}, overrides)
    result = what_if(config, trace, Ask(parse_wish("size=100%"), sizes=4, ttls=2))
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
