"""The breaker's table of states, by hand and beside a model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from caches.breaker import Breaker, BreakerRule, State


def test_it_opens_probes_and_closes() -> None:
    breaker = Breaker(BreakerRule(failures=1, first_seconds=1.0, longest_seconds=3.0))
    assert breaker.allows(0.0)
    breaker.failed(0.0)
    assert breaker.state is State.OPEN
    assert not breaker.allows(0.9)
    assert breaker.allows(1.0)  # one probe
    assert breaker.state is State.HALF_OPEN
    assert not breaker.allows(1.0)
    breaker.failed(1.5)
    assert not breaker.allows(3.4)
    assert breaker.allows(3.5)  # two seconds later
    breaker.failed(3.5)
    assert not breaker.allows(6.4)  # four would be too long: three
    assert breaker.allows(6.5)
    breaker.succeeded()
    assert breaker.state is State.CLOSED
    breaker.failed(7.0)
    assert breaker.allows(8.0)  # the pause is the first again
    assert breaker.opened == 4


def test_failures_count_in_a_row() -> None:
    breaker = Breaker(BreakerRule(failures=3))
    for outcome in (breaker.failed, breaker.failed):
        outcome(0.0)
    breaker.succeeded()
    breaker.failed(0.0)
    breaker.failed(0.0)
    assert breaker.state is State.CLOSED
    breaker.failed(0.0)
    assert breaker.state is State.OPEN


def test_a_late_success_does_not_close_what_has_opened() -> None:
    breaker = Breaker()
    assert breaker.allows(0.0)
    assert breaker.allows(0.0)
    breaker.failed(0.1)
    breaker.succeeded()
    assert breaker.state is State.OPEN


def test_a_probe_that_is_given_up_makes_way_for_the_next() -> None:
    breaker = Breaker(BreakerRule(first_seconds=5.0))
    breaker.failed(0.0)
    assert breaker.allows(5.0)
    breaker.given_up(6.0)
    assert breaker.state is State.OPEN
    assert breaker.allows(6.0)


QUARTERS = st.integers(0, 12).map(lambda number: number / 4.0)  # of a second: sums of them are exact


@given(st.lists(st.tuples(QUARTERS, st.sampled_from(["ok", "fail", "give up"])), max_size=60))
def test_between_failures_and_the_next_probe_nothing_goes_through(steps: list[tuple[float, str]]) -> None:
    """Calls one after the other: a model that keeps the time from which on calls may go through again."""
    breaker, now, closed, pause, free_from = Breaker(BreakerRule(1, 1.0, 4.0)), 0.0, True, 1.0, 0.0
    for wait, outcome in steps:
        now += wait
        allowed = breaker.allows(now)
        assert allowed == (closed or now - free_from >= pause)
        if not allowed:
            continue
        if outcome == "ok":
            breaker.succeeded()
            closed, pause = True, 1.0
        elif outcome == "fail":
            breaker.failed(now)
            pause = 1.0 if closed else min(2.0 * pause, 4.0)
            closed, free_from = False, now
        else:
            breaker.given_up(now)
            free_from = free_from if closed else now - pause


def test_several_probes_close_it_one_at_a_time() -> None:
    breaker = Breaker(BreakerRule(first_seconds=1.0, probes=2))
    breaker.failed(0.0)
    assert not breaker.would_allow(0.5)
    assert breaker.left_seconds(0.25) == 0.75
    assert breaker.would_allow(1.0)
    assert breaker.state is State.OPEN  # asking changes nothing
    assert breaker.allows(1.0)
    assert not breaker.would_allow(1.0)
    breaker.succeeded()
    assert breaker.state is State.HALF_OPEN
    assert breaker.allows(1.0)
    breaker.succeeded()
    assert breaker.state is State.CLOSED
    breaker.trip(2.0)
    assert breaker.allows(3.0)
    breaker.succeeded()
    assert breaker.allows(3.0)
    breaker.failed(3.0)  # the second probe: all begins anew, for twice as long
    assert not breaker.allows(4.9)
    assert breaker.allows(5.0)
    breaker.succeeded()
    assert breaker.state is State.HALF_OPEN


def test_it_trips_for_any_reason_and_once() -> None:
    breaker = Breaker(BreakerRule(failures=100, first_seconds=1.0))
    breaker.trip(0.0)
    breaker.trip(0.9)
    assert (breaker.state, breaker.opened) == (State.OPEN, 1)
    assert breaker.allows(1.0)
