from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from agents.baselines import bandit
from agents.baselines.catalog import NO_BANDIT, NO_CLASSES, rivals
from agents.baselines.fitting import choose
from agents.baselines.simple import Static
from agents.rollout import roll_out
from agents.study import Split, Study, open_study
from caches.knobs import KnobSettings
from envs.ghosts import ghost_grid
from envs.interval import unsafe
from envs.reward import Constraints
from envs.world import World
from tests.envs.worlds import KNOBS, SETTINGS, problem, random_trace

NAMES = (
    "what-if controller",
    "target TTL",
    "elastic TTL",
    "formula TTL",
    "PID to P99",
    "contextual bandit",
    "hour-of-week schedule",
)


def study_of(world: World) -> Study:
    return open_study(world, Split(0.5, 0.25), SETTINGS, horizon=5, starts=2, grid=ghost_grid(world))


@pytest.fixture(scope="module")
def small() -> Study:
    return study_of(World(problem(random_trace(4, 60, 15.0))))


def static(settings: KnobSettings) -> Static:
    return Static("static", settings, SETTINGS, KNOBS)


def test_all_are_there_in_order_and_run(small: Study) -> None:
    pytest.importorskip("vowpalwabbit", reason="the extra `bandit` is not installed")
    assert small.grid is not None
    made = rivals(small, small.grid)
    assert tuple(policy.name for policy in made.policies) == NAMES
    told = roll_out(small.reference, small.scale, made.policies, small.test, grid=small.grid)
    again = roll_out(small.reference, small.scale, rivals(small, small.grid).policies, small.test, grid=small.grid)
    np.testing.assert_array_equal(told.settings, again.settings)
    assert np.isfinite(told.usd).all()
    sent = pickle.loads(pickle.dumps(made.policies))
    moved = roll_out(small.reference, small.scale, sent, small.test, grid=small.grid)
    np.testing.assert_array_equal(told.settings, moved.settings)


def test_test_traffic_is_not_looked_at(small: Study) -> None:
    """Policies fitted beside ghosts and a reference that cost something else from there on do the same."""
    assert small.grid is not None
    rows = small.grid.rows.copy()
    rows[:, small.test.start :] *= 3.0
    one, other = rivals(small, small.grid), rivals(small, replace(small.grid, rows=rows))
    assert one.notes == other.notes
    told, same = (
        roll_out(small.reference, small.scale, made.policies, small.validation, grid=small.grid)
        for made in (one, other)
    )
    np.testing.assert_array_equal(told.settings, same.settings)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package, and no key that comes back."""
    monkeypatch.setattr(bandit, "Workspace", None)
    trace = random_trace(4, 20, 15.0)
    once = replace(trace, key=np.arange(len(trace.key), dtype=np.int32), num_keys=len(trace.key))
    study = study_of(World(problem(once)))
    assert study.grid is not None
    made = rivals(study, study.grid)
    assert {NO_BANDIT, NO_CLASSES} <= set(made.notes)
    assert [policy.name for policy in made.policies] == [n for n in NAMES if n not in ("elastic TTL", NAMES[5])]


OTHERS = ((0.1, 0.1, 0.0), (0.5, 0.5, 0.0), (0.9, 0.9, 1.0), (1.0, 1.0, 1.0))


def test_the_cheapest_that_keeps_the_constraints_is_chosen(small: Study) -> None:
    """The others are chosen so that some are cheaper than the reference, but all break more constraints than it."""
    assert small.grid is not None
    candidates = [*(static(KNOBS.settings(np.array(point))) for point in OTHERS), static(SETTINGS)]
    told = roll_out(small.reference, small.scale, candidates, small.validation)
    broken = unsafe(told.rows, small.world.problem.constraints).mean(axis=1)
    choice = choose(small, small.grid, candidates)
    assert choice.index == 4
    assert min(choice.unsafe[:4]) > choice.allowed == choice.unsafe[4]
    assert max(choice.saving[:4]) > choice.saving[4] == 0.0
    assert choice.unsafe == tuple(broken)
    assert choice.saving == pytest.approx([1 - usd.sum() / told.reference_usd.sum() for usd in told.usd])
    free = study_of(
        World(problem(random_trace(4, 60, 15.0), constraints=Constraints(p99_ttft_seconds=1e6, stale_ratio=1.0)))
    )
    assert free.grid is not None
    choice = choose(free, free.grid, candidates)
    assert (choice.index, set(choice.unsafe)) == (int(np.argmax(choice.saving)), {0.0})


def test_where_none_keeps_the_constraints_the_one_that_breaks_least_is_chosen(small: Study) -> None:
    assert small.grid is not None
    choice = choose(small, small.grid, [static(KNOBS.settings(np.array(point))) for point in OTHERS])
    least = [index for index, share in enumerate(choice.unsafe) if share == min(choice.unsafe)]
    assert min(choice.unsafe) > choice.allowed
    assert choice.index == max(least, key=lambda index: choice.saving[index])


def test_of_equals_the_first_is_chosen(small: Study) -> None:
    assert small.grid is not None
    assert choose(small, small.grid, [static(SETTINGS), static(SETTINGS)]).index == 0
