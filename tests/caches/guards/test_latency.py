"""The latency breaker: what opens it, and that it does not close as easily."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from caches.breaker import BreakerRule, State
from caches.guards.latency import LatencyBreaker, LatencyRule, LatencyWindow

RULE = LatencyRule(0.8, 10.0, 20, 0.75, BreakerRule(first_seconds=2.0, longest_seconds=8.0, probes=3))


def slow_one() -> LatencyBreaker:
    """That opened at second 1."""
    one = LatencyBreaker(RULE)
    for _ in range(20):
        one.answered(2.0, 1.0)
    return one


def test_it_opens_when_more_than_a_twentieth_is_over_the_limit() -> None:
    one = LatencyBreaker(RULE)
    for _ in range(95):
        one.answered(0.3, 1.0)
    for _ in range(4):
        one.answered(3.0, 1.0)
    assert one.breaker.state is State.CLOSED  # 4 of 99
    for _ in range(2):
        one.answered(3.0, 1.0)
    assert one.breaker.state is State.OPEN  # 6 of 101


def test_a_few_answers_conclude_nothing() -> None:
    one = LatencyBreaker(RULE)
    for _ in range(19):
        one.answered(60.0, 1.0)
    assert one.breaker.state is State.CLOSED
    one.answered(60.0, 1.0)
    assert one.breaker.state is State.OPEN


def test_what_was_slow_two_windows_ago_is_forgotten() -> None:
    one = LatencyBreaker(RULE)
    for _ in range(19):
        one.answered(60.0, 1.0)
    one.answered(60.0, 40.0)
    assert one.breaker.state is State.CLOSED
    assert one.window.count(40.0) == 1


def test_it_closes_after_three_that_are_well_within_the_limit_one_at_a_time() -> None:
    one = slow_one()
    assert not one.breaker.allows(2.9)
    for tries in range(3):
        assert one.breaker.allows(3.0)
        assert not one.breaker.allows(3.0)  # one is on its way
        assert one.breaker.state is State.HALF_OPEN, tries
        one.answered(0.6, 3.0)
    assert one.breaker.state is State.CLOSED
    assert one.window.p95_seconds(3.0) is None  # it begins anew


def test_within_the_limit_alone_is_not_enough() -> None:
    one = slow_one()
    assert one.breaker.allows(3.0)
    one.answered(0.7, 3.0)  # under 0.8, over 0.6
    assert one.breaker.state is State.OPEN
    assert not one.breaker.allows(6.9)  # for twice as long
    assert one.breaker.allows(7.0)


def test_what_is_asked_all_the_same_while_it_is_open_teaches_nothing() -> None:
    one = slow_one()
    for _ in range(10):
        one.answered(0.1, 1.5)
    assert not one.breaker.allows(2.0)


@given(st.lists(st.floats(0.001, 100.0), min_size=1, max_size=200))
def test_the_percentile_is_within_a_bucket(seconds: list[float]) -> None:
    window = LatencyWindow(10.0)
    for one in seconds:
        window.add(one, 5.0)
    rank = -(-95 * len(seconds) // 100)  # the smallest value that 95 % do not exceed
    exact, found = sorted(seconds)[rank - 1], window.p95_seconds(5.0)
    assert found is not None
    assert exact / 1.16 <= found <= exact * 1.16
