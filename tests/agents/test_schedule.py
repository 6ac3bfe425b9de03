from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agents.baselines.schedule import HourSchedule, cycle_hours, hour_of
from agents.baselines.schedule_fit import Samples, cheapest_by_slot, fit_schedule, schedule_for
from agents.rollout import roll_out
from agents.study import Split, Study, open_study
from caches.errors import InputError
from envs.ghosts import ghost_grid, joined
from envs.reward import Constraints
from envs.world import World
from tests.agents.alternating import INTERVAL_SECONDS, INTERVALS_A_DAY, problem_of
from tests.agents.sights import sight_of

FREE = Constraints(p99_ttft_seconds=1e6, stale_ratio=1.0)


def study_of(days: int, constraints: Constraints = FREE) -> Study:
    """Half of the days to train."""
    world = World(replace(problem_of(days), constraints=constraints))
    home = world.problem.knobs.settings(np.array([0.6, 0.6, 0.0]))
    return open_study(world, Split(0.5, 0.25), home, horizon=8, starts=2, grid=ghost_grid(world))


@pytest.fixture(scope="module")
def alternating() -> Study:
    return study_of(16)


def test_hours() -> None:
    times = np.array([0.0, 3_599.0, 3_600.0, 86_400.0, 7 * 86_400.0 + 7_200.0])
    assert hour_of(times, 24).tolist() == [0, 0, 1, 0, 2]
    assert hour_of(times, 168).tolist() == [0, 0, 1, 24, 2]
    assert hour_of(times, 1).tolist() == [0] * 5


def test_it_wishes_for_the_setting_of_the_hour() -> None:
    slots = np.linspace(0.0, 1.0, 24 * 3).reshape(24, 3)
    policy = HourSchedule(slots[5], slots)
    assert policy.act(sight_of(now_seconds=10 * 86_400.0 + 7.5 * 3_600.0)) == pytest.approx(slots[7] - slots[5])
    with pytest.raises(InputError, match="slots: got shape"):
        HourSchedule(slots[5], slots[0])


def test_shrinkage_by_hand() -> None:
    """Slot 0 holds four intervals, slot 1 one, slot 2 none. Ghost 0 costs nothing more than the reference anywhere;
    ghost 1 saves 3 in slot 1 and costs 1 in slot 0, so 1 / 5 over all. In slot 1: (-3 + 0.2 k) / (1 + k), below zero
    for k < 15. Ghost 2 is the cheapest of all, but breaks constraints."""
    usd = np.array([[0.0] * 5, [1.0, 1.0, 1.0, 1.0, -3.0], [-9.0] * 5])
    samples = Samples(usd, np.array([0, 0, 0, 0, 1]), np.array([True, True, False]))
    assert cheapest_by_slot(samples, 3, 14.9).tolist() == [0, 1, 0]
    assert cheapest_by_slot(samples, 3, 15.1).tolist() == [0, 0, 0]


def test_the_cycle_is_one_that_training_went_through_twice(alternating: Study) -> None:
    scale = replace(alternating.scale, daily=True, weekly=True)
    assert cycle_hours(scale) == 168
    assert cycle_hours(replace(scale, weekly=False)) == 24
    assert cycle_hours(replace(scale, weekly=False, daily=False)) == 1
    assert cycle_hours(alternating.scale) == 24  # eight days
    assert cycle_hours(study_of(28).scale) == 168
    assert len(fit_schedule(study_of(2), study_of(2).grid).slots) == 1  # type: ignore[arg-type]


def test_it_finds_the_best_ghost_of_each_half_of_the_day(alternating: Study) -> None:
    """Days are alike and nothing is carried on, so the cheapest ghost of a training hour is the cheapest ever after and
    knobs may jump there: without shrinkage it costs what the cheapest ghost of each interval costs in hindsight."""
    assert alternating.grid is not None
    policy = schedule_for(alternating, alternating.grid, 1e-9)
    told = roll_out(alternating.reference, alternating.scale, [policy], alternating.test)
    ghosts = joined(alternating.grid, alternating.reference).usd[:, alternating.test.start :]
    np.testing.assert_allclose(told.usd[0], ghosts.min(axis=0), rtol=1e-9)
    begins = (np.arange(INTERVALS_A_DAY) + 0.5) * INTERVAL_SECONDS
    assert len(np.unique(policy.slots[hour_of(begins, 24)], axis=0)) > 1


def test_what_is_fitted_comes_close_to_it(alternating: Study) -> None:
    """Eight samples an hour, drawn a little towards the mean: it leaves less than a fiftieth of what can be saved."""
    assert alternating.grid is not None
    policy = fit_schedule(alternating, alternating.grid)
    told = roll_out(alternating.reference, alternating.scale, [policy], alternating.test)
    least = joined(alternating.grid, alternating.reference).usd[:, alternating.test.start :].min(axis=0).sum()
    reference = told.reference_usd.sum()
    assert reference > 1.25 * least
    assert (reference - told.usd[0].sum()) / (reference - least) > 0.98


def test_hours_without_traffic_keep_the_overall_best(alternating: Study) -> None:
    """Intervals begin at 1:30, 4:30 and so on."""
    assert alternating.grid is not None
    policy = fit_schedule(alternating, alternating.grid)
    never = [hour for hour in range(24) if hour % 3 != 1]
    assert len(np.unique(policy.slots[never], axis=0)) == 1


def test_what_breaks_constraints_is_not_scheduled() -> None:
    """A budget for outdated answers that only some ghosts keep: those that are scheduled do, in training."""
    study = study_of(8, Constraints(p99_ttft_seconds=1e6, stale_ratio=0.12, max_unsafe_per_1000=0.0))
    assert study.grid is not None
    ghosts = joined(study.grid, study.reference)
    kept = ~ghosts.unsafe[:, : study.training.stop].any(axis=1)
    assert 0 < kept.sum() < len(kept)
    assert kept[-1]
    for slot in fit_schedule(study, study.grid).slots:
        assert any(np.array_equal(slot, position) for position in ghosts.positions[kept])
