"""Latency: a breaker that opens when the 95th percentile of the last while is over a limit.

The percentile is read from buckets of two half-overlapping windows, so it is of the last `window_seconds` and up to as
many before, and at most a bucket (15 %) off. Hysteresis: it opens above the limit, and closes after `probes` answers in
a row, one at a time, that took no more than `close_share` of the limit.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from caches.arm_buckets import SECONDS
from caches.breaker import Breaker, BreakerRule, State
from caches.histograms import quantile
from caches.target import Histogram

SHARE = 0.95


@dataclass(frozen=True)
class LatencyRule:
    """limit_seconds: of the 95th percentile. least: answers in the window before anything is concluded."""

    limit_seconds: float = 0.8
    window_seconds: float = 10.0
    least: int = 20
    close_share: float = 0.75
    breaker: BreakerRule = field(default_factory=lambda: BreakerRule(first_seconds=2.0, probes=3))


class LatencyWindow:
    """Counts of latencies by bucket, of this window and the one before."""

    def __init__(self, window_seconds: float) -> None:
        self._seconds, self._since = window_seconds, 0.0
        self._now, self._before = _empty(), _empty()

    def add(self, seconds: float, now_seconds: float) -> None:
        self._turn(now_seconds)
        self._now[bisect_left(SECONDS, seconds)] += 1

    def count(self, now_seconds: float) -> int:
        self._turn(now_seconds)
        return sum(self._now) + sum(self._before)

    def p95_seconds(self, now_seconds: float) -> float | None:
        """None of nothing."""
        self._turn(now_seconds)
        counts = tuple(one + other for one, other in zip(self._now, self._before, strict=True))
        return quantile(Histogram(SECONDS, counts, 0.0), SHARE)

    def clear(self) -> None:
        self._now, self._before = _empty(), _empty()

    def _turn(self, now_seconds: float) -> None:
        passed = now_seconds - self._since
        if passed >= self._seconds:
            self._before = self._now if passed < 2.0 * self._seconds else _empty()
            self._now, self._since = _empty(), now_seconds


class LatencyBreaker:
    """Of one thing that answers. A call that it lets through while half-open is to be answered by `answered` or
    `given_up`; while it is open, what is asked all the same teaches it nothing."""

    def __init__(self, rule: LatencyRule = LatencyRule()) -> None:
        self.rule, self.window, self.breaker = rule, LatencyWindow(rule.window_seconds), Breaker(rule.breaker)

    def answered(self, seconds: float, now_seconds: float) -> None:
        if self.breaker.state is State.CLOSED:
            self.window.add(seconds, now_seconds)
            if self._is_over(now_seconds):
                self.breaker.trip(now_seconds)
                self.window.clear()
        elif seconds <= self.rule.close_share * self.rule.limit_seconds:
            self.breaker.succeeded()
        else:
            self.breaker.failed(now_seconds)

    def given_up(self, now_seconds: float) -> None:
        self.breaker.given_up(now_seconds)

    def _is_over(self, now_seconds: float) -> bool:
        if self.window.count(now_seconds) < self.rule.least:
            return False
        found = self.window.p95_seconds(now_seconds)
        return found is not None and found > self.rule.limit_seconds


def _empty() -> list[int]:
    return [0] * (len(SECONDS) + 1)
