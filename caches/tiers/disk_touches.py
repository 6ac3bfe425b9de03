"""When entries on disk were last touched, as far as the file does not know it yet: a lookup must not have to write."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

STEPS_PER_SECOND = 1_000_000


class Touches:
    """Numbers of touches, each larger than all before it in this process and those that it read in the file. They
    follow the callers' clock, in microseconds, so that they order the touches of several processes as well.

    Used by several threads.
    """

    def __init__(self) -> None:
        self._lock, self._latest, self._noted = Lock(), 0, dict[bytes, int]()

    def begin_after(self, number: int) -> None:
        """A touch that the file knows."""
        with self._lock:
            self._latest = max(self._latest, number)

    def next(self, now_seconds: float) -> int:
        """The number of a touch that is written at once."""
        with self._lock:
            return self._next(now_seconds)

    def note(self, entry: bytes, now_seconds: float) -> None:
        """A touch that is written later."""
        with self._lock:
            self._noted[entry] = self._next(now_seconds)

    def noted(self, entry: bytes) -> int | None:
        with self._lock:
            return self._noted.get(entry)

    def all_noted(self) -> dict[bytes, int]:
        with self._lock:
            return dict(self._noted)

    def written(self, numbers: Mapping[bytes, int]) -> None:
        """The file knows these now; what was touched again since is still to be written."""
        with self._lock:
            for entry, number in numbers.items():
                if self._noted.get(entry) == number:
                    del self._noted[entry]

    def _next(self, now_seconds: float) -> int:
        self._latest = max(self._latest + 1, int(now_seconds * STEPS_PER_SECOND))
        return self._latest
