"""Thresholds that follow what verified hits say."""

from __future__ import annotations

import pytest

from caches.errors import InputError
from caches.keys.request_key import Partition
from caches.semantic.checking import Budget, HitChecker
from caches.semantic.same_answer import exact
from caches.semantic.tier import SemanticOptions, SemanticTier
from caches.semantic.verification import Verification
from caches.tiers.tier import Answer, Found
from tests.caches.semantic.toy import ToyEmbedder
from tests.contracts.tier_contract import SPACE, START, key_of

KEY, OTHER = key_of(1), key_of(1, 1)


def checker(budget: Budget, share: float = 1.0, highest: float = 1.0) -> HitChecker:
    options = SemanticOptions(similarity_threshold=0.8, lowest_threshold=0.7, highest_threshold=highest)
    tier = SemanticTier(ToyEmbedder(), SPACE, options=options)
    return HitChecker(tier, Verification(share, seed=0), exact, lambda answer: answer.body.decode(), budget)


async def check(subject: HitChecker, similarity: float, right: bool, key: object = KEY) -> bool:
    async def call() -> Answer:
        return Answer(b"yes" if right else b"no", START)

    return await subject.check(key, Found(Answer(b"yes", START), similarity), call)  # type: ignore[arg-type]


async def test_what_is_known_to_keep_the_budget_is_set_and_only_there() -> None:
    subject = checker(Budget(0.05, every=20))
    for number in range(400):
        similarity = 0.80 + 0.0005 * number
        assert await check(subject, similarity, right := similarity >= 0.9 or number % 2 == 0) == right
    taken = subject.tier.similarity_threshold(KEY.partition)
    assert taken is not None
    assert 0.88 < taken < 0.93
    assert subject.tier.similarity_threshold(OTHER.partition) == 0.8


async def test_what_is_known_to_exceed_the_budget_ends() -> None:
    subject = checker(Budget(0.02, every=10))
    for _ in range(9):
        await check(subject, 0.95, right=False)
    assert subject.tier.similarity_threshold(KEY.partition) == 0.8  # not looked at yet
    await check(subject, 0.95, right=False)
    assert subject.tier.similarity_threshold(KEY.partition) is None


async def test_where_nothing_is_known_it_stays() -> None:
    subject = checker(Budget(0.02, every=10))
    for number in range(100):
        await check(subject, 0.95, right=number != 50)  # one of a hundred: between 0.03 and 5.4 %
    assert subject.tier.similarity_threshold(KEY.partition) == 0.8


async def test_what_the_operator_does_not_allow_is_never_chosen() -> None:
    """Right from 0.9 on, where the operator's highest is 0.85: what keeps the budget cannot be set, and what can be set
    is known to exceed it, since below 0.9 every second hit is wrong."""
    subject = checker(Budget(0.05, every=400), highest=0.85)
    for number in range(400):
        similarity = 0.80 + 0.0005 * number
        await check(subject, similarity, right=similarity >= 0.9 or number % 2 == 0)
    assert subject.tier.similarity_threshold(KEY.partition) is None


async def test_without_a_budget_it_is_only_measured() -> None:
    subject = checker(Budget(None, every=1))
    for _ in range(50):
        await check(subject, 0.95, right=False)
    assert subject.tier.similarity_threshold(KEY.partition) == 0.8
    known = subject.verification.wrong_share(KEY.partition)
    assert known is not None
    assert (known.wrong, known.verified) == (50, 50)
    with pytest.raises(InputError, match=r"wrong-hit budget: got 0\.0"):
        Budget(0.0)


async def test_a_backend_that_fails_says_nothing_about_the_hit() -> None:
    subject = checker(Budget(0.02, every=1))

    async def call() -> Answer:
        raise RuntimeError("down")

    with pytest.raises(RuntimeError, match="down"):
        await subject.check(KEY, Found(Answer(b"yes", START), 0.95), call)
    assert subject.verification.outcomes(KEY.partition) == ()


def test_equal_requests_are_never_verified_and_others_at_their_share() -> None:
    subject = checker(Budget(), share=0.25)
    assert not any(subject.chosen(Found(Answer(b"", START), 1.0)) for _ in range(100))
    chosen = sum(subject.chosen(Found(Answer(b"", START), 0.95)) for _ in range(4000))
    assert abs(chosen - 1000) < 110  # four standard deviations
    assert subject.tier.similarity_threshold(Partition("new", "one")) == 0.8
