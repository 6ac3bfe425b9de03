"""What depends on what: names, cycles, and that being down passes on."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.breaker import Breaker, BreakerRule
from caches.errors import InputError
from caches.guards.dependencies import Dependencies, DependentBreaker
from caches.guards.health import Health, OfBreaker

NAMES = ("memory", "redis", "semantic", "upstream", "fallback")


def test_a_cycle_is_named() -> None:
    with pytest.raises(InputError, match=r"depends_on: got the cycle (\w+) -> \w+ -> \w+ -> \1, expected none"):
        Dependencies({"redis": ["semantic"], "semantic": ["upstream"], "upstream": ["redis"]}, NAMES)
    with pytest.raises(InputError, match="depends_on: got the cycle redis -> redis, expected none"):
        Dependencies({"redis": ["redis"]}, NAMES)


def test_a_cycle_reads_as_it_is_written() -> None:
    with pytest.raises(InputError) as told:
        Dependencies({"redis": ["semantic"], "semantic": ["upstream"], "upstream": ["redis"]}, NAMES)
    cycle = str(told.value).removeprefix("depends_on: got the cycle ").partition(",")[0].split(" -> ")
    says = {"redis": "semantic", "semantic": "upstream", "upstream": "redis"}
    assert all(says[one] == other for one, other in pairwise(cycle))


def test_names_that_are_not_there_are_named() -> None:
    with pytest.raises(InputError, match=r"depends_on.semantic: got 'vectors', expected of memory, redis"):
        Dependencies({"semantic": ["vectors"]}, NAMES)
    with pytest.raises(InputError, match=r"depends_on.disk: got 'disk', expected of memory"):
        Dependencies({"disk": ["redis"]}, NAMES)


def test_what_is_far_counts_too() -> None:
    graph = Dependencies({"fallback": ["semantic", "upstream"], "semantic": ["redis", "upstream"]}, NAMES)
    assert graph.all_of("fallback") == ("semantic", "upstream", "redis")
    assert graph.all_of("memory") == ()


@given(st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3), max_size=5))
def test_a_graph_is_refused_where_something_depends_on_itself(on: dict[str, list[str]]) -> None:
    def reached(name: str) -> set[str]:
        seen: set[str] = set()
        left = list(on.get(name, ()))
        while left:
            one = left.pop()
            if one not in seen:
                seen.add(one)
                left += on.get(one, ())
        return seen

    if any(name in reached(name) for name in NAMES):
        with pytest.raises(InputError, match="got the cycle"):
            Dependencies(on, NAMES)
    else:
        graph = Dependencies(on, NAMES)
        assert all(set(graph.all_of(name)) == reached(name) for name in NAMES)


def test_calls_are_kept_back_while_what_is_needed_is_down_and_that_is_no_failure() -> None:
    redis, upstream = Breaker(BreakerRule(first_seconds=1.0)), Health()
    breaker = DependentBreaker(BreakerRule(), [OfBreaker(redis), upstream])
    assert breaker.allows(0.0)
    redis.failed(0.0)
    assert not breaker.allows(0.5)
    assert not breaker.would_allow(0.5)
    assert breaker.opened == 0
    assert breaker.allows(1.0)  # redis may be tried again, so this may be too
    upstream.reachable = False
    assert not breaker.allows(1.0)
    upstream.reachable = True
    breaker.failed(1.0)  # and it has failures of its own
    assert not breaker.allows(1.5)
