"""A bucket that fills at an even rate: how often something may be done, and how much of it at once."""

from __future__ import annotations


class Bucket:
    """Full at first. per_second, most: how fast it fills, and how far. Time is an argument, of any clock; one that goes
    back counts as standing still."""

    def __init__(self, per_second: float, most: float, now_seconds: float) -> None:
        self._per_second, self._most = per_second, most
        self._level, self._at = most, now_seconds

    def level(self, now_seconds: float) -> float:
        """What is in it now; below 0 it is in debt."""
        passed = max(now_seconds - self._at, 0.0)
        return min(self._level + self._per_second * passed, self._most)

    def left_seconds(self, wanted: float, now_seconds: float) -> float:
        """Until so much is in it, if nobody took any; 0 where it is now, infinite for more than it holds."""
        if wanted > self._most:
            return float("inf")
        return max(wanted - self.level(now_seconds), 0.0) / self._per_second

    def take(self, amount: float, now_seconds: float) -> None:
        """For what goes on; whether it may is for the caller to ask. Below 0 gives back, never beyond full."""
        self._level = min(self.level(now_seconds) - amount, self._most)
        self._at = max(self._at, now_seconds)
