"""Ghosts over a journal against the same requests in a trace: equal to the last bit, whatever is cleared in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.knobs import KnobSettings
from caches.shadow.sampling import mixed
from caches.stats import Expiry
from caches.target import Arm
from envs import ghost_lanes, ghost_state, journal
from envs.ghost_kernels import BACKEND_USD, HITS, MISSES, STALE_USD
from envs.ghost_lanes import GhostLanes, Part, Terms
from envs.interval import COLUMN, COSTS, NAMES, STATS, column
from envs.journal import Batch, places
from envs.lanes import Scene, run_interval
from envs.reward import COMPUTE, SLOW, STALENESS, WARMUP, tariff_of
from envs.serving import Serving, backend_of
from envs.traffic import NEW_KEY
from envs.units import GIB
from envs.world import Problem, World, entry_bytes
from tests.envs.worlds import INTERVAL_SECONDS, problem, random_trace
from traces.trace import Trace

Array = np.ndarray[Any, Any]

INTERVALS = 14
GHOSTS = [
    KnobSettings(0.0, 5.0, 0.0),
    KnobSettings(350.5, 20.0, 1.0),
    KnobSettings(1_000.0, 2.0, 0.5),
    KnobSettings(2_500.25, 15.0, 0.5),
    KnobSettings(4_000.0, 1e9, 1.0),
    KnobSettings(10_000.0, 1e9, 0.0),
]


def by_appearance(trace: Trace) -> Trace:
    """The same trace, its keys numbered as they come, which decides between equally popular ones."""
    _, first, which = np.unique(trace.key, return_index=True, return_inverse=True)
    number = np.argsort(np.argsort(first)).astype(np.int32)
    return replace(trace, key=number[which], num_keys=len(first))


def terms_of(wanted: Problem) -> Terms:
    return Terms(
        backend_of(wanted.profile, wanted.serving),
        tariff_of(wanted.prices),
        wanted.constraints.p99_ttft_seconds,
        float(wanted.serving.sequence_tokens),
        wanted.expiry is Expiry.SINCE_TOUCH,
        wanted.warmup_candidates,
        wanted.popularity_decay,
        (wanted.policy,),
    )


def batches(world: World, treatment: Array | None = None) -> list[Batch]:
    """The trace of a world, interval by interval."""
    trace, found = world.problem.trace, []
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    size = entry_bytes(trace, world.problem.entry_overhead_bytes)
    ttl = np.full(len(trace), np.nan, np.float32) if trace.ttl_seconds is None else trace.ttl_seconds
    ids, other = mixed(trace.key.astype(np.uint64), 7), np.zeros(len(trace), np.bool_)
    for start, stop in zip(world.timeline.edges[:-1], world.timeline.edges[1:], strict=True):
        part = slice(start, stop)
        found.append(
            Batch(
                ids[part],
                trace.arrival_seconds[part],
                size[part],
                ttl[part],
                trace.prompt_tokens[part],
                trace.output_tokens[part],
                (other if treatment is None else treatment)[part],
            )
        )
    return found


def reads(seed: int, rate: float, own_ttl: bool = False) -> Trace:
    trace = by_appearance(random_trace(seed, INTERVALS, rate))
    rng = np.random.default_rng(seed)
    own = rng.choice([np.nan, np.nan, 4.0, 8.0], len(trace)).astype(np.float32)
    return replace(trace, ttl_seconds=own) if own_ttl else trace


def run(
    world: World, ghosts: GhostLanes, parts: list[Part], pieces: int = 1, between: Callable[[int], None] | None = None
) -> tuple[Array, Array]:
    """(traffic, rows of all parts one below the other). pieces: in which an interval is fed. between: called before
    each."""
    traffic, rows = [], []
    for index, batch in enumerate(batches(world)):
        ghosts.open((world.timeline.begin(index), INTERVAL_SECONDS), 1.0, parts)
        for piece in np.array_split(np.arange(len(batch)), pieces):
            if between is not None:
                between(index)
            ghosts.feed(batch.of(piece))
        row, done = ghosts.close()
        traffic.append(row)
        rows.append(np.concatenate([one.rows for one in done]))
    return np.array(traffic), np.stack(rows, axis=1)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    expiry=st.sampled_from(list(Expiry)),
    own_ttl=st.booleans(),
    rate=st.sampled_from([0.7, 6.0, 20.0]),
    every=st.sampled_from([None, 1, 3]),
    pieces=st.sampled_from([1, 4]),
    in_vram=st.booleans(),
)
def test_traffic_and_every_statistic_are_those_of_the_trace(
    seed: int, expiry: Expiry, own_ttl: bool, rate: float, every: int | None, pieces: int, in_vram: bool
) -> None:
    serving = Serving(replicas=2, cache_in_vram=in_vram, sequence_tokens=500, max_sequences=2)
    world = World(problem(reads(seed, rate, own_ttl), expiry=expiry, serving=serving, entry_overhead_bytes=30))
    chosen = GHOSTS if not in_vram else [replace(one, cache_size=0.09 * GIB * i) for i, one in enumerate(GHOSTS)]
    ghosts = GhostLanes(terms_of(world.problem))
    ghosts.follow(dict.fromkeys(chosen))

    def clear(index: int) -> None:
        if every is not None and index % every == 0:
            ghosts.clear()

    traffic, rows = run(world, ghosts, [Part({one: one for one in chosen}, 1.0)], pieces, clear)
    np.testing.assert_array_equal(traffic, world.traffic)
    np.testing.assert_array_equal(rows, world.replay_static(chosen, len(world)))


def test_the_scene_of_these_tests_has_everything_in_it() -> None:
    """Otherwise equality would say little."""
    world = World(problem(reads(3, 20.0)))
    rows = world.replay_static(GHOSTS, len(world))
    for name in ("hits", "warmups", "expirations", "evictions", "mean_wait_seconds", "slow_requests"):
        assert np.nanmax(column(rows, name)) > 0, name


@pytest.mark.parametrize("seed", range(4))
def test_parts_that_are_told_at_the_end_come_to_the_same(seed: int) -> None:
    world = World(problem(reads(seed, 20.0)))
    ghosts = GhostLanes(terms_of(world.problem))
    ghosts.follow(dict.fromkeys(["first", *GHOSTS]))
    rows = []
    for index, batch in enumerate(batches(world)):
        ghosts.open((world.timeline.begin(index), INTERVAL_SECONDS), 1.0, [Part({"first": GHOSTS[0]}, 1.0)])
        for piece in np.array_split(np.arange(len(batch)), 3):
            ghosts.feed(batch.of(piece))
            ghosts.clear()
        rows.append(ghosts.close([Part({one: one for one in GHOSTS}, 1.0)])[1][1].rows)
    np.testing.assert_array_equal(np.stack(rows, axis=1), world.replay_static(GHOSTS, len(world)))


def test_settings_may_change_with_every_interval() -> None:
    """As the kernel of training's steps has it."""
    world = World(problem(reads(5, 20.0)))
    chosen = [GHOSTS[index * 5 % len(GHOSTS)] for index in range(len(world))]
    assert isinstance(world.scene, Scene)
    lanes, expected = world.lanes(1), np.full((len(world), STATS), np.nan)
    for index, one in enumerate(chosen):
        run_interval(world.scene, lanes, 0, index, one.as_array(), expected[index])
    ghosts = GhostLanes(terms_of(world.problem))
    ghosts.follow({"moving": None})
    rows = []
    for index, batch in enumerate(batches(world)):
        ghosts.open((world.timeline.begin(index), INTERVAL_SECONDS), 1.0, [])
        ghosts.feed(batch)
        rows.append(ghosts.close([Part({"moving": chosen[index]}, 1.0)])[1][0].rows[0])
    np.testing.assert_array_equal(rows, expected)


def test_little_room_to_begin_with_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything grows, and is cleared where much has gathered, between pieces or not."""
    for module, name, value in (
        (ghost_lanes, "ROWS", 40),
        (ghost_lanes, "LISTED", 10),
        (ghost_state, "KEYS", 1),
        (ghost_state, "WARMUPS", 1),
        (journal, "ROWS", 3),
        (journal, "KEYS", 2),
    ):
        monkeypatch.setattr(module, name, value)
    world = World(problem(reads(6, 20.0)))
    for tending in (False, True):
        ghosts = GhostLanes(terms_of(world.problem))
        ghosts.follow(dict.fromkeys(GHOSTS))

        def tend(_index: int, ghosts: GhostLanes = ghosts, tending: bool = tending) -> None:
            if tending:
                ghosts.tend()

        traffic, rows = run(world, ghosts, [Part({one: one for one in GHOSTS}, 1.0)], 5, tend)
        np.testing.assert_array_equal(traffic, world.traffic)
        np.testing.assert_array_equal(rows, world.replay_static(GHOSTS, len(world)))
        assert ghosts.journal.rows < len(world.problem.trace)


def test_groups_of_keys_add_up_to_the_whole() -> None:
    world = World(problem(reads(3, 20.0)))
    ghosts = GhostLanes(terms_of(world.problem))
    ghosts.follow(dict.fromkeys(GHOSTS))
    for index, batch in enumerate(batches(world)):
        ghosts.open((world.timeline.begin(index), INTERVAL_SECONDS), 1.0, [Part({one: one for one in GHOSTS}, 1.0)])
        ghosts.feed(batch)
        (done,) = ghosts.close()[1]
        costs = done.rows[:, COSTS]
        sums = done.tallies.sum(axis=1)
        np.testing.assert_allclose(sums[:, BACKEND_USD], costs[:, COMPUTE] + costs[:, WARMUP] + costs[:, SLOW], 1e-6)
        np.testing.assert_allclose(sums[:, STALE_USD], costs[:, STALENESS], 1e-6)
        np.testing.assert_array_equal(sums[:, HITS], column(done.rows, "hits"))
        np.testing.assert_array_equal(sums[:, HITS] + sums[:, MISSES], column(done.rows, "requests"))


def test_memory_does_not_grow_with_time() -> None:
    """Three hundred intervals of new keys: what is held is what the caches and the last two intervals hold."""
    ghosts = GhostLanes(terms_of(problem()))
    settings_held = KnobSettings(10_000.0, 30.0, 0.5)
    ghosts.follow({"one": None})
    most_rows = most_keys = 0
    for index in range(300):
        begins = 10.0 * index
        ids = mixed(np.arange(50 * index, 50 * index + 50, dtype=np.uint64), 1)
        ghosts.open((begins, 10.0), 1.0, [Part({"one": settings_held}, 1.0)])
        ghosts.feed(batch_of(ids, begins + np.arange(50) / 5.0))
        ghosts.close()
        ghosts.clear(forget_seconds=begins - 50.0)
        most_rows, most_keys = max(most_rows, ghosts.journal.rows), max(most_keys, ghosts.journal.keys)
    assert most_rows <= 50 * 5  # a lifetime of three intervals, and two
    assert most_keys <= 50 * 7


def test_forgotten_keys_are_new_again_and_others_are_not() -> None:
    """Keys 1 to 3, then 4, then all four: forgotten are those that nobody asked for since, that no cache holds, and
    that no warm-up would fetch."""
    ghosts = GhostLanes(replace(terms_of(problem()), warmup_candidates=0))
    ghosts.follow({"one": None})
    fresh = []
    for index, keys in enumerate([[1, 2, 3], [4], [4], [1, 2, 3, 4]]):
        ghosts.open((10.0 * index, 10.0), 1.0, [Part({"one": KnobSettings(10_000.0, 5.0, 0.0)}, 1.0)])
        ghosts.feed(batch_of(np.array(keys, np.uint64), 10.0 * index + np.arange(len(keys))))
        fresh.append(float(ghosts.close()[0][NEW_KEY]))
        ghosts.clear(forget_seconds=10.0 * index - 9.0)
    assert fresh == [1.0, 1.0, 0.0, 0.75]


@pytest.mark.parametrize("in_the_middle", [False, True])
def test_taking_keys_out_leaves_the_others_as_they_are(in_the_middle: bool) -> None:
    """With room for everything, keys do not know of each other."""
    world = World(problem(reads(2, 20.0)))
    one = KnobSettings(1e6, 15.0, 0.0)
    both: list[Array] = []
    for rate in (1.0, 0.5):
        ghosts = GhostLanes(terms_of(world.problem))
        ghosts.follow({one: None})
        rows = []
        for index, batch in enumerate(batches(world)):
            sampled = batch.of(places(batch.id) < (rate if index < 5 else 0.5))
            ghosts.open((world.timeline.begin(index), INTERVAL_SECONDS), 1.0, [Part({one: one}, 1.0)])
            ghosts.feed(sampled)
            if rate == 1.0 and index == 4 and in_the_middle:
                ghosts.thin(0.5, 0.5)
            row, done = ghosts.close()
            if rate == 1.0 and index == 4:
                assert np.isnan(row).all() == np.isnan(done[0].rows).all() == in_the_middle
                ghosts.thin(0.5, 0.5)
            rows.append(done[0].rows[0])
        both.append(np.array(rows[5:]))
    for name in ("requests", "hits", "byte_hit_ratio", "stale_answers", "expirations", "used_bytes", "compute_usd"):
        np.testing.assert_allclose(column(both[0], name), column(both[1], name), rtol=1e-12, err_msg=name)
    assert column(both[1], "expirations").sum() > 0


def test_each_arm_is_a_cache_of_its_own() -> None:
    """Told apart by key from the start, the arms are two traces: nothing of one shows in the other, but that an entry
    which is too old goes with the next request of either."""
    lazy = ["expirations", "used_bytes", "fill_ratio"]
    world = World(problem(reads(4, 30.0)))
    treatment = mixed(world.problem.trace.key.astype(np.uint64), 99) < np.uint64(2**62)
    one = KnobSettings(4_000.0, 15.0, 0.0)
    ghosts = GhostLanes(terms_of(world.problem))
    ghosts.follow(dict.fromkeys(Arm))
    parts = [Part({Arm.CONTROL: one}, 0.75, Arm.CONTROL), Part({Arm.TREATMENT: one}, 0.25, Arm.TREATMENT)]
    alone = {arm: GhostLanes(terms_of(world.problem)) for arm in Arm}
    for arm in Arm:
        alone[arm].follow({arm: None})
    for index, batch in enumerate(batches(world, treatment)):
        span = (world.timeline.begin(index), INTERVAL_SECONDS)
        ghosts.open(span, 1.0, parts)
        ghosts.feed(batch)
        for part, done in zip(parts, ghosts.close()[1], strict=True):
            assert part.arm is not None
            alone[part.arm].open(span, 1.0, [replace(part, arm=None)])
            alone[part.arm].feed(batch.of(batch.treatment == (part.arm is Arm.TREATMENT)))
            expected = alone[part.arm].close()[1][0].rows
            for name in set(NAMES).difference(lazy):
                np.testing.assert_array_equal(column(done.rows, name), column(expected, name), name)
            assert done.rows[0, COLUMN["requests"]] > 0


def test_a_key_that_changes_sides_takes_its_entry_along() -> None:
    """Key 1 at 0 s is the control arm's; from 10 s on the treatment arm's, where it is a hit that is 11 s old. When
    all is one again, it is a hit there too; key 2 never moved."""
    ghosts = GhostLanes(terms_of(problem()))
    ghosts.follow(dict.fromkeys(Arm))
    one = KnobSettings(1_000.0, 100.0, 0.0)
    sides = ((0.5, Arm.CONTROL), (0.5, Arm.TREATMENT))
    hits = []
    for index, treated in enumerate((False, True, False)):
        if index == 2:
            ghosts.unite()
        parts = [Part({arm: one}, share, arm) for share, arm in sides] if index < 2 else [Part({Arm.CONTROL: one}, 1.0)]
        ghosts.open((10.0 * index, 10.0), 1.0, parts)
        asked = batch_of(np.array([1, 2], np.uint64), 10.0 * index + np.array([0.0, 1.0]))
        ghosts.feed(replace(asked, treatment=np.array([treated, False])))
        hits.append([done.rows[0, COLUMN["hits"]] for done in ghosts.close()[1]])
    assert hits == [[0.0, 0.0], [1.0, 1.0], [2.0]]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_keys_may_change_sides_at_any_time(seed: int) -> None:
    """Every request is a hit or a miss of its own arm, and what is held is never more than fits."""
    rng = np.random.default_rng(seed)
    world = World(problem(reads(seed, 20.0)))
    ghosts = GhostLanes(terms_of(world.problem))
    ghosts.follow(dict.fromkeys(Arm))
    for index, batch in enumerate(batches(world)):
        share = rng.choice([0.0, 0.3, 0.8])
        one = GHOSTS[rng.integers(len(GHOSTS))]
        batch = replace(batch, treatment=places(mixed(batch.id, index // 3)) < share)
        shares = {Arm.CONTROL: 1.0 - share, Arm.TREATMENT: share}
        parts = [Part({arm: one}, part, arm) for arm, part in shares.items() if part > 0.0]
        ghosts.open((world.timeline.begin(index), INTERVAL_SECONDS), 1.0, parts)
        for piece in np.array_split(np.arange(len(batch)), 2):
            ghosts.feed(batch.of(piece))
        if rng.random() < 0.3:
            ghosts.clear()
        done = ghosts.close()[1]
        if rng.random() < 0.2:
            ghosts.unite()
        for part, rows in zip(parts, done, strict=True):
            asked = (batch.treatment == (part.arm is Arm.TREATMENT)).sum()
            assert rows.rows[0, COLUMN["requests"]] == asked
            assert 0 <= rows.rows[0, COLUMN["used_bytes"]] <= one.cache_size * part.share


def batch_of(ids: Array, times: Array) -> Batch:
    """Answers of 100 bytes."""
    ones = np.ones(len(ids), np.int32)
    own = np.full(len(ids), np.nan, np.float32)
    return Batch(ids, times, 100 * ones, own, 50 * ones, 5 * ones, np.zeros(len(ids), np.bool_))
