"""An objective, split over the stages of a request's path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.gateway.stage_budget import LEVELS, Limited, Stage, budget_of
from caches.errors import InputError

L1, L2, L3 = LEVELS


def test_an_objective_of_a_second_over_three_tiers() -> None:
    """1 % for the key and for memory, 4 % for each of the others, the rest for the backend."""
    budget = budget_of(1.0, [Limited(L1, None), Limited(L2, 0.25), Limited(L3, 0.25)])
    expected = {Stage.KEY: 0.01, L1: 0.01, L2: 0.04, L3: 0.04, Stage.BACKEND: 0.9}
    assert budget.stages == pytest.approx(expected)
    assert budget.whole_seconds == 1.0


def test_a_tier_has_no_more_than_its_time_limit() -> None:
    budget = budget_of(10.0, [Limited(L1, None), Limited(L2, 0.05)])
    assert budget.stages == pytest.approx({Stage.KEY: 0.1, L1: 0.1, L2: 0.05, Stage.BACKEND: 9.75})


def test_tiers_of_a_level_share_it() -> None:
    """Two on level 2 have 2 % each."""
    budget = budget_of(1.0, [Limited(L2, 0.25), Limited(L2, 0.1)])
    assert budget.stages == pytest.approx({Stage.KEY: 0.01, L2: 0.02, Stage.BACKEND: 0.95})


def test_an_objective_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="objective: got 0"):
        budget_of(0.0, [])


@given(
    st.floats(1e-3, 1e4),
    st.lists(st.builds(Limited, st.sampled_from(LEVELS), st.none() | st.floats(1e-4, 60.0)), max_size=8),
)
def test_budgets_add_up_to_the_objective(objective: float, tiers: list[Limited]) -> None:
    budget = budget_of(objective, tiers)
    passes = {stage: sum(tier.stage is stage for tier in tiers) for stage in LEVELS}
    total = sum(seconds * passes.get(stage, 1) for stage, seconds in budget.stages.items())
    assert total == pytest.approx(objective)
    assert budget.stages[Stage.BACKEND] >= 0.899 * objective
    assert all(budget.stages[tier.stage] <= tier.limit_seconds for tier in tiers if tier.limit_seconds is not None)
