from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from caches.errors import InputError
from caches.keys.request_key import Partition
from caches.semantic.same_answer import by_facts, by_similarity, exact, normalised
from caches.semantic.verification import (
    CANDIDATES,
    CONFIDENCE,
    Outcome,
    Verification,
    candidate_thresholds,
    choose_threshold,
    clopper_pearson,
    wrong_share,
)
from tests.caches.semantic.toy import ToyEmbedder

HERE, THERE = Partition("a", "x"), Partition("a", "y")
SIMILARITIES = st.floats(0.5, 1.0, width=32)
OUTCOMES = st.lists(st.builds(Outcome, SIMILARITIES, st.booleans()), max_size=60)


def right(count: int, similarity: float = 0.9) -> list[Outcome]:
    return [Outcome(similarity, True)] * count


def test_the_seeded_share_is_verified() -> None:
    draws = [[Verification(0.25, seed).chosen() for _ in range(1)] for seed in range(3)]
    assert draws == [[Verification(0.25, seed).chosen() for _ in range(1)] for seed in range(3)]
    verification = Verification(0.25, 1)
    assert 2_300 < sum(verification.chosen() for _ in range(10_000)) < 2_700
    assert not any(Verification(0.0, 1).chosen() for _ in range(100))
    assert all(Verification(1.0, seed).chosen() for seed in range(100))
    with pytest.raises(InputError, match="verified share"):
        Verification(1.5, 1)


def test_outcomes_are_kept_apart_and_the_oldest_go() -> None:
    verification = Verification(1.0, 1, kept=3)
    for number in range(5):
        verification.record(HERE, Outcome(0.9, number != 4))
    assert verification.outcomes(THERE) == ()
    assert verification.wrong_share(THERE) is None
    assert [one.right for one in verification.outcomes(HERE)] == [True, True, False]
    share = verification.wrong_share(HERE)
    assert share is not None
    assert (share.wrong, share.verified, share.share) == (1, 3, pytest.approx(1 / 3))
    assert verification.wrong_share(HERE, threshold=0.95) is None


def test_nothing_verified_is_no_share() -> None:
    assert wrong_share([]) is None


@pytest.mark.parametrize(
    ("wrong", "verified", "low", "high"),
    [(0, 10, 0.0, 0.3085), (1, 10, 0.0025, 0.4450), (10, 10, 0.6915, 1.0), (4, 20, 0.0573, 0.4366)],
)
def test_the_interval_is_the_tabulated_one(wrong: int, verified: int, low: float, high: float) -> None:
    assert clopper_pearson(wrong, verified) == pytest.approx((low, high), abs=5e-5)


def test_an_impossible_count_is_a_bug() -> None:
    for wrong, verified in ((1, 0), (0, 0), (-1, 3), (4, 3)):
        with pytest.raises(ValueError, match="got"):
            clopper_pearson(wrong, verified)


@pytest.mark.parametrize("share", [0.005, 0.02, 0.1, 0.5])
def test_the_interval_covers_the_truth_as_often_as_it_says(share: float) -> None:
    verified = 150
    covered = 0.0
    for wrong in range(verified + 1):
        low, high = clopper_pearson(wrong, verified)
        if low <= share <= high:
            covered += float(binom.pmf(wrong, verified, share))
    assert covered >= CONFIDENCE


def test_without_evidence_no_threshold() -> None:
    assert choose_threshold([], 0.02) is None
    assert choose_threshold(right(100), 0.02) is None
    assert choose_threshold([Outcome(0.9, False)] * 1_000, 0.02) is None


def test_enough_right_hits_open_the_door() -> None:
    needed = next(count for count in range(100, 1_000) if choose_threshold(right(count), 0.02) is not None)
    assert needed == 320
    assert choose_threshold(right(needed, 0.8), 0.02) == 0.8


def test_it_stays_above_the_wrong_ones() -> None:
    outcomes = right(600, 0.95) + right(300, 0.85) + [Outcome(0.85, False)] * 300
    assert choose_threshold(outcomes, 0.02) == 0.95


@pytest.mark.parametrize("budget", [0.0, -0.1, 1.1])
def test_a_budget_is_a_share(budget: float) -> None:
    with pytest.raises(InputError, match="budget"):
        choose_threshold([], budget)


@given(outcomes=OUTCOMES, budget=st.sampled_from([0.1, 0.3, 0.6, 1.0]))
def test_it_is_the_lowest_candidate_that_keeps_the_budget(outcomes: list[Outcome], budget: float) -> None:
    def bound(threshold: float) -> float:
        above = [one for one in outcomes if one.similarity >= threshold]
        return clopper_pearson(sum(not one.right for one in above), len(above), 1 - (1 - CONFIDENCE) / CANDIDATES)[1]

    kept = [one for one in candidate_thresholds(outcomes) if bound(one) <= budget]
    assert choose_threshold(outcomes, budget) == (min(kept) if kept else None)


@given(outcomes=OUTCOMES)
def test_candidates_are_few_and_were_seen(outcomes: list[Outcome]) -> None:
    candidates = candidate_thresholds(outcomes)
    assert len(candidates) <= CANDIDATES
    assert set(candidates) <= {one.similarity for one in outcomes}
    assert candidates == candidate_thresholds([Outcome(one.similarity, True) for one in outcomes])
    if outcomes:
        assert min(candidates) == min(one.similarity for one in outcomes)


def test_the_budget_is_missed_no_more_often_than_stated() -> None:
    """Questions get more wrong the less similar they are; 2,000 verified hits, 300 times over."""
    rng = np.random.default_rng(11)
    budget, missed, found = 0.05, 0, 0
    for _ in range(300):
        similarity = rng.uniform(0.7, 1.0, 2_000)
        wrong = rng.random(2_000) < (1.0 - similarity) / 3.0
        outcomes = [Outcome(float(s), not w) for s, w in zip(similarity, wrong, strict=True)]
        threshold = choose_threshold(outcomes, budget)
        if threshold is not None:
            found += 1
            missed += (1.0 - threshold) / 6.0 > budget  # the mean of (1 − s) / 3 between threshold and 1
    assert missed / 300 <= 0.025
    assert found / 300 > 0.9


def test_answers_are_the_same_to_the_letter_in_words_or_in_meaning() -> None:
    assert exact("Paris", "Paris")
    assert not exact("Paris", "paris")
    assert normalised("It is  **Paris**!", "it is paris.")
    assert normalised("“Größe” ﬁne", '"GRÖSSE" fine')
    for one, other in (("-5", "5"), ("1.5", "15"), ("1.5", "1 5"), ("yes", "no"), ("5 €", "5 $"), ("a + b", "a = b")):
        assert not normalised(one, other)
    same = by_similarity(ToyEmbedder(), 0.7)
    assert same("the capital is paris", "capital is paris")
    assert not same("the capital is paris", "nobody knows that")
    facts = by_facts(ToyEmbedder(), 0.7)
    assert facts("the capital is paris", "capital is paris")
    assert not facts("the capital is paris", "nobody knows that")
    for one, other in (("it costs 5 euros a day", "it costs 6 euros a day"), ("this is safe", "this is not safe")):
        assert same(one, other)
        assert not facts(one, other)
    assert same("", "")
