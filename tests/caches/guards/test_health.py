"""Health beside a model: what it says follows from what it was told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from caches.breaker import Breaker, BreakerRule, State
from caches.guards.health import Condition, Health, HealthRule, OfBreaker, Together
from caches.guards.latency import LatencyRule

RULE = HealthRule(
    BreakerRule(failures=3, first_seconds=1.0),
    first_byte=LatencyRule(0.8, least=2, breaker=BreakerRule(first_seconds=2.0, probes=1)),
)


def test_without_rules_it_knows_only_what_can_be_reached() -> None:
    health = Health()
    for _ in range(100):
        health.failed(0.0)
    assert health.condition(0.0) is Condition.HEALTHY
    health.reachable = False
    assert health.condition(0.0) is Condition.DOWN
    health.answered(60.0, True, 0.0)
    assert health.condition(0.0) is Condition.HEALTHY


def test_failures_in_a_row_bring_it_down_and_one_probe_up() -> None:
    health = Health(RULE)
    for second in range(3):
        assert health.condition(float(second)) is Condition.HEALTHY
        health.began(float(second))
        health.failed(float(second))
    assert health.condition(2.9) is Condition.DOWN
    assert health.left_seconds(2.5) == 0.5
    assert health.condition(3.0) is Condition.HEALTHY  # for the one that tries
    health.began(3.0)
    assert health.condition(3.0) is Condition.DOWN
    health.answered(0.1, True, 3.1)
    assert health.condition(3.1) is Condition.HEALTHY


def test_an_error_in_the_request_shows_that_it_is_alive() -> None:
    health = Health(RULE)
    for _ in range(5):
        health.failed(0.0)
        health.failed(0.0)
        health.alive(0.0)
    assert health.condition(0.0) is Condition.HEALTHY


def test_slow_streams_make_it_slow_and_long_answers_do_not() -> None:
    health = Health(RULE)
    for _ in range(10):
        health.answered(30.0, False, 0.0)
    assert health.condition(0.0) is Condition.HEALTHY
    for _ in range(2):
        health.answered(1.0, True, 0.0)
    assert health.condition(0.0) is Condition.SLOW
    assert health.condition(2.0) is Condition.HEALTHY
    health.began(2.0)
    assert health.condition(2.0) is Condition.SLOW
    health.given_up(2.5)  # the client of the probe went away
    assert health.condition(2.5) is Condition.HEALTHY


def test_several_are_as_well_as_the_best() -> None:
    one, other = Health(RULE), Health(RULE)
    both = Together([one, other])
    one.reachable = False
    assert both.condition(0.0) is Condition.HEALTHY
    for _ in range(2):
        other.answered(1.0, True, 0.0)
    assert both.condition(0.0) is Condition.SLOW
    other.reachable = False
    assert both.condition(0.0) is Condition.DOWN


def test_a_tier_is_down_while_its_breaker_keeps_calls_back() -> None:
    breaker = Breaker(BreakerRule(first_seconds=1.0))
    tier = OfBreaker(breaker)
    breaker.failed(0.0)
    assert tier.condition(0.5) is Condition.DOWN
    assert tier.condition(1.0) is Condition.HEALTHY
    assert breaker.state is State.OPEN  # asking changes nothing


EVENTS = st.lists(
    st.tuples(st.integers(0, 8).map(lambda quarter: quarter / 4.0), st.sampled_from(["ok", "fail", "alive", "gone"])),
    max_size=60,
)


@given(EVENTS)
def test_calls_one_after_the_other_are_kept_back_as_a_breaker_would(steps: list[tuple[float, str]]) -> None:
    health, model, now = Health(HealthRule(BreakerRule(2, 1.0, 4.0))), Breaker(BreakerRule(2, 1.0, 4.0)), 0.0
    for wait, event in steps:
        now += wait
        before = health.condition(now)
        assert health.condition(now) is before
        allowed = model.allows(now)
        assert (before is Condition.HEALTHY) == allowed
        if not allowed:
            continue
        health.began(now)
        if event == "ok":
            health.answered(0.1, False, now)
            model.succeeded()
        elif event == "alive":
            health.alive(now)
            model.succeeded()
        elif event == "fail":
            health.failed(now)
            model.failed(now)
        else:
            health.given_up(now)
            model.given_up(now)
