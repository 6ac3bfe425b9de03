from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.baselines.best_static import LOCAL_ROUNDS, fit_best_static
from agents.baselines.simple import KNOWN_SAVING, SAVING, HillClimber, Random, Static
from agents.policy import Sight
from envs.ghosts import GRID, ghost_grid
from envs.interval import COLUMN, STATS, column, total_usd, unsafe
from envs.observation import SIZE
from envs.reward import Constraints
from envs.world import World
from tests.envs.test_control import change_after
from tests.envs.worlds import INTERVAL_SECONDS, KNOBS, SETTINGS, problem, random_trace

TRAINING = range(2, 14)
FREE = Constraints(p99_ttft_seconds=1e6, stale_ratio=1.0)


@pytest.fixture(scope="module")
def world() -> World:
    return World(problem(random_trace(0, 20, 15.0), constraints=FREE))


def test_best_static_is_no_dearer_than_any_point_of_the_grid(world: World) -> None:
    axes = [np.linspace(0.0, 1.0, size) for size in GRID]
    everywhere = [KNOBS.settings(np.array(point)) for point in itertools.product(*axes)]
    usd = total_usd(world.replay_static(everywhere, TRAINING.stop)[:, TRAINING.start :]).sum(axis=1)
    fit = fit_best_static(world, TRAINING)
    assert fit.feasible
    assert fit.usd <= usd.min()
    again = world.replay_static([fit.settings], TRAINING.stop)[0, TRAINING.start :]
    assert fit.usd == pytest.approx(total_usd(again).sum())
    tried = {settings: cost for settings, cost, _ in fit.tried}
    assert [tried[settings] for settings in everywhere] == pytest.approx(usd.tolist())
    assert fit.usd == min(tried.values())


def test_best_static_takes_a_replayed_grid_for_its_own(world: World) -> None:
    assert fit_best_static(world, TRAINING, grid=ghost_grid(world)) == fit_best_static(world, TRAINING)


def test_best_static_goes_on_between_the_points_of_the_grid(world: World) -> None:
    """Around the best of all it has tried, neighbours at the last round's distance are no better."""
    fit = fit_best_static(world, TRAINING)
    here, spacing = KNOBS.positions(fit.settings), np.array([1 / (size - 1) for size in GRID]) / 2**LOCAL_ROUNDS
    around = [np.clip(here + spacing * np.array(s), 0, 1) for s in itertools.product((-1, 0, 1), repeat=3)]
    rows = world.replay_static([KNOBS.settings(p) for p in around], TRAINING.stop)[:, TRAINING.start :]
    assert total_usd(rows).sum(axis=1).min() >= fit.usd - 1e-12


def test_best_static_knows_the_answer_where_it_is_plain() -> None:
    """Where memory costs a fortune it is the smallest cache; where only misses cost, the largest that never forgets."""
    knobs = replace(KNOBS, ttl_seconds=replace(KNOBS.ttl_seconds, high=1e6))
    wanted = problem(random_trace(1, 20, 15.0), constraints=FREE, knobs=knobs)
    dear = wanted.prices.model_copy(update={"memory_usd_per_gib_hour": 1e9})
    assert fit_best_static(World(replace(wanted, prices=dear)), TRAINING).settings.cache_size == KNOBS.cache_size.low
    free = wanted.prices.model_copy(update={"memory_usd_per_gib_hour": 0.0, "stale_answer_usd": 0.0})
    world = World(replace(wanted, prices=free))
    largest = knobs.settings(np.array([1.0, 1.0, 0.0]))
    usd = total_usd(world.replay_static([largest], TRAINING.stop)[0, TRAINING.start :]).sum()
    assert fit_best_static(world, TRAINING).usd == pytest.approx(usd, rel=1e-12)


@settings(deadline=None, max_examples=5)
@given(st.integers(0, 2**32 - 1))
def test_best_static_looks_at_training_traffic_only(seed: int) -> None:
    trace = random_trace(3, 20, 15.0)
    changed = change_after(trace, TRAINING.stop * INTERVAL_SECONDS, seed)
    one, other = (fit_best_static(World(problem(t, constraints=FREE)), TRAINING) for t in (trace, changed))
    assert one == other


def test_a_constraint_comes_before_the_cost() -> None:
    """Cheap but late against dear but in time: a tight objective picks the second, an impossible one says so."""
    trace = random_trace(2, 20, 15.0)
    loose = fit_best_static(World(problem(trace, constraints=FREE)), TRAINING)
    rows = World(problem(trace)).replay_static([loose.settings], TRAINING.stop)[0, TRAINING.start :]
    budget = float(np.nanmax(column(rows, "stale_ratio"))) / 2
    tight = Constraints(p99_ttft_seconds=1e6, stale_ratio=budget, max_unsafe_per_1000=0.0)
    fit = fit_best_static(World(problem(trace, constraints=tight)), TRAINING)
    assert (fit.feasible, fit.unsafe_per_1000) == (True, 0.0)
    assert fit.usd >= loose.usd
    kept = [cost for _, cost, broken in fit.tried if broken == 0.0]
    assert fit.usd == min(kept)
    hopeless = Constraints(p99_ttft_seconds=1e-6, stale_ratio=1.0, max_unsafe_per_1000=0.0)
    fit = fit_best_static(World(problem(trace, constraints=hopeless)), TRAINING)
    assert not fit.feasible
    assert fit.unsafe_per_1000 == min(broken for _, _, broken in fit.tried)


def test_what_is_unsafe() -> None:
    rows = np.full((4, STATS), np.nan)
    rows[:, COLUMN["p99_ttft_seconds"]] = [1.0, 1.1, 0.5, np.nan]
    rows[:, COLUMN["stale_ratio"]] = [0.1, 0.0, 0.2, np.nan]
    limits = Constraints(p99_ttft_seconds=1.0, stale_ratio=0.1)
    assert unsafe(rows, limits).tolist() == [False, True, True, False]  # at the limit is kept; no data broke none


def test_progress_never_goes_back(world: World) -> None:
    calls: list[tuple[int, int]] = []
    fit_best_static(world, TRAINING, lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert all(done <= total for done, total in calls)


def seen(saving: float | None) -> Sight:
    observation = np.zeros(SIZE, np.float32)
    if saving is not None:
        observation[SAVING], observation[KNOWN_SAVING] = saving, 1.0
    return Sight(observation, 0, 0.0, np.full(STATS, np.nan), np.zeros(3))


def test_static_wishes_for_its_setting_whatever_it_sees() -> None:
    policy = Static("default", KNOBS.default(), SETTINGS, KNOBS)
    policy.reset(0)
    for saving in (None, 1.0, -1.0):
        wish = KNOBS.positions(SETTINGS) + policy.act(seen(saving))
        np.testing.assert_allclose(wish, KNOBS.positions(KNOBS.default()), atol=1e-12)
    assert Static("best", SETTINGS, SETTINGS, KNOBS).act(seen(None)).tolist() == [0.0, 0.0, 0.0]


def test_random_is_uniform_and_as_its_seed_says() -> None:
    policy = Random()
    policy.reset(5)
    first = np.array([policy.act(seen(None)) for _ in range(4_000)])
    policy.reset(5)
    np.testing.assert_array_equal(first[:10], [policy.act(seen(None)) for _ in range(10)])
    assert (np.abs(first) <= 1).all()
    np.testing.assert_allclose(
        np.quantile(first, [0.25, 0.5, 0.75], axis=0), [[-0.5] * 3, [0.0] * 3, [0.5] * 3], atol=0.06
    )


def climb(policy: HillClimber, saving: float, times: int) -> np.ndarray:
    for _ in range(times):
        action = policy.act(seen(saving))
    return action


def test_the_hill_climber_by_hand() -> None:
    policy = HillClimber(step=0.1, patience=2)
    assert climb(policy, 0.0, 1).tolist() == [0.0, 0.0, 0.0]
    assert climb(policy, 0.0, 1).tolist() == [0.1, 0.0, 0.0]  # the first mean, 0, is no fall: a step up
    assert climb(policy, 1.0, 2).tolist() == pytest.approx([0.2, 0.0, 0.0])  # it rose: on
    # it fell: the bad step is taken back and one made the other way, and the next knob has its turn
    assert climb(policy, 0.5, 2).tolist() == pytest.approx([0.0, 0.1, 0.0])
    assert climb(policy, 0.6, 2).tolist() == pytest.approx([0.0, 0.2, 0.0])


def test_the_hill_climber_waits_while_nothing_is_known_and_forgets_on_reset() -> None:
    policy = HillClimber(step=0.1, patience=2)
    for _ in range(10):
        assert policy.act(seen(None)).tolist() == [0.0, 0.0, 0.0]
    climb(policy, 1.0, 9)
    policy.reset(0)
    assert policy.act(seen(None)).tolist() == [0.0, 0.0, 0.0]
    assert climb(policy, 0.0, 2).tolist() == [0.1, 0.0, 0.0]


def test_the_hill_climber_stays_within_actions() -> None:
    policy, rng = HillClimber(step=0.3, patience=1), np.random.default_rng(0)
    for _ in range(500):
        assert (np.abs(policy.act(seen(float(rng.normal())))) <= 1).all()


def test_the_hill_climber_finds_the_top_of_a_hill() -> None:
    """A smooth hill at (0.3, -0.2, 0.1) without limits or noise: it ends up within two steps of it."""
    policy, top, action = HillClimber(step=0.05, patience=1), np.array([0.3, -0.2, 0.1]), np.zeros(3)
    for _ in range(300):
        action = policy.act(seen(float(1 - ((action - top) ** 2).sum())))
    assert (np.abs(action - top) <= 0.1 + 1e-9).all()
