"""Prefix caches in an interval: what a prompt finds, how long it takes, what it costs, under each placement.

The small engine: 1,000 prompt tokens/s, 0.02 s per output token, blocks of 100 tokens of 1,000 bytes each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.knobs import Knob, KnobSettings, KnobSpace
from caches.shadow.chain import LOWER, UPPER, PrefixCache
from caches.shadow.trie import chains_of
from envs.control import LaneControl, observation_scale
from envs.interval import COLUMN, column, total_usd
from envs.lanes import fork
from envs.prefix import PrefixConfig, returning, sessions_of
from envs.reward import Constraints, Prices
from envs.serving import Serving, ServingProfile
from envs.units import GIB
from envs.world import Problem, Reference, World
from traces.trace import Trace, TraceInfo

BLOCK_TOKENS, TOKEN_BYTES = 100, 1_000
BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES
KNOBS = KnobSpace(
    Knob("cache_size", "bytes", BLOCK_BYTES, 100.0 * BLOCK_BYTES, 10.0 * BLOCK_BYTES, 0.2, "log"),
    Knob("ttl_seconds", "seconds", 1.0, 1_000.0, 1_000.0, 0.2, "log"),
    Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.5, "linear"),
)
PROFILE = ServingProfile(
    name="small",
    vram_gib=2.0,
    weights_gib=1.0,
    kv_bytes_per_token=TOKEN_BYTES,
    prefill_tokens_per_second=1_000.0,
    seconds_per_output_token=0.02,
    max_sequences=4,
    kv_tokens=2_000,
)
PRICES = Prices(gpu_usd_per_hour=3_600.0, memory_usd_per_gib_hour=3_600.0, slow_request_usd=1.0)
AT_ONCE = PrefixConfig(host_gib_per_second=1e9, host_latency_seconds=0.0)
END = 40.0


def prompts(*requests: tuple[float, list[int], int, int]) -> Trace:
    """(arrival, block ids, prompt tokens, output tokens), and one more of no known block that ends the trace."""
    every = [*requests, (END, [-1], 1, 1)]
    lengths = [len(blocks) for _, blocks, _, _ in every]
    count = len(every)
    return Trace(
        TraceInfo("prompts", "by hand", block_size_tokens=BLOCK_TOKENS),
        np.array([time for time, *_ in every]),
        np.arange(count, dtype=np.int32),
        np.ones(count, np.int32),
        count,
        prompt_tokens=np.array([tokens for *_, tokens, _ in every], np.int32),
        output_tokens=np.array([tokens for *_, tokens in every], np.int32),
        block_offsets=np.cumsum([0, *lengths]).astype(np.int64),
        block_hashes=np.concatenate([blocks for _, blocks, _, _ in every]).astype(np.int64),
    )


def world_of(trace: Trace, where: PrefixConfig = AT_ONCE, **changes: Any) -> World:
    problem = Problem(trace, 10.0, KNOBS, PRICES, Constraints(p99_ttft_seconds=2.0), PROFILE, Serving(), prefix=where)
    return World(replace(problem, **changes))


def interval(world: World, blocks: float, ttl: float = 1_000.0, warmup: float = 0.0) -> np.ndarray:
    """Statistics of all intervals under one setting."""
    return world.replay_static([KnobSettings(blocks * BLOCK_BYTES, ttl, warmup)], len(world))[0]


TWO_TURNS = prompts((0.0, [1, 2, 3], 250, 10), (5.0, [1, 2, 3, 4], 400, 20))


def test_host_memory_by_hand() -> None:
    """The second prompt finds three blocks, of which the last was partial at first: by its id it is whole now.

    First: 250 tokens take 0.25 s, ten tokens out 0.2 s. Second: 300 of 400 tokens are found, 100 take 0.1 s.
    GPU seconds: 0.25 + 0.1 of prefill, and 30 tokens at 0.02 s / 4 sequences: 0.15. One USD each.
    """
    row = interval(world_of(TWO_TURNS), 10)[0]
    assert row[COLUMN["requests"]] == 2
    assert row[COLUMN["token_hit_ratio"]] == pytest.approx(300 / 650)
    assert row[COLUMN["byte_hit_ratio"]] == pytest.approx(3 / 7)
    assert row[COLUMN["hit_ratio"]] == pytest.approx((0 + 0.75) / 2)
    assert row[COLUMN["p50_ttft_seconds"]] == pytest.approx(0.1)
    assert row[COLUMN["p99_ttft_seconds"]] == pytest.approx(0.25)
    assert row[COLUMN["p50_latency_seconds"]] == pytest.approx(0.45)
    assert row[COLUMN["p99_latency_seconds"]] == pytest.approx(0.5)
    assert row[COLUMN["compute_usd"]] == pytest.approx(0.35 + 0.15)
    assert row[COLUMN["memory_usd"]] == pytest.approx(10 * BLOCK_BYTES / GIB * 10)
    assert row[COLUMN["used_bytes"]] == 4 * BLOCK_BYTES
    assert row[COLUMN["utilisation"]] == pytest.approx(0.35 / 10)
    # KV in VRAM as seen after each start: 260, then 420 tokens
    assert row[COLUMN["vram_ratio"]] == pytest.approx((GIB + 340 * TOKEN_BYTES) / (2 * GIB))


def test_a_copy_from_the_host_takes_latency_and_bandwidth() -> None:
    """300 tokens of 1,000 bytes at 1,000,000 bytes/s: 0.3 s, and 0.05 s before."""
    slow = PrefixConfig(host_gib_per_second=1e6 / GIB, host_latency_seconds=0.05)
    row = interval(world_of(TWO_TURNS, slow), 10)[0]
    assert row[COLUMN["p99_ttft_seconds"]] == pytest.approx(0.05 + 0.3 + 0.1)


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    row = interval(world_of(prompts((0.0, [1, 2], 200, 1), (5.0, [1, 2], 200, 1))), 10)[0]
    assert row[COLUMN["token_hit_ratio"]] == pytest.approx(199 / 400)


def test_in_vram_nothing_is_rented_and_nothing_is_copied() -> None:
    slow = {"host_gib_per_second": 1e6 / GIB, "host_latency_seconds": 0.05}
    for placement in ("shared", "reserved"):
        row = interval(world_of(TWO_TURNS, PrefixConfig(placement=placement, **slow)), 10)[0]
        assert row[COLUMN["p50_ttft_seconds"]] == pytest.approx(0.1)
        assert row[COLUMN["memory_usd"]] == 0.0


def test_a_reserved_share_of_vram_leaves_fewer_sequences() -> None:
    """2,000 tokens of KV. Two sequences of 700 + 100 fit side by side, not beside a cache of 1,000 tokens: the second
    waits for the first, which is done after 0.7 s and 100 tokens of 0.02 s."""
    trace = prompts((0.0, [1] * 7, 700, 100), (0.5, [2] * 7, 700, 100))
    small = interval(world_of(trace, PrefixConfig(placement="reserved")), 1)[0]
    large = interval(world_of(trace, PrefixConfig(placement="reserved")), 10)[0]
    assert small[COLUMN["mean_wait_seconds"]] == pytest.approx(0.2 / 2)  # for the prefill server alone
    assert large[COLUMN["mean_wait_seconds"]] == pytest.approx((0.7 + 2.0 - 0.5) / 2)
    assert large[COLUMN["p99_ttft_seconds"]] == pytest.approx(0.7 + 2.0 - 0.5 + 0.7, rel=1e-6)
    assert (small[COLUMN["slow_requests"]], large[COLUMN["slow_requests"]]) == (0, 1)  # objective: 2 s
    assert large[COLUMN["slow_usd"]] == 1.0


def test_in_a_shared_pool_sequences_push_blocks_out() -> None:
    """2,000 tokens. The first prompt leaves 5 blocks behind. A long one takes 1,400 + 400 tokens: 2 of them remain."""
    first, long, again = (
        (0.0, [1, 2, 3, 4, 5], 500, 1),
        (5.0, [*range(10, 24)], 1_400, 400),
        (20.0, [1, 2, 3, 4, 5], 500, 1),
    )
    rows = interval(world_of(prompts(first, long, again), PrefixConfig(placement="shared")), 100)
    assert rows[0, COLUMN["evictions"]] == 3
    assert rows[2, COLUMN["token_hit_ratio"]] == pytest.approx(200 / 500)


def test_in_a_shared_pool_a_running_prompt_keeps_its_blocks_and_others_share_them() -> None:
    """Two sequences of one prompt of 1,200 tokens fit into 2,000, as its blocks are there once: 1,200 + 2 x 100."""
    trace = prompts((0.0, [*range(12)], 1_200, 100), (1.5, [*range(12)], 1_200, 100))
    row = interval(world_of(trace, PrefixConfig(placement="shared")), 100)[0]
    assert row[COLUMN["mean_wait_seconds"]] == 0.0
    assert row[COLUMN["p50_ttft_seconds"]] == pytest.approx(0.001)
    apart = prompts((0.0, [*range(12)], 1_200, 100), (1.5, [*range(20, 32)], 1_200, 100))
    assert interval(world_of(apart, PrefixConfig(placement="shared")), 100)[0, COLUMN["mean_wait_seconds"]] > 0.0


def test_what_leaves_for_age_or_space_is_found_below() -> None:
    """Room for two blocks above and as many as come below. The third block never finds room above. After the lifetime
    of 2 s both have fallen; the second prompt finds them below: 200 tokens at 1,000,000 bytes/s take 0.2 s, 0.1 s
    before, and 200 more tokens 0.2 s of prefill."""
    below = PrefixConfig(
        below_gib=1.0, below_gib_per_second=1e6 / GIB, below_latency_seconds=0.1, below_usd_per_gib_hour=36.0
    )
    row = interval(world_of(TWO_TURNS, below), 2, ttl=2.0)[0]
    assert row[COLUMN["expirations"]] == 2 + 2
    assert row[COLUMN["token_hit_ratio"]] == pytest.approx(200 / 650)
    assert row[COLUMN["p99_ttft_seconds"]] == pytest.approx(0.1 + 0.2 + 0.2)
    assert row[COLUMN["memory_usd"]] == pytest.approx(2 * BLOCK_BYTES / GIB * 10 + 0.1)


def test_a_warm_up_brings_a_session_up_before_it_returns() -> None:
    """Blocks fall after 2 s; at 10 s a warm-up copies all three up, so the turn at 11 s copies nothing itself."""
    turns = prompts((0.0, [1, 2, 3], 300, 10), (11.0, [1, 2, 3, 4], 400, 10))
    below = PrefixConfig(
        host_gib_per_second=1e9,
        host_latency_seconds=0.0,
        below_gib=1.0,
        below_gib_per_second=1e6 / GIB,
        below_latency_seconds=0.1,
    )
    cold, warm = (interval(world_of(turns, below), 10, ttl=2.0, warmup=share)[1] for share in (0.0, 1.0))
    assert (cold[COLUMN["warmups"]], warm[COLUMN["warmups"]]) == (0, 3)
    assert cold[COLUMN["p50_ttft_seconds"]] == pytest.approx(0.1 + 0.3 + 0.1)
    assert warm[COLUMN["p50_ttft_seconds"]] == pytest.approx(0.1)


def test_an_interval_without_requests_has_no_ratios_and_pays_its_rent() -> None:
    row = interval(world_of(TWO_TURNS), 10)[2]
    assert row[COLUMN["requests"]] == 0
    for name in ("hit_ratio", "token_hit_ratio", "p99_ttft_seconds", "p99_latency_seconds", "vram_ratio"):
        assert np.isnan(row[COLUMN[name]])
    assert total_usd(row) == row[COLUMN["memory_usd"]] > 0


def test_without_blocks_there_is_no_prefix_cache() -> None:
    with pytest.raises(InputError, match="trace prompts: got no block hashes, expected them for a prefix cache"):
        world_of(replace(TWO_TURNS, block_offsets=None, block_hashes=None))


@st.composite
def traffic(draw: st.DrawFn) -> Trace:
    """Prompts that grow from one another, a few at a time, at times that let them overlap."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(5, 60))
    time = np.sort(rng.uniform(0.0, END, count))
    time[0] = 0.0
    made: list[list[int]] = []
    for number in range(count):
        kept = made[rng.integers(len(made))] if made and rng.random() < 0.8 else []
        made.append([*kept[: rng.integers(0, len(kept) + 1)], *(1_000 * number + np.arange(rng.integers(1, 5)))])
    tokens = [len(blocks) * BLOCK_TOKENS - int(rng.integers(0, BLOCK_TOKENS)) for blocks in made]
    return prompts(*((float(t), b, n, int(rng.integers(1, 60))) for t, b, n in zip(time, made, tokens, strict=True)))


@given(traffic(), st.integers(0, 30), st.integers(0, 20))
@settings(max_examples=40, deadline=None)
def test_a_host_cache_hits_as_one_that_serves_in_turn_whatever_the_load(trace: Trace, above: int, below: int) -> None:
    """Copies are read at once, so only the order of requests counts: the blocks found are those of PrefixCache.run."""
    world = world_of(trace, PrefixConfig(below_gib=below * BLOCK_BYTES / GIB))
    rows = interval(world, above + 0.5)
    cache = PrefixCache(chains_of(trace.block_offsets, trace.block_hashes), above, lower_blocks=below)
    cache.run(len(trace) - 1)
    stats, blocks = cache.stats(), int(trace.block_offsets[-2])
    asked = column(rows, "requests") > 0
    hits = sum(
        row[COLUMN["byte_hit_ratio"]] * (trace.block_offsets[stop] - trace.block_offsets[start])
        for row, start, stop in zip(rows, world.timeline.edges[:-1], world.timeline.edges[1:], strict=True)
        if stop > start
    )
    assert asked.any()
    assert hits == pytest.approx(stats.upper_hits + stats.lower_hits)
    assert column(rows, "evictions").sum() == stats.evictions
    assert stats.upper_hits + stats.lower_hits + stats.misses == blocks


@given(traffic(), st.sampled_from(["shared", "reserved", "host"]), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_whatever_is_done_to_it_a_lane_stays_whole(trace: Trace, placement: Any, seed: int) -> None:
    """Settings that jump at random: used counts what lies there, parents stay, memory is never overdrawn, and a fork
    goes on exactly like its original."""
    world = world_of(trace, PrefixConfig(placement=placement, below_gib=10 * BLOCK_BYTES / GIB))
    parent, lanes, rng = world.scene.chains.parent, world.lanes(2), np.random.default_rng(seed)
    rows = np.empty((2, len(rows_of(world))))
    for index in range(len(world)):
        fork(world.play, lanes, 0, 1)
        setting = np.array([rng.uniform(0, 40) * BLOCK_BYTES, rng.choice([0.5, 5.0, 1e3]), rng.uniform()])
        for lane in range(2):
            world.play.run_interval(world.scene, lanes, lane, index, setting, rows[lane])
        np.testing.assert_array_equal(rows[0], rows[1])
        for name in world.play.owned:
            np.testing.assert_array_equal(getattr(lanes, name)[0], getattr(lanes, name)[1], err_msg=name)
        place, pins = lanes.place[0], lanes.pins[0]
        assert lanes.cursor[0].tolist() == [(place == UPPER).sum(), (place == LOWER).sum(), (pins > 0).sum()]
        resident = np.flatnonzero(place)
        above = resident[parent[resident] >= 0]
        assert (place[parent[above]] > 0).all()
        assert (place[parent[above[place[above] == UPPER]]] == UPPER).all()
        assert (place[pins > 0] == UPPER).all()
        assert 0 <= lanes.taken[0, 0] <= (pins > 0).sum()
        if placement != "shared":
            assert not pins.any()


def rows_of(world: World) -> np.ndarray:
    return interval(world, 1)[0]


@pytest.mark.parametrize("placement", ["shared", "reserved", "host"])
def test_the_reference_on_itself_saves_exactly_nothing_from_any_checkpoint(placement: Any) -> None:
    rng = np.random.default_rng(1)
    requests, blocks = [], [*range(8)]
    for number, time in enumerate(np.sort(rng.uniform(0, END, 60))):
        blocks = [*blocks[: rng.integers(1, 8)], *(100 * number + np.arange(4))]
        requests.append((float(time) if number else 0.0, blocks, len(blocks) * BLOCK_TOKENS, int(rng.integers(1, 40))))
    world = world_of(prompts(*requests), PrefixConfig(placement=placement, below_gib=4 * BLOCK_BYTES / GIB))
    reference = Reference(world, KnobSettings(12.0 * BLOCK_BYTES, 5.0, 0.5), (0, 1, 2))
    control = LaneControl(reference, observation_scale(world, reference, range(len(world))), 3, 2)
    for lane in range(3):
        control.reset(lane, reference.checkpoint(lane))
    for _ in range(2):
        assert control.step(np.zeros((3, 3))).tolist() == [0.0, 0.0, 0.0]


def test_sessions_are_told_by_what_they_go_on_with() -> None:
    """A prompt goes on with the one whose blocks but the last it begins with; a common opening makes no session."""
    trace = prompts(
        (0.0, [1, 2, 3], 300, 1),  # 0
        (1.0, [1, 7, 8], 300, 1),  # 1: shares the opening only
        (2.0, [1, 2, 4, 5], 400, 1),  # 0 goes on: its last block was partial
        (3.0, [1, 7, 8, 9], 400, 1),  # 1 goes on
        (4.0, [1, 2, 3], 300, 1),  # 2: the block after which 0 stood has moved on
    )
    session = sessions_of(chains_of(trace.block_offsets, trace.block_hashes))
    assert session.tolist() == [0, 1, 0, 1, 2, 3]


def test_those_who_returned_after_such_a_silence_before_come_first() -> None:
    """Intervals of 10 s. Session 0 comes every 10 s; 1 and 2 came once, at 8 s and 1 s.

    At 10 s nothing is known of any silence: the latest first. At 20 s: silent for 5 s (0), as long as 0 was at 10 s and
    came back: (1 + 1) / (2 + 1). Silent for 12 s (1), within a factor of two as long as 2 was at 10 s and did not come
    back: 1 / 3. Silent for 19 s (2), as none was before: 1 / 2. At 30 s: 3 / 4, 1 / 3 (as 2 was at 20 s) and 1 / 2.
    """
    time = np.array([1.0, 8.0, 5.0, 15.0, 25.0])
    session = np.array([2, 1, 0, 0, 0], np.int32)
    order = np.argsort(time)
    time, session = time[order], session[order]
    edges = np.searchsorted(time, [0.0, 10.0, 20.0, 30.0, 40.0]).astype(np.int64)
    chosen, number = returning(session, time, edges, 0.0, 10.0, 2)
    assert number.tolist() == [0, 2, 2, 2]
    assert [session[chosen[i]].tolist() for i in (1, 2, 3)] == [[1, 0], [0, 2], [0, 2]]
    assert [time[chosen[i, 0]] for i in (1, 2, 3)] == [8.0, 15.0, 25.0]
