"""The design of an experiment: what each interval is for, and which salt is balanced."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from caches.errors import InputError
from caches.target import Arm
from tuner.experiment import ExperimentDesign, Stage, choose_salt, imbalance, remembered_seconds, stretch_at
from tuner.router import points


def stages(design: ExperimentDesign, began: int, intervals: int) -> str:
    """A letter an interval: l, w, t, s; a dot before the beginning."""
    found = [stretch_at(design.stretches(began), index) for index in range(intervals)]
    return "".join("." if one is None else one.stage.value[0] for one in found)


def test_stages_of_a_plain_experiment() -> None:
    design = ExperimentDesign(lead_in_intervals=3, washout_intervals=2)
    assert stages(design, 1, 10) == ".lllwwtttt"
    assert [design.challenged(1, index) for index in range(7)] == [None] * 4 + [Arm.TREATMENT] * 3


def test_a_crossover_swaps_again_and_again() -> None:
    design = ExperimentDesign(lead_in_intervals=2, washout_intervals=1, swap_every_intervals=3, max_intervals=9)
    assert stages(design, 0, 12) == "llwttwsswttt"
    assert [one.compared for one in design.stretches(0) if one.stage is not Stage.WASHOUT] == [-1, 0, 0, 1]
    arms = [design.challenged(0, index) for index in range(2, 8)]
    assert arms == [Arm.TREATMENT] * 3 + [Arm.CONTROL] * 3


def test_an_a_a_changes_nothing_and_washes_nothing_out() -> None:
    design = ExperimentDesign(same=True, lead_in_intervals=2, washout_intervals=3)
    assert stages(design, 0, 5) == "llttt"
    assert design.challenged(0, 4) is None


def test_a_design_survives_json() -> None:
    design = ExperimentDesign(salt="s", swap_every_intervals=6, concentration=0.01)
    assert ExperimentDesign.model_validate_json(design.model_dump_json()) == design


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"share": 0.05, "swap_every_intervals": 6}, "share = 0.5 with a crossover"),
        ({"lead_in_intervals": 0}, "lead_in_intervals above 0 or a crossover"),
        ({"swap_every_intervals": 2, "washout_intervals": 2}, "swap_every_intervals above washout_intervals"),
        ({"shares": 0.5}, "shares"),
    ],
)
def test_a_design_that_can_tell_nothing_is_refused(changes: dict[str, object], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        ExperimentDesign.model_validate(changes)


def test_imbalance_by_hand() -> None:
    """Weights 0.6, 0.3, 0.1; at a half the first key alone lies below: off by 0.1, of sqrt(0.46 * 0.25)."""
    parts = np.array([[0.6], [0.3], [0.1]])
    found = imbalance(np.array([0.2, 0.7, 0.9]), parts, (0.5,))
    assert found == pytest.approx(0.1 / math.sqrt(0.46 * 0.25))


def test_the_chosen_salt_is_better_balanced_than_most() -> None:
    """Keys of Zipf popularity and a second measure of their own, at every share of a ramp."""
    keys = [str(number).encode() for number in range(500)]
    weights = np.stack((1.0 / np.arange(1, 501), np.random.default_rng(0).exponential(size=500)), axis=1)
    salt, best = choose_salt(lambda salt: points(keys, salt), weights, seed=3, candidates=25)
    assert choose_salt(lambda salt: points(keys, salt), weights, seed=3, candidates=25) == (salt, best)
    others = [imbalance(points(keys, f"other-{n}"), weights / weights.sum(axis=0), (0.05, 0.2, 0.5)) for n in range(40)]
    assert np.mean([best < other for other in others]) > 0.9
    below = weights[points(keys, salt) < 0.5].sum(axis=0) / weights.sum(axis=0)
    assert below == pytest.approx([0.5, 0.5], abs=0.1)


def test_weights_without_weight_are_refused() -> None:
    with pytest.raises(InputError, match="weights: got shape"):
        choose_salt(lambda salt: np.zeros(2), np.zeros((2, 1)), 0)


def test_a_cache_forgets_by_age_or_by_being_filled_anew() -> None:
    assert remembered_seconds(600.0, 1_000.0, 1.0) == 600.0
    assert remembered_seconds(600.0, 1_000.0, 10.0) == 100.0
    assert remembered_seconds(600.0, 1_000.0, 0.0) == 600.0
    with pytest.raises(InputError, match="got a lifetime of 0"):
        remembered_seconds(0.0, 1_000.0, 1.0)
