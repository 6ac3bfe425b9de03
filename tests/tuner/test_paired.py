"""Differences of two groups of keys: what is an effect and what is luck of the split."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.judging.confidence_sequence import prior_information
from tuner.judging.paired import (
    NO_LUCK,
    Assumed,
    Series,
    batch_autocorrelation,
    batch_length,
    batched,
    effect,
    neighbours,
)


def series(
    difference: list[float], sign: list[float], weight: list[float] | None = None, stratum: list[int] | None = None
) -> Series:
    signs = np.array(sign)
    return Series(
        np.array(difference),
        np.ones(len(sign)) if weight is None else np.array(weight),
        signs,
        np.zeros(len(sign)) if stratum is None else np.array(stratum),
        np.concatenate(([0], np.cumsum(np.diff(signs) != 0))),
    )


def test_a_lead_in_is_subtracted() -> None:
    """Means 2 and 5: an effect of 3. Rests -1, 1, -1, 1: 4 over 2 degrees; information 2 * 2 / 4 = 1; error sqrt(2).
    The rests' autocorrelation is negative, which narrows nothing."""
    found = effect(series([1, 3, 4, 6], [0, 0, 1, 1]), 1.0, 0.05)
    assert found.mean == pytest.approx(3.0)
    assert (found.degrees, found.batches) == (2, 4)
    assert found.information == pytest.approx(1.0)
    assert found.standard_error == pytest.approx(math.sqrt(2.0))
    assert found.autocorrelation == pytest.approx(-0.75)
    assert found.low < 0 < found.high


def test_a_long_treatment_does_not_outgrow_the_error_of_its_lead_in() -> None:
    """The information is n0 n1 / (n0 + n1), at most the lead-in's four."""
    random = np.random.default_rng(0)
    found = effect(series(list(random.normal(size=404)), [0.0] * 4 + [1.0] * 400), 1.0, 0.05)
    assert found.information <= 4 * 400 / 404 + 1e-9
    assert found.standard_error is not None
    assert found.standard_error > 0.45


def test_a_crossover_takes_out_luck_without_a_lead_in() -> None:
    """Luck 10, effect 1: 11 while group 1 is treated, 9 while group 0 is. No rests at all."""
    found = effect(series([11, 11, 9, 9], [1, 1, -1, -1]), 1.0, 0.05)
    assert (found.mean, found.low, found.high) == (1.0, 1.0, 1.0)


def test_weights_count_as_that_many_observations() -> None:
    once = effect(series([1, 3, 2, 4, 4, 6], [0, 0, 0, 1, 1, 1], [1, 2, 1, 1, 1, 2]), 1.0, 0.05)
    assert once.mean == pytest.approx((4 + 4 + 12) / 4 - (1 + 6 + 2) / 4)


def test_without_lead_in_and_crossover_nothing_can_be_told() -> None:
    found = effect(series([5, 6, 5, 6], [1, 1, 1, 1]), 1.0, 0.05)
    assert (found.mean, found.low, found.high) == (None, -math.inf, math.inf)


def test_known_luck_stands_in_for_a_lead_in() -> None:
    """Rests of variance 3/2 and luck of variance 3/8: as four more observations of zero; 4 * 4 / 8 = 2."""
    values = [3 + math.sqrt(0.75) * one for one in (1, -1, -1, 1)]
    found = effect(series(values, [1] * 4), 1.0, 0.05, Assumed(luck=math.sqrt(3 / 8)))
    assert found.information == pytest.approx(2.0)
    assert found.mean == pytest.approx(3.0)
    assert effect(series(values, [1] * 4), 1.0, 0.05, Assumed(luck=1e-9)).information == pytest.approx(4.0)


def test_each_share_of_keys_has_luck_of_its_own() -> None:
    """Luck 10 at one share, -20 at another, effect 1 in both."""
    found = effect(series([10, 10, 11, 11, -20, -19], [0, 0, 1, 1, 0, 1], stratum=[0, 0, 0, 0, 1, 1]), 1.0, 0.05)
    assert found.mean == pytest.approx(1.0)
    assert found.degrees == 6 - 2 - 1


def test_blocks_of_time_have_no_luck_of_a_split() -> None:
    found = effect(series([1, 3, 2, 2], [1, 1, 1, 1]), 1.0, 0.05, NO_LUCK)
    assert found.mean == pytest.approx(2.0)
    assert found.degrees == 3
    assert found.standard_error == pytest.approx(math.sqrt(2.0 / 3.0 / 4.0))


def test_autocorrelation_widens() -> None:
    """Rests 1, 1, -1, -1 twice in each run correlate by (1 - 1 + 1 - 1 ...) / 8: the formula, on both sides."""
    rests = [1, 1, -1, -1, 1, 1, -1, -1]
    found = effect(series(rests + rests, [0] * 8 + [1] * 8), 1.0, 0.05)
    r = neighbours(np.array(rests + rests, float))
    assert found.autocorrelation == pytest.approx(r)
    assert r < 0.2
    steady = effect(series([1] * 4 + [-1] * 4 + [1] * 4 + [-1] * 4, [0] * 8 + [1] * 8), 1.0, 0.05)
    assert steady.autocorrelation == pytest.approx(9 / 16)
    assert steady.standard_error == pytest.approx(math.sqrt(16 / 14 / 4 * (1 + 9 / 16) / (1 - 9 / 16)))


def test_an_effect_that_changes_slowly_is_not_noise_where_luck_is_steady() -> None:
    """After a lead-in of 1, -1, 1, -1 an effect of 10, 20, 30, 40: 25 in the mean. Neighbours differ by 2 and by 10:
    (3 * 4 + 3 * 100) / 2 / 6 = 26, four degrees; taken for noise it would be (4 + 500) / 6 = 84."""
    values = series([1, -1, 1, -1, 10, 20, 30, 40], [0] * 4 + [1] * 4)
    steady = effect(values, 1.0, 0.05, Assumed(steady=True))
    assert steady.mean == pytest.approx(25.0)
    assert steady.standard_error == pytest.approx(math.sqrt(26.0 / 2.0))
    assert steady.degrees == 4
    other = effect(values, 1.0, 0.05)
    assert other.mean == pytest.approx(25.0)
    assert other.standard_error is not None
    assert other.standard_error >= math.sqrt(84.0 / 2.0)


def test_widening_multiplies_the_standard_error() -> None:
    values = series([1, 3, 4, 6], [0, 0, 1, 1])
    assert effect(values, 1.0, 0.05, Assumed(widened=2.0)).standard_error == pytest.approx(2.0 * math.sqrt(2.0))


def test_batches_end_with_their_run_and_the_last_one_waits() -> None:
    """Runs of 5 and 5 in batches of 2: the first run's fifth joins its second batch, the last run's fifth waits."""
    found = batched(series([1, 3, 5, 7, 9, 2, 4, 6, 8, 10], [0] * 5 + [1] * 5, [1, 1, 1, 1, 2, 1, 1, 1, 1, 1]), 2)
    assert found.difference.tolist() == [2.0, (5 + 7 + 18) / 4, 3.0, 7.0]
    assert found.weight.tolist() == [2.0, 4.0, 2.0, 2.0]
    assert found.sign.tolist() == [0.0, 0.0, 1.0, 1.0]
    assert len(batched(series([1.0], [1.0]), 2)) == 0


def test_a_run_that_is_over_and_shorter_than_a_batch_is_one() -> None:
    found = batched(series([1, 3, 5, 7, 9, 11], [0, 1, 1, 1, 1, 1]), 3)
    assert found.difference.tolist() == [1.0, 5.0]


def test_batch_autocorrelation_is_that_of_an_autoregression() -> None:
    """Against the sums over lags: pairs inside a batch of n, and between neighbouring batches."""
    r, n = 0.6, 4
    within = sum(r ** abs(i - j) for i in range(n) for j in range(n))
    between = sum(r ** (n + j - i) for i in range(n) for j in range(n))
    assert batch_autocorrelation(r, n) == pytest.approx(between / within)
    assert batch_autocorrelation(r, 1) == pytest.approx(r)


def test_the_batch_grows_with_the_autocorrelation_of_the_lead_in() -> None:
    random = np.random.default_rng(1)
    white = random.normal(size=600)
    slow = np.zeros(600)
    for i in range(1, 600):
        slow[i] = 0.6 * slow[i - 1] + white[i]
    assert batch_length(series(list(white), [0.0] * 600)) == 1
    length = batch_length(series(list(slow), [0.0] * 600))
    assert batch_autocorrelation(0.55, length) < 0.12
    assert batch_autocorrelation(0.65, length - 1) > 0.09
    assert batch_length(series(list(slow[:12]), [0.0] * 12)) <= 2  # six batches at least


def test_looking_all_the_time_at_nothing_is_rarely_wrong() -> None:
    """100 A/A comparisons with luck, autocorrelated noise, a lead-in of 24 and looks at the 72 intervals after it."""
    random = np.random.default_rng(2)
    prior, wrong = prior_information(24 * 36 / 60, 0.05), 0
    for _ in range(100):
        noise = random.normal(size=96)
        for i in range(1, 96):
            noise[i] += 0.3 * noise[i - 1]
        whole = series(list(random.normal(0, 3) + noise), [0.0] * 24 + [1.0] * 72)
        batch = batch_length(whole.where(np.arange(96) < 24))
        looks = (
            effect(batched(whole.where(np.arange(96) < t), batch), prior, 0.05) for t in range(26, 97, max(batch, 2))
        )
        wrong += any(one.low > 0 or one.high < 0 for one in looks)
    assert wrong / 100 <= 0.05
