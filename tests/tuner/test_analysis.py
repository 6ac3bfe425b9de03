"""What an experiment is judged to be, and that nothing is made of nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from caches.target import Arm, Histogram
from tests.tuner.interval_records import arms, noisy, record
from tuner.analysis import AnalysisPlan, Comparison, compare
from tuner.experiment import ExperimentDesign, Margins
from tuner.records import IntervalRecord, Outcome

LEAD_IN = 12


def plan(**changes: Any) -> AnalysisPlan:
    """No washout, a lead-in of 12, at least 6 intervals of treatment, at most 60."""
    design = {"lead_in_intervals": LEAD_IN, "washout_intervals": 0, "min_intervals": 6, "max_intervals": 60}
    return AnalysisPlan(ExperimentDesign(**{**design, **changes}), 0)


def covered(records: list[IntervalRecord], usd: Any) -> list[IntervalRecord]:
    """With what ghosts say: the luck of the arm, exactly."""
    return [IntervalRecord(**{**vars(one), "reference_usd": usd(one.index, one.arm)}) for one in records]


def number(found: Comparison, *path: str) -> Any:
    value: Any = found.numbers
    for name in path:
        value = value[name]
    return value


def test_a_saving_is_found_and_luck_of_the_split_is_not_taken_for_one() -> None:
    """The treatment arm is 5 % more expensive by luck and saves 20 %."""
    control, treatment = arms(40, noisy(1, 40, saving=0.2, from_index=LEAD_IN, luck=0.05))
    found = compare(control, treatment, plan())
    assert found.outcome is Outcome.BETTER
    assert number(found, "saving_percent", "mean") == pytest.approx(20.0 * 1.05, abs=1.0)
    assert number(found, "saving_percent", "low") > 0
    assert "it saves" in found.reasons[0]
    assert json.loads(json.dumps(found.numbers)) == found.numbers


def test_numbers_are_plain() -> None:
    """No numpy types, which not every writer of JSON takes."""

    def kinds(value: Any) -> set[type]:
        return set().union(*map(kinds, value.values())) if isinstance(value, dict) else {type(value)}

    control, treatment = arms(40, noisy(1, 40))
    luck = noisy(2, 40)
    found = compare(covered(control, luck), covered(treatment, luck), plan(concentration=0.01, luck_ratio=0.1))
    assert kinds(found.numbers) <= {float, int, str, bool, type(None)}


def test_alike_arms_stay_pending_and_end_inconclusive() -> None:
    control, treatment = arms(LEAD_IN + 60, noisy(2, LEAD_IN + 60, luck=0.05))
    found = [compare(control[:n], treatment[:n], plan()).outcome for n in range(1, LEAD_IN + 61)]
    assert found[:-1] == [Outcome.PENDING] * (LEAD_IN + 59)
    assert found[-1] is Outcome.INCONCLUSIVE


def test_a_treatment_that_costs_more_is_worse_at_once() -> None:
    """Before the least number of intervals, which is for BETTER."""
    control, treatment = arms(LEAD_IN + 5, noisy(3, LEAD_IN + 5, saving=-0.5, from_index=LEAD_IN))
    assert compare(control, treatment, plan()).outcome is Outcome.WORSE


def test_no_data_is_no_result() -> None:
    assert compare([], [], plan()).outcome is Outcome.PENDING
    silent = [[record(index, arm, 0.0, window={"requests": 0.0}) for index in range(LEAD_IN + 60)] for arm in Arm]
    found = compare(silent[0], silent[1], plan())
    assert found.outcome is Outcome.INCONCLUSIVE
    assert number(found, "intervals", "dropped") == {"an arm had no requests": LEAD_IN + 60}
    gone = [[IntervalRecord(**{**vars(one), "window": None}) for one in arm] for arm in silent]
    assert compare(gone[0], gone[1], plan()).outcome is Outcome.INCONCLUSIVE
    half = compare(silent[0], [], plan())
    assert number(half, "intervals", "dropped") == {"only one arm is there": LEAD_IN + 60}


def test_a_cost_that_is_partly_unknown_is_unknown() -> None:
    control, treatment = arms(30, noisy(1, 30), window={"slow_usd": None})
    assert number(compare(control, treatment, plan()), "intervals", "dropped") == {"what an arm cost is not known": 30}


def test_better_waits_for_intervals_requests_and_guards() -> None:
    control, treatment = arms(LEAD_IN + 8, noisy(1, LEAD_IN + 8, saving=0.5, from_index=LEAD_IN))
    assert compare(control, treatment, plan()).outcome is Outcome.BETTER
    few = compare(control, treatment, plan(min_intervals=9))
    assert (few.outcome, few.reasons[-1]) == (Outcome.PENDING, "8 intervals are counted, 9 are wanted.")
    little = compare(control, treatment, plan(min_requests=8_001))
    assert little.reasons[-1] == "An arm has had 8,000 requests, 8,001 are wanted."
    blind, blinder = arms(LEAD_IN + 8, noisy(1, LEAD_IN + 8, saving=0.5, from_index=LEAD_IN), counts=None)
    unknown = compare(blind, blinder, plan())
    assert unknown.outcome is Outcome.PENDING
    assert "Nothing is known of requests beyond the control's P99 to the first token" in unknown.reasons[1]
    margins = Margins(slow_ttft_ratio=None, slow_latency_ratio=None)
    assert compare(blind, blinder, plan(margins=margins)).outcome is Outcome.BETTER


def test_a_broken_guard_is_worse_whatever_it_saves() -> None:
    control, treatment = arms(LEAD_IN + 20, noisy(1, LEAD_IN + 20, saving=0.3, from_index=LEAD_IN))
    random = np.random.default_rng(0)
    slowed = [
        one if one.index < LEAD_IN else IntervalRecord(**{**vars(one), "ttft_seconds": _tail(int(random.poisson(40)))})
        for one in treatment
    ]
    found = compare(control, slowed, plan())
    assert found.outcome is Outcome.WORSE
    assert found.reasons[0].startswith("The treatment has more requests longer than 1 s to the first token: ")
    assert "in place of 1 %" in found.reasons[0]
    lenient = plan(margins=Margins(slow_ttft_ratio=0.1))
    assert compare(control, slowed, lenient).outcome is Outcome.BETTER


def test_more_wrong_hits_are_worse_whatever_they_save() -> None:
    """One of 20 verified hits is wrong; under treatment 12 of 20, on average."""
    few = {"verified_hits": 20.0, "wrong_hits": 1.0}
    control, treatment = arms(LEAD_IN + 20, noisy(1, LEAD_IN + 20, saving=0.3, from_index=LEAD_IN), window=few)
    random = np.random.default_rng(0)
    wrong = [
        one if one.index < LEAD_IN else replace(one, window={**(one.window or {}), "wrong_hits": float(many)})
        for one, many in zip(treatment, random.binomial(20, 0.6, len(treatment)), strict=True)
    ]
    found = compare(control, wrong, plan(margins=Margins(wrong_hit_ratio=0.02)))
    assert found.outcome is Outcome.WORSE
    assert found.reasons[0].startswith("The treatment has more verified hits that were wrong: ")
    assert number(found, "guards", "wrong_hit_ratio", "control") == 0.05
    assert number(found, "guards", "wrong_hit_ratio", "treatment") == pytest.approx(0.6, abs=0.06)
    assert compare(control, wrong, plan()).outcome is Outcome.BETTER  # without a margin it is only told


def _tail(slow: int) -> Histogram:
    return Histogram((0.01, 0.1, 1.0), (600, 200, 200 - slow, slow), 0.0)


def test_guards_by_hand() -> None:
    """10 of 1,000 beyond 1 s; 8 stale of 800 hits; 800 answers within 100 ms, all of them hits."""
    control, treatment = arms(LEAD_IN + 8, noisy(1, LEAD_IN + 8))
    guards = number(compare(control, treatment, plan()), "guards")
    assert {name: guard["treatment"] for name, guard in guards.items()} == {
        "slow_ttft_ratio": 0.01,
        "slow_latency_ratio": 0.01,
        "error_ratio": 0.0,
        "stale_ratio": 0.01,
        "wrong_hit_ratio": None,
        "fast_hit_ratio": 0.8,
    }
    assert number(compare(control, treatment, plan()), "p99_seconds") == {
        "ttft": {"control": 1.0, "treatment": 1.0},
        "latency": {"control": 1.0, "treatment": 1.0},
    }


def test_ghosts_take_luck_away_to_the_last_bit() -> None:
    """What arms cost is what ghosts say, times 0.97 under treatment: 3 % with next to no error."""
    luck = noisy(4, LEAD_IN + 30, luck=0.3)
    truth = noisy(4, LEAD_IN + 30, saving=0.03, from_index=LEAD_IN, luck=0.3)
    control, treatment = arms(LEAD_IN + 30, truth)
    found = compare(covered(control, luck), covered(treatment, luck), plan())
    seen = {"coefficient": 1.0, "explained": 1.0, "left_usd_per_1000": 0.0}
    assert number(found, "covariate") == pytest.approx(seen, abs=1e-12)
    assert number(found, "saving_percent", "mean") == pytest.approx(3.0 * 1.3, abs=0.1)
    assert found.outcome is Outcome.BETTER
    alone = compare(control, treatment, plan())
    error = ("cost_usd_per_1000", "standard_error")
    assert number(alone, *error) > 20.0 * number(found, *error)


def test_ghosts_are_held_against_the_control_arm_where_a_lead_in_is_short() -> None:
    """Two intervals of lead-in say nothing of 30."""
    luck = noisy(4, 32, luck=0.3)
    control, treatment = arms(32, noisy(4, 32, saving=0.03, from_index=2, luck=0.3))
    short = plan(lead_in_intervals=2)
    found = compare(covered(control, luck), covered(treatment, luck), short)
    assert number(found, "covariate", "explained") == pytest.approx(1.0)
    alike = {Arm.CONTROL: luck, Arm.TREATMENT: lambda index, arm: 1.1 * luck(index, arm)}
    other = compare(covered(control, noisy(9, 32)), covered(treatment, alike[Arm.TREATMENT]), short)
    assert number(other, "covariate", "explained") < 0.5


def test_ghosts_that_are_off_by_as_much_each_time_leave_that_much_luck() -> None:
    """By a mill of 1 USD per 1,000 requests in one arm; between two halves it is the root of two of that."""
    luck = noisy(4, 32)
    control, treatment = arms(32, luck)
    found = compare(
        covered(control, lambda index, arm: luck(index, arm) - 0.001),
        covered(treatment, luck),
        plan(lead_in_intervals=2),
    )
    assert number(found, "covariate", "left_usd_per_1000") == pytest.approx(0.001 * 2.0**0.5)


def test_ghosts_that_only_know_day_from_night_explain_nothing() -> None:
    def day(index: int, _arm: Arm) -> float:
        return 1.0 + 0.5 * float(np.sin(index / 12.0))

    luck = noisy(4, 60)
    control, treatment = arms(60, lambda index, arm: day(index, arm) * luck(index, arm))
    found = compare(covered(control, day), covered(treatment, day), plan(lead_in_intervals=2))
    assert number(found, "covariate", "explained") < 0.1


def test_where_ghosts_tell_all_a_ramp_needs_one_lead_in() -> None:
    """Another share of the keys is another luck: without ghosts, what comes after the first share tells nothing."""
    luck = noisy(4, LEAD_IN + 30, luck=0.3)
    control, treatment = arms(LEAD_IN + 30, noisy(4, LEAD_IN + 30, saving=0.03, from_index=LEAD_IN, luck=0.3))
    ramped = [
        [IntervalRecord(**{**vars(one), "share": 0.5 if one.index < LEAD_IN + 8 else (0.8, 0.2)[side]}) for one in arm]
        for side, arm in enumerate((control, treatment))
    ]
    single = plan(batch_intervals=1)
    told = compare(covered(ramped[0], luck), covered(ramped[1], luck), single)
    silent = compare(ramped[0], ramped[1], single)
    first = compare(control[: LEAD_IN + 8], treatment[: LEAD_IN + 8], single)
    assert number(silent, "cost_usd_per_1000", "mean") == pytest.approx(number(first, "cost_usd_per_1000", "mean"))
    assert number(told, "cost_usd_per_1000", "mean") == pytest.approx(-0.039, abs=0.001)
    error = ("cost_usd_per_1000", "standard_error")
    assert number(told, *error) < 0.1 * number(silent, *error)
    assert told.outcome is Outcome.BETTER


def test_ghosts_that_know_nothing_are_left_aside() -> None:
    """Their coefficient is that of a regression on the lead-in, so noise is not added to the costs."""
    control, treatment = arms(LEAD_IN + 30, noisy(5, LEAD_IN + 30))
    other = noisy(6, LEAD_IN + 30)
    found = compare(
        covered(control, lambda index, arm: 30 * other(index, arm)),
        covered(treatment, lambda index, arm: 30 * other(index, arm)),
        plan(),
    )
    assert number(found, "covariate", "coefficient") < 0.03
    alone = compare(control, treatment, plan())
    assert number(found, "cost_usd_per_1000", "standard_error") < 1.3 * number(
        alone, "cost_usd_per_1000", "standard_error"
    )


def test_a_crossover_takes_luck_away_without_a_lead_in_of_costs() -> None:
    design = {"swap_every_intervals": 6, "lead_in_intervals": LEAD_IN}
    swapping = plan(**design)
    noise = noisy(7, 60, luck=0.2)

    def usd(index: int, arm: Arm) -> float:
        challenged = swapping.design.challenged(0, index) is arm
        return float(noise(index, arm) * (0.9 if challenged else 1.0))

    found = compare(*arms(60, usd), swapping)
    assert found.outcome is Outcome.BETTER
    assert number(found, "intervals", "treated") == number(found, "intervals", "swapped") == 24
    assert number(found, "saving_percent", "mean") == pytest.approx(10.0, abs=0.7)


def test_washout_is_not_counted() -> None:
    control, treatment = arms(LEAD_IN + 9, noisy(1, LEAD_IN + 9, saving=0.5, from_index=LEAD_IN))
    found = compare(control, treatment, plan(washout_intervals=3))
    assert number(found, "intervals") == {
        "lead_in": LEAD_IN,
        "treated": 6,
        "swapped": 0,
        "since_treatment": 9,
        "dropped": {"washout": 3},
    }


def test_arms_that_cannot_be_compared_are_an_error() -> None:
    control, treatment = arms(20, noisy(1, 20))
    twice = compare([*control, control[0]], treatment, plan())
    assert twice.outcome is Outcome.ERROR
    assert "got 21 records of 20 intervals" in twice.reasons[0]
    overlapping, _ = arms(20, noisy(1, 20), share=0.6)
    assert compare(overlapping, treatment, plan()).outcome is Outcome.ERROR
    other = Histogram((0.5,), (1, 1), 0.0)
    mixed = [IntervalRecord(**{**vars(one), "ttft_seconds": other}) for one in treatment]
    assert "several kinds of buckets" in compare(control, mixed, plan()).reasons[0]


def test_a_split_that_does_not_split_is_an_error() -> None:
    """Half of the keys, a fifth of the requests, no key with more than a thousandth of them."""
    control, _ = arms(30, noisy(1, 30), requests=1_600.0)
    _, treatment = arms(30, noisy(1, 30), requests=400.0)
    found = compare(control, treatment, plan(concentration=0.001))
    assert found.outcome is Outcome.ERROR
    assert "20.00 % of the requests, expected 50.00 %" in found.reasons[0]
    assert compare(control, treatment, plan()).outcome is not Outcome.ERROR


@pytest.mark.parametrize("covariate", [True, False])
@pytest.mark.parametrize(
    ("experiments", "every"), [(12, 8), pytest.param(60, 2, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_looking_again_and_again_is_rarely_wrong(covariate: bool, experiments: int, every: int) -> None:
    """A/A experiments whose luck drifts as a random walk; ghosts know it, or the standard error is doubled."""
    wrong = 0
    for seed in range(experiments):
        random = np.random.default_rng(seed)
        walk = 0.1 + np.cumsum(random.normal(0.0, 0.002, 60))
        noise = random.normal(0.0, 0.01, (60, 2))

        def luck(index: int, arm: Arm, walk: Any = walk) -> float:
            return 1.0 + float(walk[index]) * (arm is Arm.TREATMENT)

        def usd(index: int, arm: Arm, walk: Any = walk, noise: Any = noise) -> float:
            return luck(index, arm, walk) * (1.0 + float(noise[index, int(arm is Arm.TREATMENT)]))

        control, treatment = arms(60, usd)
        if covariate:
            control, treatment = covered(control, luck), covered(treatment, luck)
        looks = (compare(control[:n], treatment[:n], plan()).outcome for n in range(LEAD_IN + 2, 61, every))
        wrong += any(look in (Outcome.BETTER, Outcome.WORSE) for look in looks)
    assert wrong <= 0.05 * experiments
