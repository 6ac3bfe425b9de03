"""The clairvoyant bound: against every plan of tiny worlds, against policies, and against its own replay."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.baselines.simple import HillClimber, Random, Static
from agents.clairvoyant import Clairvoyant, Search, Sweep, Way, clairvoyant
from agents.plans import PROMPT_WORK, PlanLanes, work_before
from agents.rollout import roll_out
from agents.study import Split, Study, open_study
from caches.errors import InputError
from caches.knobs import KnobSettings
from envs.control import LaneControl
from envs.ghosts import ghost_grid
from envs.interval import STATS, column, total_usd
from envs.prefix import PrefixConfig
from envs.world import World
from tests.agents import alternating
from tests.envs.test_prefix import BLOCK_BYTES, BLOCK_TOKENS, world_of
from tests.envs.worlds import KNOBS, SETTINGS, problem, random_trace
from traces.trace import Trace, TraceInfo

OTHERS = (KnobSettings(600.0, 40.0, 0.0), KnobSettings(6_000.0, 4.0, 1.0))
QUICK = Search(width=2, window=8, sweeps=(Sweep(4, 1.0, (1, None)), Sweep(2, 0.5, (1, 2))))


def study_of(seed: int, intervals: int, test: int, threads: int = 1) -> Study:
    """The last `test` intervals are for testing."""
    world = World(problem(random_trace(seed, intervals, plain=seed % 2 == 0)), threads)
    split = Split((intervals - test - 1) / intervals, 1 / intervals)
    return open_study(world, split, SETTINGS, horizon=1, starts=1)


def find(study: Study, ways: list[Way] | None = None, search: Search = QUICK) -> Clairvoyant:
    return clairvoyant(study, ways or [], ghost_grid(study.world), search)


def best_static(study: Study) -> float:
    return float(study.reference.usd[study.test.start :].sum())


def cost_of_every_plan(study: Study, targets: list[np.ndarray]) -> np.ndarray:
    """Each sequence of targets, as a policy would go it: shape (targets ** intervals,)."""
    plans = list(itertools.product(range(len(targets)), repeat=len(study.test)))
    control = LaneControl(study.reference, study.scale, len(plans), len(study.test))
    for lane in range(len(plans)):
        control.reset(lane, study.reference.checkpoint(study.test.start))
    home, usd = KNOBS.positions(SETTINGS), np.zeros(len(plans))
    for step in range(len(study.test)):
        control.step(np.array([targets[plan[step]] - home for plan in plans]))
        usd += total_usd(control.rows)
    return usd


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 1_000))
def test_a_beam_wide_enough_finds_the_cheapest_of_all_plans(seed: int) -> None:
    """Three settings to go to in each of five intervals: 243 plans. One sweep, because a second one would begin with
    the best of them and find more to do."""
    study = study_of(seed, intervals=14, test=5)
    every = cost_of_every_plan(study, [KNOBS.positions(one) for one in (SETTINGS, *OTHERS)])
    search = Search(width=243, window=5, ghosts=2, policies=0, work=1, sweeps=(Sweep(1, 0.0, (1,)),))
    found = clairvoyant(study, [], ghost_grid(study.world, OTHERS), search)
    assert found.way.usd == pytest.approx(every.min(), rel=1e-9)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1_000))
def test_the_bound_is_no_dearer_than_any_policy(seed: int) -> None:
    study = study_of(seed, intervals=30, test=12)
    policies = [Static("default", KNOBS.default(), SETTINGS, KNOBS), Random(), HillClimber()]
    rolled = roll_out(study.reference, study.scale, policies, study.test, seed)
    ways = [Way(*pair) for pair in zip(rolled.settings, rolled.rows, strict=True)]
    found = find(study, ways)
    assert found.way.usd <= min(best_static(study), *(way.usd for way in ways))
    assert found.half_usd <= best_static(study)
    assert found.way.usd == min(found.full_usd, found.half_usd)
    assert found.resolution == pytest.approx(abs(found.half_usd - found.full_usd) / found.way.usd)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1_000))
def test_replaying_its_settings_gives_its_rows_within_the_limits(seed: int) -> None:
    study = study_of(seed, intervals=30, test=12)
    way = find(study).way
    world, lanes = study.world, study.world.lanes(1)
    study.reference.checkpoint(study.test.start).copy_to(lanes, 0)
    rows = np.empty((len(study.test), STATS))
    for step, index in enumerate(study.test):
        world.play.run_interval(world.scene, lanes, 0, index, way.settings[step], rows[step])
    np.testing.assert_array_equal(rows, way.rows)
    positions = np.array([KNOBS.positions(one) for one in (SETTINGS, *map(KnobSettings.from_array, way.settings))])
    assert (np.abs(np.diff(positions, axis=0)) <= KNOBS.max_steps + 1e-9).all()
    lows, highs = np.array([(knob.low, knob.high) for knob in KNOBS.knobs]).T
    assert ((way.settings >= lows) & (way.settings <= highs)).all()


@pytest.fixture(scope="module")
def alternation() -> Study:
    """Nothing is carried from one interval to the next there, and knobs may jump. Each day is four dear intervals, then
    four cheap ones; the last two of ten days are for testing."""
    world = World(alternating.problem_of(days=10))
    return open_study(world, Split(0.6, 0.2), KnobSettings(10_000.0, 1_800.0, 0.0), horizon=1, starts=1)


def test_it_finds_the_optimum_where_that_is_known(alternation: Study) -> None:
    optimum = alternating.optimum_usd(alternation.world)[alternation.test.start :].sum()
    sweeps = (Sweep(1, 0.2, (1, 4)), Sweep(1, 0.05, (1,)), Sweep(1, 0.02, (1,)), Sweep(1, 0.01, (1,)))
    found = find(alternation, search=Search(window=16, sweeps=sweeps))
    assert optimum <= found.way.usd + 1e-9
    assert found.way.usd == pytest.approx(optimum, rel=0.01)
    assert best_static(alternation) > 1.1 * optimum


def test_policies_ways_are_joined_where_that_pays(alternation: Study) -> None:
    """Alone this search can only stay. Of three settings it takes the cheapest in each half of a day."""
    start, knobs = alternation.test.start, alternation.world.problem.knobs
    home = alternation.reference.settings
    generous, frugal = KnobSettings(40_000.0, 10_800.0, 0.0), KnobSettings(1_000.0, 180.0, 0.0)
    policies = [Static(name, one, home, knobs) for name, one in (("generous", generous), ("frugal", frugal))]
    rolled = roll_out(alternation.reference, alternation.scale, policies, alternation.test)
    ways = [Way(*pair) for pair in zip(rolled.settings, rolled.rows, strict=True)]
    grid, search = ghost_grid(alternation.world, [home]), Search(window=16, sweeps=(Sweep(4, 0.0, (1,)),))
    found = clairvoyant(alternation, ways, grid, search)
    usd = total_usd(alternation.world.replay_static([home, generous, frugal], len(alternation.world)))[:, start:]
    halves = usd.reshape(3, -1, 4).sum(axis=2)
    assert found.way.usd == pytest.approx(halves.min(axis=0).sum())
    assert len(set(halves.argmin(axis=0))) > 1
    assert found.half_usd == pytest.approx(best_static(alternation))


def test_threads_change_nothing() -> None:
    one, two = (find(study_of(1, 30, 12, threads)) for threads in (1, 2))
    np.testing.assert_array_equal(one.way.settings, two.way.settings)
    np.testing.assert_array_equal(one.way.rows, two.way.rows)


def test_the_search_ends_when_a_round_gains_nothing() -> None:
    study, seen = study_of(1, 30, 12), []
    found = clairvoyant(study, [], ghost_grid(study.world), QUICK, seen.append)
    again = find(study, [found.way])
    assert found.settled
    assert found.sweeps >= 4  # two sweeps a round, and the last gained nothing
    assert again.way.usd > (1.0 - 2e-4) * found.way.usd
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_sweeps_that_do_not_fit_into_the_work_are_left_out() -> None:
    study = study_of(1, 30, 12)
    found = find(study, search=Search(work=1, sweeps=QUICK.sweeps))
    assert (found.sweeps, found.settled) == (1, False)


def test_states_stay_while_plans_are_tried() -> None:
    study = study_of(2, 30, 12)
    first = study.test.start
    lanes = PlanLanes(study.world, states=2, trials=3, warmup_room=30 * 8)
    lanes.put(study.reference.checkpoint(first))
    still = np.tile(SETTINGS.as_array(), (5, 4, 1))
    other = np.tile(OTHERS[0].as_array(), (5, 4, 1))
    usd = lanes.try_out([0] * 5, first, still)
    lanes.try_out([0] * 5, first, other)
    np.testing.assert_array_equal(usd, lanes.try_out([0] * 5, first, still))
    np.testing.assert_array_equal(usd[0], study.reference.usd[first : first + 4])
    rows = lanes.advance([0, 0], first, np.concatenate((still[:1], other[:1])))
    np.testing.assert_array_equal(rows[0], study.reference.rows[first : first + 4])
    on = lanes.try_out([0], first + 4, still[:1])
    np.testing.assert_array_equal(on[0], study.reference.usd[first + 4 : first + 8])


def test_work_is_requests() -> None:
    study = study_of(0, 30, 12)
    np.testing.assert_array_equal(np.diff(work_before(study.world)), column(study.reference.rows, "requests"))


def test_a_search_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="width: got 0, expected at least 1"):
        Search(width=0)
    with pytest.raises(InputError, match="sweeps: got none"):
        Search(sweeps=())


def prompts(seed: int, requests: int = 120, seconds: float = 121.0) -> Trace:
    """Turns of a dozen sessions, each turn one block longer than the last."""
    rng = np.random.default_rng(seed)
    turns = np.zeros(12, int)
    chains = []
    for session in rng.integers(0, 12, requests):
        turns[session] += 1
        chains.append([1_000 * session + block for block in range(turns[session])])
    lengths = np.array([len(chain) for chain in chains])
    return Trace(
        TraceInfo("prompts", f"seed {seed}", block_size_tokens=BLOCK_TOKENS),
        np.append(np.sort(rng.uniform(0.0, seconds, requests - 1)), seconds),
        np.arange(requests, dtype=np.int32),
        np.ones(requests, np.int32),
        requests,
        prompt_tokens=(BLOCK_TOKENS * lengths).astype(np.int32),
        output_tokens=np.full(requests, 10, np.int32),
        block_offsets=np.cumsum([0, *lengths]).astype(np.int64),
        block_hashes=np.concatenate(chains).astype(np.int64),
    )


def test_prefix_caches_have_a_bound_too() -> None:
    world = world_of(prompts(0), PrefixConfig(below_gib=0.001))
    knobs = world.problem.knobs
    study = open_study(world, Split(0.4, 0.1), knobs.default(), horizon=1, starts=1)
    policies = [Static("large", KnobSettings(60.0 * BLOCK_BYTES, 1_000.0, 1.0), knobs.default(), knobs)]
    rolled = roll_out(study.reference, study.scale, policies, study.test)
    way = find(study, [Way(rolled.settings[0], rolled.rows[0])]).way
    assert way.usd < min(best_static(study), float(rolled.usd.sum()))
    lanes = PlanLanes(world, 1, 1, 0)
    lanes.put(study.reference.checkpoint(study.test.start))
    np.testing.assert_array_equal(lanes.advance([0], study.test.start, way.settings[None])[0], way.rows)
    blocks = np.diff(world.scene.chains.offsets)
    edges = world.timeline.edges
    assert work_before(world)[-1] == PROMPT_WORK * edges[-1] + blocks[: edges[-1]].sum()
