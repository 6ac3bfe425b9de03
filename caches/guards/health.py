"""Health: what is known of a thing that answers, in one place for all that ask.

A backend's answers tell it, and looks at the backend from time to time; the choice between backends, the guard in front
of them, warming and the metrics read it. Without rules it knows only whether the thing can be reached.

    DOWN     it cannot be reached, or its last answers were failures (caches/breaker.py)
    SLOW     it answers, and its 95th percentile is over the limit (caches/guards/latency.py)
    HEALTHY  nothing is known against it; also where the next call is to find out whether that is so again
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from caches.breaker import Breaker, BreakerRule
from caches.guards.latency import LatencyBreaker, LatencyRule


class Condition(IntEnum):
    """The worse, the higher."""

    HEALTHY = 0
    SLOW = 1
    DOWN = 2


@dataclass(frozen=True)
class HealthRule:
    """failures: in a row, of calls that broke off, took too long or were errors of the thing itself. first_byte: of
    streams, from the request to the first byte of the answer. whole: of answers that come in one piece. None: not
    watched."""

    failures: BreakerRule | None = None
    first_byte: LatencyRule | None = None
    whole: LatencyRule | None = None


class HasCondition(Protocol):
    """What a guard asks of whatever something depends on."""

    def condition(self, now_seconds: float) -> Condition: ...


class Health:
    """Of one thing. reachable: as it was found last. Time is an argument, and of any clock that does not go back."""

    def __init__(self, rule: HealthRule = HealthRule()) -> None:
        self.reachable = True
        self.failures = None if rule.failures is None else Breaker(rule.failures)
        self.latencies = {
            streamed: LatencyBreaker(one)
            for streamed, one in ((True, rule.first_byte), (False, rule.whole))
            if one is not None
        }

    def condition(self, now_seconds: float) -> Condition:
        """Nothing changes by asking."""
        if not self.reachable or not (self.failures is None or self.failures.would_allow(now_seconds)):
            return Condition.DOWN
        slow = not all(one.breaker.would_allow(now_seconds) for one in self.latencies.values())
        return Condition.SLOW if slow else Condition.HEALTHY

    def began(self, now_seconds: float) -> None:
        """A call goes out, which is the probe where one is due. It has to end by `answered`, `failed` or `given_up`."""
        if self.failures is not None:
            self.failures.allows(now_seconds)
        for one in self.latencies.values():
            one.breaker.allows(now_seconds)

    def answered(self, seconds: float, streamed: bool, now_seconds: float) -> None:
        """seconds: to the first byte of its body."""
        self.reachable = True
        if self.failures is not None:
            self.failures.succeeded()
        for watched, one in self.latencies.items():
            if watched == streamed:
                one.answered(seconds, now_seconds)
            else:
                one.given_up(now_seconds)

    def alive(self, now_seconds: float) -> None:
        """It answered, with something that says nothing of how quick it is, such as what is wrong with a request."""
        self.reachable = True
        if self.failures is not None:
            self.failures.succeeded()
        for one in self.latencies.values():
            one.given_up(now_seconds)

    def failed(self, now_seconds: float) -> None:
        if self.failures is not None:
            self.failures.failed(now_seconds)
        for one in self.latencies.values():
            one.given_up(now_seconds)

    def given_up(self, now_seconds: float) -> None:
        """Whoever called went away: nothing was learnt."""
        if self.failures is not None:
            self.failures.given_up(now_seconds)
        for one in self.latencies.values():
            one.given_up(now_seconds)

    def left_seconds(self, now_seconds: float) -> float:
        """Until the next call may go to what failed; 0 where it may now, or nobody knows."""
        return 0.0 if self.failures is None else self.failures.left_seconds(now_seconds)


class OfBreaker:
    """A tier in its place: down while its breaker keeps calls back."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker

    def condition(self, now_seconds: float) -> Condition:
        return Condition.HEALTHY if self._breaker.would_allow(now_seconds) else Condition.DOWN


class Together:
    """Several that do the same work: as well as the best of them."""

    def __init__(self, members: Sequence[HasCondition]) -> None:
        self._members = tuple(members)

    def condition(self, now_seconds: float) -> Condition:
        return min(member.condition(now_seconds) for member in self._members)
