"""A breaker: what failed is left alone for a while, then tried by one call at a time.

    closed     calls go through; a failure opens it (`failures` in a row, one by default), and so does `trip`
    open       no call goes through until `pause` seconds have passed
    half-open  one call at a time goes through: `probes` successes close it, one by default; a failure opens it for
               twice as long, at most `longest_seconds`

A call that goes through must be answered by `succeeded`, `failed` or, where it was not finished, `given_up`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True)
class BreakerRule:
    failures: int = 1
    first_seconds: float = 1.0
    longest_seconds: float = 60.0
    probes: int = 1


class Breaker:
    """Time is an argument, and of any clock that does not go back."""

    def __init__(self, rule: BreakerRule = BreakerRule()) -> None:
        self._rule, self.state = rule, State.CLOSED
        self._in_a_row, self._pause, self._since = 0, rule.first_seconds, 0.0
        self._probing, self._passed = False, 0  # while half-open
        self.opened = 0  # times

    def would_allow(self, now_seconds: float) -> bool:
        """Whether a call could go through now; nothing changes by asking."""
        if self.state is State.OPEN:
            return now_seconds - self._since >= self._pause
        return self.state is State.CLOSED or not self._probing

    def allows(self, now_seconds: float) -> bool:
        """Whether a call may go through now."""
        if self.state is State.CLOSED:
            return True
        if not self.would_allow(now_seconds):
            return False
        if self.state is State.OPEN:
            self.state, self._passed = State.HALF_OPEN, 0
        self._probing = True
        return True

    def left_seconds(self, now_seconds: float) -> float:
        """Until the next call may go through; 0 where one may now, and while one is on its way."""
        return max(self._since + self._pause - now_seconds, 0.0) if self.state is State.OPEN else 0.0

    def succeeded(self) -> None:
        """A call that began while it was closed may come back when it no longer is: only a probe closes it."""
        if self.state is State.OPEN:
            return
        self._probing, self._passed = False, self._passed + 1
        if self.state is State.CLOSED or self._passed >= self._rule.probes:
            self.state, self._in_a_row, self._pause = State.CLOSED, 0, self._rule.first_seconds

    def given_up(self, now_seconds: float) -> None:
        """Nothing was learnt: the next call may probe."""
        if self.state is State.HALF_OPEN:
            self.state, self._since, self._probing = State.OPEN, now_seconds - self._pause, False

    def failed(self, now_seconds: float) -> None:
        if self.state is State.OPEN:
            return
        self._in_a_row += 1
        if self.state is State.HALF_OPEN or self._in_a_row >= self._rule.failures:
            self.trip(now_seconds)

    def trip(self, now_seconds: float) -> None:
        """Opens it for a reason of the caller's own, as a failure would; where it is open already nothing changes."""
        if self.state is State.OPEN:
            return
        if self.state is State.HALF_OPEN:
            self._pause = min(2.0 * self._pause, self._rule.longest_seconds)
        self.state, self._since, self._probing, self.opened = State.OPEN, now_seconds, False, self.opened + 1
