from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.baselines.whatif_fit import controller_for, fit_whatif
from agents.policy import Ghosts, Sight
from agents.rollout import Rollout, roll_out
from agents.study import Split, Study, open_study
from agents.whatif import WhatIf, WhatIfController, intervals_there, weighted_mean
from caches.errors import InputError
from envs.ghosts import GhostGrid, ghost_grid, joined
from envs.reward import Constraints
from envs.world import World
from tests.agents.alternating import problem_of
from tests.agents.sights import sight_of
from tests.envs.worlds import KNOBS, SETTINGS, problem, random_trace

HOME, FAR, NEAR = (0.5, 0.5, 0.5), (0.5, 0.25, 0.5), (0.75, 0.5, 0.5)
STEPS = np.array([0.25, 0.25, 0.25])
PLAIN = WhatIf(memory=0.5, margin=0.1, charge=0.0, horizon=4, unsafe_memory=0.5)


def controller(options: WhatIf = PLAIN, allowed: float = 0.0) -> WhatIfController:
    return WhatIfController(np.array(HOME), STEPS, allowed, options)


def seen(
    usd: list[list[float]], unsafe: list[list[int]] | None = None, here: tuple[float, float, float] = HOME
) -> Sight:
    """One list of costs for each of the ghosts at HOME, FAR and NEAR."""
    broken = np.zeros(np.shape(usd), bool) if unsafe is None else np.array(unsafe, bool)
    ghosts = Ghosts(np.array([HOME, FAR, NEAR])[: len(usd)], np.array(usd), broken)
    return sight_of(here, interval=len(usd[0]), ghosts=ghosts)


def test_weights_by_hand() -> None:
    """Newest 1, before 1/2, before 1/4: (8/4 + 4/2 + 2) / (7/4) = 24/7."""
    assert weighted_mean(np.array([[8.0, 4.0, 2.0], [1.0, 1.0, 1.0]]), 0.5) == pytest.approx([24 / 7, 1.0])
    assert weighted_mean(np.array([[8.0, 4.0, 2.0]]), 0.0).tolist() == [2.0]
    assert weighted_mean(np.array([[True, False, False]]), 0.5) == pytest.approx([1 / 7])


def test_what_is_forgotten_weighs_less_than_a_millionth() -> None:
    values = np.random.default_rng(0).uniform(1.0, 2.0, (3, 500))
    weight = 0.9 ** np.arange(499, -1, -1.0)
    np.testing.assert_allclose(weighted_mean(values, 0.9), values @ weight / weight.sum(), rtol=2e-6)


def test_what_a_way_of_many_steps_leaves_by_hand() -> None:
    """Of 12 intervals: one step leaves all; three bring 1/3, 2/3 and then 1, so 11; 24 steps 1/24 + ... + 12/24."""
    assert intervals_there(np.array([0, 1, 3, 12, 24]), 12).tolist() == [12.0, 12.0, 11.0, 6.5, 3.25]


@given(st.integers(1, 60), st.integers(1, 60))
def test_what_a_way_of_many_steps_leaves(steps: int, horizon: int) -> None:
    expected = sum(min(k / steps, 1.0) for k in range(1, horizon + 1))
    assert intervals_there(np.array([steps]), horizon)[0] == pytest.approx(expected)


def test_before_anything_happened_it_stays_home() -> None:
    assert controller().propose(seen([[], [], []])).tolist() == list(HOME)


def test_it_goes_where_it_was_cheapest() -> None:
    policy = controller()
    assert policy.act(seen([[1.0], [0.5], [0.25]])).tolist() == [0.25, 0.0, 0.0]
    policy.reset(0)
    assert policy.propose(seen([[1.0], [0.25], [0.5]])).tolist() == list(FAR)


def test_it_moves_exactly_when_the_margin_is_exceeded() -> None:
    """One step away, so the whole horizon counts: the saving is a quarter of the cost of staying."""
    usd = [[1.0], [0.75], [1.0]]
    assert controller(replace(PLAIN, margin=0.25)).propose(seen(usd)).tolist() == list(HOME)
    assert controller(replace(PLAIN, margin=0.2499)).propose(seen(usd)).tolist() == list(FAR)
    assert controller(replace(PLAIN, margin=math.inf)).propose(seen([[1.0], [0.0], [1.0]])).tolist() == list(HOME)


def test_a_move_has_to_earn_its_charge_and_its_way() -> None:
    """To NEAR, a quarter up in size: charge 2 costs half an interval, of 4. Saving 0.25 a step away: 0.25 - 0.125. Two
    steps away (from the other side of home) the charge is for half the range, and 3.5 of 4 intervals are left: (0.25 x
    3.5 - 1) / 4 is below zero."""
    usd = [[1.0], [1.0], [0.75]]
    charged = replace(PLAIN, charge=2.0)
    assert controller(replace(charged, margin=0.125)).propose(seen(usd)).tolist() == list(HOME)
    assert controller(replace(charged, margin=0.1249)).propose(seen(usd)).tolist() == list(NEAR)
    low = (0.25, 0.5, 0.5)
    assert controller(replace(charged, margin=0.0)).propose(seen(usd, here=low)).tolist() == list(HOME)
    slow = replace(PLAIN, margin=0.25 * 3.5 / 4)
    assert controller(slow).propose(seen(usd, here=low)).tolist() == list(HOME)
    assert controller(replace(slow, margin=0.2187)).propose(seen(usd, here=low)).tolist() == list(NEAR)
    shrinking = [[1.0], [0.75], [1.0]]  # lower costs no charge: nothing has yet to fill
    assert controller(replace(charged, margin=0.2)).propose(seen(shrinking)).tolist() == list(FAR)


def test_hysteresis() -> None:
    """At FAR it stays while home is less than a tenth cheaper, and goes when it is more."""
    policy = controller(replace(PLAIN, memory=0.0))
    history: list[list[float]] = [[1.0], [0.8], [9.0]]
    assert policy.propose(seen(history)).tolist() == list(FAR)
    for home, wanted in ((0.95, FAR), (0.92, FAR), (0.89, HOME), (0.95, HOME), (1.05, HOME), (1.2, FAR)):
        history = [[*history[0], home], [*history[1], 1.0], [*history[2], 9.0]]
        assert policy.propose(seen(history, here=FAR)).tolist() == list(wanted), home
    policy.reset(0)
    assert policy.propose(seen([[1.0], [1.0], [1.0]])).tolist() == list(HOME)


def test_asked_again_in_an_interval_it_says_the_same() -> None:
    policy = controller(replace(PLAIN, margin=0.0))
    first = policy.propose(seen([[1.0], [0.5], [1.0]]))
    assert policy.propose(seen([[0.1], [0.5], [1.0]])).tolist() == first.tolist()
    first[:] = 0.0  # what it gives away is a copy
    assert policy.act(seen([[1.0], [0.5], [1.0]])).tolist() == [0.0, -0.25, 0.0]


def test_what_breaks_constraints_is_out_however_cheap() -> None:
    """One in two intervals broke one: with memory 1/2 a share of 1/3, as it was the first."""
    usd = [[1.0, 1.0], [0.1, 0.1], [0.5, 0.5]]
    unsafe = [[0, 0], [1, 0], [0, 0]]
    assert controller(allowed=0.3).propose(seen(usd, unsafe)).tolist() == list(NEAR)
    assert controller(allowed=0.34).propose(seen(usd, unsafe)).tolist() == list(FAR)


def test_from_an_unsafe_place_it_goes_without_a_saving() -> None:
    usd, unsafe = [[0.1], [1.0], [0.5]], [[1], [0], [0]]
    assert controller(replace(PLAIN, margin=math.inf)).propose(seen(usd, unsafe)).tolist() == list(NEAR)


def test_where_all_break_constraints_it_takes_the_one_that_does_least() -> None:
    usd = [[1.0, 1.0], [2.0, 2.0], [0.1, 0.1]]
    assert controller().propose(seen(usd, [[1, 1], [1, 0], [0, 1]])).tolist() == list(FAR)  # shares 1, 1/3, 2/3


def test_it_goes_only_part_of_the_way_when_told() -> None:
    """Half the way to FAR, for half of its saving, which is a quarter."""
    half = replace(PLAIN, reach=0.5, margin=0.124)
    assert controller(half).propose(seen([[1.0], [0.75], [1.0]])).tolist() == [0.5, 0.375, 0.5]
    assert controller(replace(half, margin=0.125)).propose(seen([[1.0], [0.75], [1.0]])).tolist() == list(HOME)


def test_it_needs_ghosts() -> None:
    with pytest.raises(InputError, match="got no ghosts, expected a grid"):
        controller().act(sight_of())


@pytest.mark.parametrize(
    ("field", "value"),
    [("memory", 1.0), ("unsafe_memory", -0.1), ("margin", -1.0), ("charge", math.nan), ("reach", 0.0), ("horizon", 0)],
)
def test_options_are_checked(field: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{field}: got {value}, expected"):
        WhatIf(**{field: value})


@pytest.fixture(scope="module")
def small() -> Study:
    world = World(problem(random_trace(4, 40, 15.0)))
    return open_study(world, Split(0.5, 0.25), SETTINGS, horizon=5, starts=2, grid=ghost_grid(world))


def ran(study: Study, grid: GhostGrid) -> Rollout:
    lively = [WhatIf(memory=0.5, margin=0.0, charge=0.0), WhatIf(memory=0.8, margin=0.01, reach=0.5)]
    policies = [controller_for(study, options) for options in lively]
    return roll_out(study.reference, study.scale, policies, study.validation, grid=grid)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_what_is_to_come_changes_nothing(small: Study, after: int, seed: int) -> None:
    assert small.grid is not None
    first = small.validation.start + after
    rows = small.grid.rows.copy()
    rows[:, first:] *= np.random.default_rng(seed).uniform(0.0, 5.0, rows[:, first:].shape)
    before, changed = ran(small, small.grid), ran(small, replace(small.grid, rows=rows))
    np.testing.assert_array_equal(changed.settings[:, : after + 1], before.settings[:, : after + 1])


def test_the_reference_is_a_ghost_of_its_own(small: Study) -> None:
    grid = small.grid
    assert grid is not None
    more = joined(grid, small.reference)
    assert more.settings == (*grid.settings, SETTINGS)
    np.testing.assert_array_equal(more.positions[-1], KNOBS.positions(SETTINGS))
    np.testing.assert_array_equal(more.usd[-1], small.reference.usd)
    np.testing.assert_array_equal(more.usd[:-1], grid.usd)
    assert joined(more, small.reference) is more


@pytest.fixture(scope="module")
def alternating() -> Study:
    world = World(replace(problem_of(18), constraints=Constraints(p99_ttft_seconds=1e6, stale_ratio=1.0)))
    home = world.problem.knobs.settings(np.array([0.6, 0.6, 0.0]))
    return open_study(world, Split(2 / 3, 1 / 6), home, horizon=8, starts=2, grid=ghost_grid(world))


def test_it_finds_the_best_ghost_of_a_world_that_alternates(alternating: Study) -> None:
    """Moves are free here, and nothing is carried from one interval to the next: with no memory it runs, one interval
    late, on the ghost that was cheapest in the one before. Costs are exactly that ghost's."""
    grid = joined(alternating.grid, alternating.reference)  # type: ignore[arg-type]
    policy = controller_for(alternating, WhatIf(memory=0.0, margin=0.0, charge=0.0, unsafe_memory=0.0))
    told = roll_out(alternating.reference, alternating.scale, [policy], alternating.test, grid=alternating.grid)
    late = np.argmin(grid.usd[:, alternating.test.start - 1 : alternating.test.stop - 1], axis=0)
    expected = grid.usd[late, np.arange(alternating.test.start, alternating.test.stop)]
    np.testing.assert_allclose(told.usd[0], expected, rtol=1e-9)


def test_what_is_fitted_saves_on_traffic_it_never_saw(alternating: Study) -> None:
    assert alternating.grid is not None
    one, other = (fit_whatif(alternating, alternating.grid) for _ in range(2))
    assert one.options == other.options
    told = roll_out(alternating.reference, alternating.scale, [one], alternating.test, grid=alternating.grid)
    assert told.usd[0].sum() < 0.95 * told.reference_usd.sum()
