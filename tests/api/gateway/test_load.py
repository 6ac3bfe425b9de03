"""What the gateway counts of its own load, beside plain lists."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from api.gateway.load import LEAST_SECONDS, Load
from caches.flight import Flight
from caches.stack import Served
from caches.tiers.tier import Answer


@dataclass
class Ticks:
    now: float = 50.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.floats(0.0, 3_600.0), min_size=1, max_size=300))
def test_p99_is_at_most_a_tenth_too_much(seconds: list[float]) -> None:
    """Of n responses the one at place 0.99 n, rounded up."""
    load = Load(ticks=Ticks())
    for one in seconds:
        load.answered(one)
    exact = max(sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1], LEAST_SECONDS)
    told = load.p99_seconds()
    assert told is not None
    assert exact * (1 - 1e-9) <= told <= exact * 1.1 * (1 + 1e-9)


def test_what_is_longer_ago_than_two_windows_is_forgotten() -> None:
    ticks = Ticks()
    load = Load(10.0, ticks)
    assert (load.p99_seconds(), load.hit_ratio()) == (None, None)
    load.answered(5.0)
    load.looked(True)
    ticks.now += 9.9
    load.looked(False)
    assert load.hit_ratio() == 0.5
    ticks.now += 9.9  # the window before
    load.looked(False)
    assert load.hit_ratio() == 1 / 3
    assert load.p99_seconds() is not None
    ticks.now += 10.0
    assert load.hit_ratio() == 0.0
    assert load.p99_seconds() is None
    ticks.now += 20.0
    assert load.hit_ratio() is None


async def test_calls_are_counted_while_they_are_on_their_way() -> None:
    load, seen = Load(), list[int]()

    async def call(flight: Flight[Served]) -> Answer:
        seen.append(load.calls)
        if len(seen) == 2:
            raise ValueError("told to fail")
        return Answer(b"", 0.0)

    await load.counted(call)(Flight())
    try:
        await load.counted(call)(Flight())
    except ValueError:
        seen.append(load.calls)
    assert seen == [1, 1, 0]
