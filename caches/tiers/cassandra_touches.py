"""When entries in Cassandra were last touched, as far as the database does not know it yet: a lookup must not have to
write, and what is asked for all the time must not be written all the time."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

STEPS_PER_SECOND = 1_000_000
Place = tuple[str, str, bytes]


class Touch(NamedTuple):
    """number: as `CassandraTouches.next`. left_seconds: of the entry's lifetime in the database. first_seconds: since
    when one of this entry waits to be written."""

    number: int
    left_seconds: int
    first_seconds: float


class CassandraTouches:
    """Numbers follow the callers' clock, in microseconds, so that they order the touches of several processes as well;
    each is larger than all before it in this process."""

    def __init__(self) -> None:
        self._latest = 0
        self._noted: dict[Place, Touch] = {}

    def __len__(self) -> int:
        return len(self._noted)

    def next(self, now_seconds: float) -> int:
        """The number of a touch that is written at once."""
        self._latest = max(self._latest + 1, int(now_seconds * STEPS_PER_SECOND))
        return self._latest

    def begin_after(self, number: int) -> None:
        """A touch that the database knows, of a process whose clock is ahead of ours."""
        self._latest = max(self._latest, number)

    def note(self, place: Place, left_seconds: int, now_seconds: float) -> None:
        """A touch that is written later."""
        before = self._noted.get(place)
        first = now_seconds if before is None else before.first_seconds
        self._noted[place] = Touch(self.next(now_seconds), left_seconds, first)

    def noted(self, place: Place) -> int:
        """0 where none waits."""
        touch = self._noted.get(place)
        return 0 if touch is None else touch.number

    def forget(self, place: Place) -> None:
        """The entry has gone, or was stored anew."""
        self._noted.pop(place, None)

    def due(self, before_seconds: float, most: int | None = None) -> dict[Place, Touch]:
        """Those that have waited since then, or longer; so many at most, in the order in which they began to wait."""
        waiting = ((place, touch) for place, touch in self._noted.items() if touch.first_seconds <= before_seconds)
        return dict(islice(waiting, most))

    def written(self, touches: dict[Place, Touch]) -> None:
        """The database knows these now; what was touched again since still waits."""
        for place, touch in touches.items():
            if self._noted.get(place) == touch:
                del self._noted[place]
