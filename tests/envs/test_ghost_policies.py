"""Ghosts under any eviction and admission policy against the same requests in a trace, whatever is cleared,
forgotten or handed over in between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import caches.policies.state
from caches.in_process import InProcessCache
from caches.knobs import KnobSettings
from caches.policies.catalog import EVICTIONS
from caches.policies.live.cache import live_cache
from caches.policies.pair import CachePolicy, in_miniature
from caches.policies.rules import rules_of
from caches.policies.settings import TinyLfu
from caches.policies.sketch import count, frequency
from caches.policies.state import BLOCKS, SEQUENCE, empty_states, state_at
from caches.shadow.sampling import mixed
from caches.stats import Expiry
from caches.target import Arm
from envs import ghost_lanes, ghost_policy_kernels, ghost_state, journal, world
from envs.ghost_lanes import GhostLanes, Part
from envs.ghost_state import GhostState
from envs.interval import COLUMN, STATS, column
from envs.journal import places
from envs.lanes import Scene
from envs.world import World, entry_bytes
from tests.envs.ghost_audit import audit
from tests.envs.test_ghost_lanes import GHOSTS, INTERVALS, batch_of, batches, by_appearance, reads, run, terms_of
from tests.envs.worlds import INTERVAL_SECONDS, problem, random_trace

Array = np.ndarray[Any, Any]

EXACT = [CachePolicy(name) for name in ("lru-2", "lru-3", "lfu", "lfu-lru", "gdsf", "s3-fifo", "sieve")]
EXACT += [CachePolicy(name, "second-hit") for name in ("lru", "lru-2", "s3-fifo")]
SKETCHED = [
    CachePolicy("w-tinylfu"),
    CachePolicy("lru", "tinylfu"),
    CachePolicy("gdsf", "cost-aware"),
    CachePolicy("w-tinylfu", "second-hit"),
]
REMEMBERED = 6  # keys of the second hit, so that some are forgotten here
WITHOUT_WARMUP = [replace(one, warmup_ratio=0.0) for one in GHOSTS]


def world_of(policy: CachePolicy, seed: int, rate: float = 20.0, own_ttl: bool = False, **changes: Any) -> World:
    made = World(problem(reads(seed, rate, own_ttl), policy=policy, **changes))
    made.rules = made.rules._replace(remembered=REMEMBERED)
    return made


def ghosts_of(made: World) -> GhostLanes:
    ghosts = GhostLanes(terms_of(made.problem))
    ghosts._state = GhostState(ghosts.terms.backend.slots, [made.rules])
    return ghosts


def replayed(
    made: World, chosen: list[KnobSettings], every: int = 1, pieces: int = 3, forget_after: float = np.inf
) -> tuple[GhostLanes, Array]:
    """All over the trace, cleared in every so many intervals, and looked through each time."""
    ghosts = ghosts_of(made)
    ghosts.follow(dict.fromkeys(chosen))

    def clear(index: int) -> None:
        if index % every == 0:
            ghosts.clear(made.timeline.begin(index) - forget_after)
            audit(ghosts)

    return ghosts, run(made, ghosts, [Part({one: one for one in chosen}, 1.0)], pieces, clear)[1]


@settings(deadline=None, max_examples=60)
@given(
    policy=st.sampled_from(EXACT),
    seed=st.integers(0, 2**32 - 1),
    expiry=st.sampled_from(list(Expiry)),
    own_ttl=st.booleans(),
    rate=st.sampled_from([0.7, 6.0, 20.0]),
    every=st.sampled_from([1, 3, INTERVALS + 1]),
    pieces=st.sampled_from([1, 4]),
)
def test_every_statistic_is_that_of_the_trace(
    policy: CachePolicy, seed: int, expiry: Expiry, own_ttl: bool, rate: float, every: int, pieces: int
) -> None:
    made = world_of(policy, seed, rate, own_ttl, expiry=expiry, entry_overhead_bytes=30)
    _, rows = replayed(made, GHOSTS, every, pieces)
    np.testing.assert_array_equal(rows, made.replay_static(GHOSTS, len(made)))


@pytest.mark.parametrize("policy", SKETCHED, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_a_sketch_says_the_same_of_the_same_numbers_of_keys(
    policy: CachePolicy, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where keys have the numbers that they have in the trace: there, those of the most popular are lowest."""
    monkeypatch.setattr(world, "by_popularity", lambda key, _num_keys: key)
    made = world_of(policy, seed)
    _, rows = replayed(made, GHOSTS)
    np.testing.assert_array_equal(rows, made.replay_static(GHOSTS, len(made)))


@pytest.mark.parametrize("policy", EXACT, ids=str)
def test_parts_that_are_told_at_the_end_come_to_the_same(policy: CachePolicy) -> None:
    """Cleared between the pieces of an interval that no lane has seen yet."""
    made = world_of(policy, 1)
    ghosts, rows = ghosts_of(made), []
    ghosts.follow(dict.fromkeys(GHOSTS))
    for index, batch in enumerate(batches(made)):
        ghosts.open((made.timeline.begin(index), INTERVAL_SECONDS), 1.0, [])
        for piece in np.array_split(np.arange(len(batch)), 3):
            ghosts.feed(batch.of(piece))
            ghosts.clear()
        rows.append(ghosts.close([Part({one: one for one in GHOSTS}, 1.0)])[1][0].rows)
    np.testing.assert_array_equal(np.stack(rows, axis=1), made.replay_static(GHOSTS, len(made)))


def many_keys(seed: int, within: int = 40) -> Any:
    """Half of the requests are for a dozen keys that come again and again, the others for keys that come a few times
    within so many requests, of which an interval has sixty."""
    rng = np.random.default_rng(seed)
    trace = random_trace(seed, INTERVALS, 60.0)
    number = len(trace)
    new = 12 + np.maximum(np.arange(number) - rng.integers(0, within, number), 0) // 2
    key = np.where(rng.random(number) < 0.5, rng.integers(0, 12, number), new).astype(np.int32)
    size = rng.integers(10, 400, int(key.max()) + 1).astype(np.int32)
    return by_appearance(replace(trace, key=key, size_bytes=size[key], num_keys=int(key.max()) + 1))


@pytest.mark.parametrize(
    ("policy", "within", "forget_after"),
    [*((one, 250, 0.0) for one in EXACT), *((one, 40, 40.0) for one in SKETCHED)],
    ids=str,
)
def test_keys_may_be_forgotten_and_numbered_anew(
    policy: CachePolicy, within: int, forget_after: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of which a sketch counted requests do not come again once they are forgotten, and it is so large here that
    each has a counter of its own. Warm-ups are left out: they rank keys by all of their past."""
    monkeypatch.setattr(caches.policies.state, "FIRST_BLOCKS", 1 << 12)
    made = World(problem(many_keys(3, within), policy=policy))
    made.rules = made.rules._replace(remembered=REMEMBERED)
    ghosts, rows = replayed(made, WITHOUT_WARMUP, forget_after=forget_after)
    np.testing.assert_array_equal(rows, made.replay_static(WITHOUT_WARMUP, len(made)))
    assert ghosts.journal.keys < 0.85 * made.problem.trace.num_keys
    assert np.nansum(column(rows, "evictions")) > 50


@pytest.mark.parametrize("policy", EXACT + SKETCHED, ids=str)
def test_little_room_to_begin_with_changes_nothing(policy: CachePolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (ghost_lanes, "ROWS", 40),
        (ghost_lanes, "LISTED", 10),
        (ghost_state, "KEYS", 1),
        (ghost_state, "WARMUPS", 1),
        (journal, "ROWS", 3),
        (journal, "KEYS", 2),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(world, "by_popularity", lambda key, _num_keys: key)
    made = world_of(policy, 6)
    ghosts, rows = replayed(made, GHOSTS, every=5)
    np.testing.assert_array_equal(rows, made.replay_static(GHOSTS, len(made)))
    assert ghosts.journal.rows < len(made.problem.trace)


@pytest.mark.parametrize("policy", EXACT[:5], ids=str)
def test_numbers_of_uses_do_not_run_out(policy: CachePolicy) -> None:
    """Lanes that have counted nearly as many as int32 holds."""
    made = world_of(policy, 4)
    ghosts = ghosts_of(made)
    ghosts.follow(dict.fromkeys(GHOSTS))
    used = 2**31 - 60
    ghosts._state.lanes.tally[:, SEQUENCE] = used
    assert used > ghost_policy_kernels.MOST_USES
    rows = run(
        made, ghosts, [Part({one: one for one in GHOSTS}, 1.0)], 3, lambda _index: (ghosts.clear(), audit(ghosts))[0]
    )[1]
    np.testing.assert_array_equal(rows, made.replay_static(GHOSTS, len(made)))
    assert (ghosts._state.lanes.tally[:, SEQUENCE] <= 2 * len(made.problem.trace)).all()
    ghosts._state.lanes.tally[:, SEQUENCE] = used  # what is held now is never used again until then
    ghosts.clear()
    audit(ghosts)
    assert ghosts._state.lanes.tally[:, SEQUENCE].max() == ghost_policy_kernels.MOST_USES


@pytest.mark.parametrize("policy", [*EXACT, *SKETCHED], ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_queues_stay_whole_whatever_happens(policy: CachePolicy, seed: int) -> None:
    """Arms that exchange keys, unite, begin as each other's copy, lose half of the keys and forget some."""
    rng, one = np.random.default_rng(seed), KnobSettings(3_000.0, 25.0, 0.5)
    made = World(problem(many_keys(seed), policy=policy))
    made.rules = made.rules._replace(remembered=30)
    ghosts, rate = ghosts_of(made), 1.0
    ghosts.follow(dict.fromkeys(Arm))
    for index, batch in enumerate(batches(made)):
        share = rng.choice([0.0, 0.3, 0.8])
        batch = replace(batch, treatment=places(mixed(batch.id, index // 3)) < share).of(places(batch.id) < rate)
        shares = {Arm.CONTROL: 1.0 - share, Arm.TREATMENT: share}
        parts = [Part({arm: one}, rate * part, arm) for arm, part in shares.items() if part > 0.0]
        ghosts.open((made.timeline.begin(index), INTERVAL_SECONDS), rate, parts)
        for piece in np.array_split(np.arange(len(batch)), 2):
            ghosts.feed(batch.of(piece))
            audit(ghosts)
        if index in (5, 9):
            rate /= 2.0
            ghosts.thin(rate, 0.5)
        else:
            ghosts.clear(made.timeline.begin(index) - 20.0)
        audit(ghosts)
        ghosts.close()
        if rng.random() < 0.3:
            ghosts.unite()
        ghosts.follow({Arm.CONTROL: None, Arm.TREATMENT: Arm.CONTROL if index == 7 else None, index: Arm.CONTROL})
        audit(ghosts)


@pytest.mark.parametrize("policy", EXACT + SKETCHED, ids=str)
def test_taking_keys_out_leaves_the_others_as_they_are(policy: CachePolicy) -> None:
    """With room for everything, keys do not know of each other, and there are no names."""
    made = World(problem(reads(2, 20.0), policy=policy))
    one = KnobSettings(1e6, 1e9, 0.0)
    both: list[Array] = []
    for rate in (1.0, 0.5):
        ghosts, rows = ghosts_of(made), []
        ghosts.follow({one: None})
        for index, batch in enumerate(batches(made)):
            ghosts.open((made.timeline.begin(index), INTERVAL_SECONDS), 1.0, [Part({one: one}, 1.0)])
            ghosts.feed(batch.of(places(batch.id) < (rate if index < 5 else 0.5)))
            rows.append(ghosts.close()[1][0].rows[0])
            if rate == 1.0 and index == 4:
                ghosts.thin(0.5, 0.5)
                audit(ghosts)
        both.append(np.array(rows[5:]))
    for name in ("requests", "hits", "stale_answers", "used_bytes", "compute_usd"):
        np.testing.assert_allclose(column(both[0], name), column(both[1], name), rtol=1e-12, err_msg=name)


@settings(deadline=None, max_examples=40)
@given(policy=st.sampled_from(EXACT[:7]), seed=st.integers(0, 2**32 - 1))
def test_an_entry_that_changes_arms_is_taken_in_as_by_a_live_cache(policy: CachePolicy, seed: int) -> None:
    """Keys change sides while there is room for all; then the caches shrink, and evict as live ones do, which let go of
    each entry and took it in when it was touched last, before the requests of the interval."""
    made, rng = World(problem(reads(seed, 20.0), policy=policy)), np.random.default_rng(seed)
    scene, key = made.scene, made.problem.trace.key
    assert isinstance(scene, Scene)
    moving = rng.random(made.problem.trace.num_keys) < 0.5
    moving &= np.isin(np.arange(len(moving)), key[scene.edges[6] : scene.edges[9]])
    treatment = moving[key] & (np.arange(len(key)) >= scene.edges[6])
    size = entry_bytes(made.problem.trace, 0)
    live: dict[Arm, InProcessCache[int, int]] = {
        arm: live_cache(10_000, 1e9, eviction=EVICTIONS[policy.eviction]) for arm in Arm
    }
    ghosts, side, last = ghosts_of(made), np.zeros(len(moving), np.bool_), np.zeros(len(moving), np.int64)
    ghosts.follow(dict.fromkeys(Arm))
    for index, batch in enumerate(batches(made, treatment)):
        rows = range(scene.edges[index], scene.edges[index + 1])
        settings_then = KnobSettings(20_000.0 if index < 9 else 1_600.0, 1e9, 0.0)
        parts = [Part({arm: settings_then}, 0.5, arm) for arm in Arm]
        ghosts.open((made.timeline.begin(index), INTERVAL_SECONDS), 1.0, parts)
        ghosts.feed(batch)
        audit(ghosts)
        before = {arm: cache.stats() for arm, cache in live.items()}
        for cache in live.values():
            cache.apply(int(settings_then.cache_size / 2), 1e9, made.timeline.begin(index))
        change = {int(key[t]) for t in rows if treatment[t] and not side[key[t]]}
        for k in sorted(change, key=lambda k: last[k]):
            side[k] = True
            entry = live[Arm.CONTROL].pop(k)
            if entry is not None:
                live[Arm.TREATMENT].adopt(k, entry, entry.touched_seconds)
        for t in rows:
            k, now, last[key[t]] = int(key[t]), float(scene.requests.time[t]), t
            cache = live[Arm.TREATMENT if treatment[t] else Arm.CONTROL]
            if cache.get(k, now) is None:
                cache.put(k, 0, int(size[t]), now, cost=float(scene.gpu[t]))
        for arm, done in zip(Arm, ghosts.close()[1], strict=True):
            stats = live[arm].stats()
            for name in ("hits", "evictions"):
                assert done.rows[0, COLUMN[name]] == getattr(stats, name) - getattr(before[arm], name), (index, name)
            assert done.rows[0, COLUMN["used_bytes"]] == stats.used_bytes


@pytest.mark.parametrize("policy", [*EXACT[:5], CachePolicy("sieve")], ids=str)
def test_what_arms_bring_along_was_used_when_it_was_touched_last(policy: CachePolicy) -> None:
    """Key 1 is asked for at 0 and 9 s, key 2 at 5 s, both of the treatment arm. When the arms are united and one entry
    fits, key 2 goes."""
    ghosts = GhostLanes(terms_of(problem(policy=policy)))
    ghosts.follow(dict.fromkeys(Arm))
    asked = batch_of(np.array([1, 2, 1], np.uint64), np.array([0.0, 5.0, 9.0]))
    ghosts.open((0.0, 10.0), 1.0, [Part({Arm.TREATMENT: KnobSettings(1_000.0, 100.0, 0.0)}, 1.0, Arm.TREATMENT)])
    ghosts.feed(replace(asked, treatment=np.ones(3, np.bool_)))
    ghosts.close()
    ghosts.unite()
    ghosts.open((10.0, 10.0), 1.0, [Part({Arm.CONTROL: KnobSettings(100.0, 100.0, 0.0)}, 1.0)])
    ghosts.feed(batch_of(np.array([1], np.uint64), np.array([11.0])))
    (done,) = ghosts.close()[1]
    assert [done.rows[0, COLUMN[name]] for name in ("hits", "evictions")] == [1.0, 1.0]


def test_the_second_hit_remembers_a_share_of_the_keys() -> None:
    """In a part that sees half of them, half as many."""
    policy = CachePolicy("lru", "second-hit")
    made, whole = world_of(policy, 5), world_of(policy, 5)
    made.rules = in_miniature(made.rules, 0.5)
    one = KnobSettings(4_000.0, 1e9, 0.0)
    ghosts = ghosts_of(whole)
    ghosts.follow({one: None})
    doubled = replace(one, cache_size=2 * one.cache_size)
    _, rows = run(whole, ghosts, [Part({one: doubled}, 0.5)])
    expected, other = (each.replay_static([one], len(whole)) for each in (made, whole))
    assert made.rules.remembered == REMEMBERED / 2
    np.testing.assert_array_equal(column(rows, "hits"), column(expected, "hits"))
    assert (column(rows, "hits") != column(other, "hits")).any()


@pytest.mark.parametrize(
    "policy", [CachePolicy("s3-fifo"), CachePolicy("lru-2"), CachePolicy("lru", "second-hit")], ids=str
)
def test_memory_is_bounded_by_what_the_policy_remembers(policy: CachePolicy) -> None:
    """Three hundred intervals of new keys of 100 bytes. A hundred entries fit; names are of as many keys at most under
    S3-FIFO (nine tenths of the bytes) and LRU-K; the second hit remembers 60 keys here."""
    made = World(problem(policy=policy))
    made.rules = made.rules._replace(remembered=60)
    ghosts = ghosts_of(made)
    ghosts.follow({"one": None})
    most_rows = most_keys = 0
    for index in range(300):
        begins = 10.0 * index
        ids = mixed(np.arange(50 * index, 50 * index + 50, dtype=np.uint64), 1)
        ghosts.open((begins, 10.0), 1.0, [Part({"one": KnobSettings(10_000.0, 1e9, 0.0)}, 1.0)])
        ghosts.feed(batch_of(ids, begins + np.arange(50) / 5.0))
        ghosts.close()
        ghosts.clear(forget_seconds=begins - 50.0)
        most_rows, most_keys = max(most_rows, ghosts.journal.rows), max(most_keys, ghosts.journal.keys)
    assert 100 < most_keys <= 50 * 7 + 100 + 100
    assert most_rows <= 50 * 2 + 100 + 100


def test_numbering_keys_anew_makes_no_frequency_less() -> None:
    """Sixty keys in four blocks of a sketch, so that all share counters; every third goes. The most that a key was
    asked for is what any can be taken for."""
    rng = np.random.default_rng(1)
    rules = rules_of(EVICTIONS["lru"], TinyLfu(sample=1_000.0))
    states = empty_states(rules, 64, 1)
    for k in rng.zipf(1.5, 200) % 60:
        count(state_at(states, 0), k, 1_000.0)
    before = [frequency(state_at(states, 0), k) for k in range(60)]
    stays = np.arange(60) % 3 > 0
    key_to = np.where(stays, np.cumsum(stays) - 1, -1).astype(np.int32)
    ghost_policy_kernels._move_sketch(state_at(states, 0), 60, key_to)
    after = [frequency(state_at(states, 0), k) for k in range(40)]
    told = np.array(before)[stays]
    assert (np.array(after) >= told).all()
    assert max(after) == told.max()
    assert states.tally[0, BLOCKS] == 4


def test_the_scene_of_these_tests_has_everything_in_it() -> None:
    """Otherwise equality would say little."""
    for policy in EXACT + SKETCHED:
        made = world_of(policy, 3)
        rows = made.replay_static(GHOSTS, len(made))
        assert rows.shape[-1] == STATS
        for name in ("hits", "warmups", "expirations", "evictions"):
            assert np.nanmax(column(rows, name)) > 0, (policy, name)
