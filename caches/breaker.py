"""A breaker: what failed is left alone for a while, then tried by one call.

    closed     calls go through; a failure opens it (`failures` in a row, one by default)
    open       no call goes through until `pause` seconds have passed
    half-open  one call goes through: success closes it, failure opens it for twice as long, at most `longest_seconds`

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


class Breaker:
    """Time is an argument, and of any clock that does not go back."""

    def __init__(self, rule: BreakerRule = BreakerRule()) -> None:
        self._rule, self.state = rule, State.CLOSED
        self._in_a_row, self._pause, self._since = 0, rule.first_seconds, 0.0
        self.opened = 0  # times

    def allows(self, now_seconds: float) -> bool:
        """Whether a call may go through now."""
        if self.state is State.OPEN and now_seconds - self._since >= self._pause:
            self.state = State.HALF_OPEN
            return True
        return self.state is State.CLOSED

    def succeeded(self) -> None:
        """A call that began while it was closed may come back when it no longer is: only a probe closes it."""
        if self.state is not State.OPEN:
            self.state, self._in_a_row, self._pause = State.CLOSED, 0, self._rule.first_seconds

    def given_up(self, now_seconds: float) -> None:
        """Nothing was learnt: the next call may probe."""
        if self.state is State.HALF_OPEN:
            self.state, self._since = State.OPEN, now_seconds - self._pause

    def failed(self, now_seconds: float) -> None:
        if self.state is State.OPEN:
            return
        self._in_a_row += 1
        if self.state is State.HALF_OPEN:
            self._pause = min(2.0 * self._pause, self._rule.longest_seconds)
        elif self._in_a_row < self._rule.failures:
            return
        self.state, self._since, self.opened = State.OPEN, now_seconds, self.opened + 1
