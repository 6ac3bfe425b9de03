"""The access log beside a live cache: records are taken at once and written by a thread, or dropped and counted.

Whoever adds a record never waits for a disk or a network, and never sees an error of one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from caches.errors import SetpointError
from traces.access.record import AccessRecord

MOST_WAITING = 100_000
MOST_AT_ONCE = 1_000  # the thread that answers requests waits while rows are made of them


class NotWritten(SetpointError):
    """A destination failed. records: how many of those that it was given are lost with it, earlier ones among them."""

    def __init__(self, message: str, records: int) -> None:
        super().__init__(message)
        self.records = records


class Destination(Protocol):
    """Where a log lies. All calls come from one thread, `close` last."""

    def ready(self) -> bool:
        """Whether writing is worth a try; while it is not, records wait, as long as there is room for them."""

    def write(self, records: Sequence[AccessRecord], now_seconds: float) -> None:
        """Raises NotWritten; may be used on after that."""

    def tend(self, now_seconds: float) -> None:
        """Called about every `every_seconds`. Raises NotWritten."""

    def close(self) -> None:
        """Finishes what is under way. Raises NotWritten."""


class AccessLog:
    """`start` it, `add` records, `close` it. most_waiting: records between those who add and the thread. every_seconds:
    how often the thread looks. clock: Unix time.

    recorded: all that were added. dropped: those of them that are in no log, since there was no room for them or their
    destination failed; last_error: how it failed last.
    """

    def __init__(
        self,
        destination: Destination,
        most_waiting: int = MOST_WAITING,
        every_seconds: float = 0.5,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._destination, self._room, self._every, self._clock = destination, most_waiting, every_seconds, clock
        self._waiting: deque[AccessRecord] = deque()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="access-log", daemon=True)
        self.recorded = 0
        self._refused, self._lost = 0, 0  # each is counted by one thread only
        self.last_error: str | None = None

    @property
    def dropped(self) -> int:
        return self._refused + self._lost

    def start(self) -> None:
        self._thread.start()

    def add(self, record: AccessRecord) -> None:
        """For one thread, that of the event loop. No lock, and nothing is woken: the thread looks by itself."""
        self.recorded += 1
        if len(self._waiting) < self._room:
            self._waiting.append(record)
        else:
            self._refused += 1

    def close(self) -> None:
        """Waits until all that was added is written or lost. What is added later is dropped."""
        self._room = 0
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _work(self) -> None:
        while not self._stopping.wait(self._every):
            if self._destination.ready():
                self._write_waiting()
                self._tried(lambda: self._destination.tend(self._clock()))
        self._write_waiting()
        self._tried(self._destination.close)

    def _write_waiting(self) -> None:
        while count := min(len(self._waiting), MOST_AT_ONCE):
            records = [self._waiting.popleft() for _ in range(count)]
            self._tried(lambda records=records: self._destination.write(records, self._clock()))  # type: ignore[misc]

    def _tried(self, step: Callable[[], None]) -> None:
        try:
            step()
        except NotWritten as error:
            self._lost += error.records
            self.last_error = str(error)
