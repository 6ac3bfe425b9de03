"""Token rates: by hand, and what holds for any sequence of requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.errors import InputError
from caches.guards.token_rate import LARGEST_SHARE, TokenBucket, TokenRate, TokenRule


def test_long_requests_are_held_back_first() -> None:
    """Of 1,000 tokens 500 may be taken at once, then 250 of the 500 that are left."""
    bucket = TokenBucket(TokenRule(tokens_per_second=100.0, burst_tokens=1_000.0), 0.0)
    assert bucket.until_admitted_seconds(500.0, 0.0) == 0.0
    bucket.take(500.0, 0.0)
    assert bucket.until_admitted_seconds(400.0, 0.0) == 3.0  # until there are 800
    assert bucket.until_admitted_seconds(250.0, 0.0) == 0.0
    bucket.take(250.0, 0.0)
    assert bucket.level(0.0) == 250.0
    assert (bucket.until_admitted_seconds(126.0, 0.0) > 0.0, bucket.until_admitted_seconds(125.0, 0.0)) == (True, 0.0)


def test_one_longer_than_half_of_a_full_bucket_passes_when_it_is_full_and_leaves_a_debt() -> None:
    bucket = TokenBucket(TokenRule(100.0, 1_000.0), 0.0)
    assert bucket.until_admitted_seconds(5_000.0, 0.0) == 0.0
    bucket.take(5_000.0, 0.0)
    assert bucket.level(0.0) == -4_000.0
    assert bucket.until_admitted_seconds(1.0, 0.0) == pytest.approx(40.02)
    assert bucket.until_admitted_seconds(5_000.0, 0.0) == 50.0
    assert bucket.level(1_000.0) == 1_000.0


def test_what_an_answer_did_not_take_comes_back_and_what_it_took_beyond_is_taken() -> None:
    bucket = TokenBucket(TokenRule(1.0, 1_000.0), 0.0)
    bucket.take(400.0, 0.0)
    bucket.take(100.0 - 400.0, 0.0)
    assert bucket.level(0.0) == 900.0
    bucket.take(300.0 - 100.0, 0.0)
    assert bucket.level(0.0) == 700.0
    bucket.take(0.0 - 1_000.0, 0.0)
    assert bucket.level(0.0) == 1_000.0  # and never more than full


def test_a_request_passes_both_buckets_or_takes_from_neither() -> None:
    rate = TokenRate(TokenRule(10.0, 1_000.0), TokenRule(1.0, 100.0), 0.0)
    assert rate.asked("a", 50.0, 0.0) == 0.0
    assert rate.asked("a", 50.0, 0.0) == 50.0  # its own bucket has 50 and would need 100
    assert rate.level(0.0) == 950.0
    assert rate.asked("b", 50.0, 0.0) == 0.0
    assert rate.level(0.0) == 900.0


def test_a_tenant_that_was_forgotten_begins_anew() -> None:
    rate = TokenRate(None, TokenRule(1.0, 100.0), 0.0, most_tenants=1)
    assert rate.asked("a", 100.0, 0.0) == 0.0
    assert rate.asked("a", 100.0, 0.0) == 100.0
    assert rate.asked("b", 1.0, 0.0) == 0.0
    assert rate.asked("a", 100.0, 0.0) == 0.0
    assert rate.level(0.0) is None


@pytest.mark.parametrize("rule", [(0.0, 1.0), (1.0, -1.0), (float("inf"), 1.0)])
def test_a_rate_is_a_number_above_0(rule: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="expected a finite number above 0"):
        TokenRule(*rule)


STEPS = st.lists(
    st.tuples(st.integers(0, 40).map(lambda quarter: quarter / 4.0), st.integers(1, 2_000).map(float)), max_size=60
)


@given(STEPS)
def test_in_any_stretch_of_time_no_more_is_admitted_than_burst_rate_and_one_request(
    steps: list[tuple[float, float]],
) -> None:
    rule, now, admitted = TokenRule(50.0, 500.0), 0.0, list[tuple[float, float]]()
    bucket = TokenBucket(rule, now)
    for wait, tokens in steps:
        now += wait
        shorter_passes = bucket.until_admitted_seconds(tokens / 2.0, now) == 0.0
        passes = bucket.until_admitted_seconds(tokens, now) == 0.0
        assert shorter_passes or not passes
        assert passes == (tokens <= LARGEST_SHARE * bucket.level(now) or bucket.level(now) == rule.burst_tokens)
        if passes:
            bucket.take(tokens, now)
            admitted.append((now, tokens))
    longest = max((tokens for _, tokens in admitted), default=0.0)
    for first, (begin, _) in enumerate(admitted):
        for last in range(first, len(admitted)):
            taken = sum(tokens for _, tokens in admitted[first : last + 1])
            passed = admitted[last][0] - begin
            assert taken <= rule.burst_tokens + rule.tokens_per_second * passed + longest


@given(STEPS)
def test_who_waits_as_long_as_it_is_told_is_admitted(steps: list[tuple[float, float]]) -> None:
    now = 0.0
    bucket = TokenBucket(TokenRule(64.0, 512.0), now)
    for wait, tokens in steps:
        now += wait
        now += bucket.until_admitted_seconds(tokens, now) * (1.0 + 1e-12) + 1e-9
        assert bucket.until_admitted_seconds(tokens, now) == 0.0
        bucket.take(tokens, now)
