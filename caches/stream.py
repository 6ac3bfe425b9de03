"""The seam of a stream log: a streamed answer, event by event, kept while it comes. tests/contracts/stream_contract.py
is what every log has to pass.

Who calls the backend writes; whoever lost a connection, or asks for the same at another gateway, reads, from any event
on and up to the end. A log has one writer for ever: the object that opened it. A writer that says nothing for
`lease_seconds` is taken for dead; from the moment a reader is told so, nothing that it appends is taken any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from caches.errors import InputError, SetpointError


class StreamState(Enum):
    """done: all of it is there. failed: its writer says why it breaks off. abandoned: its writer says nothing more."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    ABANDONED = "abandoned"


class Fenced(SetpointError):
    """The log is not this writer's, or not any more: it has ended, was given up, or is not there."""


class TooLong(SetpointError):
    """The stream has more bytes than a log may hold. What was appended before is still there."""


@dataclass(frozen=True)
class Part:
    """What a reader found. name: that the log was opened under. events: all that are there after those that it had.
    state: after these. why: what a stream that failed is to tell those who read it; empty otherwise."""

    name: bytes
    events: tuple[bytes, ...]
    state: StreamState
    why: bytes = b""


@dataclass(frozen=True)
class StreamRules:
    """largest_bytes: of the events of one stream. kept_seconds: that a stream can be read after its end. lease_seconds:
    without a word of the writer, then it counts as dead. Raises InputError for what is not above 0."""

    largest_bytes: int = 4 * 2**20
    kept_seconds: float = 60.0
    lease_seconds: float = 5.0

    def __post_init__(self) -> None:
        for name in ("largest_bytes", "kept_seconds", "lease_seconds"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name}: got {getattr(self, name)}, expected above 0")


class StreamLog(Protocol):
    """Streams by id, which is as long and random as a secret, since who knows it may read. Methods raise TierError
    where the log cannot be reached. Whatever a writer says it may say again, with the same result: it cannot know what
    became of a call that was not answered.

    `wanted_seconds`: for so long after a read of a running stream somebody counts as reading it.
    """

    rules: StreamRules
    wanted_seconds: float

    async def open(self, stream_id: str, name: bytes) -> None:
        """A new log. From now on `current` finds it, unless another that is running is found under this name. Raises
        Fenced where there is one of this id that is another writer's, or has ended."""

    async def append(self, stream_id: str, offset: int, events: Sequence[bytes]) -> None:
        """Events after the first `offset` ones; those that are there already stay as they are. Raises Fenced, TooLong,
        and ValueError where events before these are missing."""

    async def renew(self, stream_id: str, name: bytes) -> None:
        """The writer lives. Raises Fenced."""

    async def finish(self, stream_id: str, name: bytes) -> None:
        """It is complete. Raises Fenced."""

    async def fail(self, stream_id: str, name: bytes, why: bytes) -> None:
        """It breaks off here. Raises Fenced."""

    async def hide(self, stream_id: str, name: bytes) -> None:
        """`current` does not find it any more, nor again after `renew`. Who knows the id can still read."""

    async def current(self, name: bytes) -> str | None:
        """The id of the stream that runs under this name."""

    async def read(self, stream_id: str, after: int, wait_seconds: float = 0.0) -> Part | None:
        """All events after the first `after` ones. While it runs and there are none, waits for them up to
        `wait_seconds`. None where there is no such log, or none any more."""

    async def wanted(self, stream_id: str) -> bool:
        """Whether somebody read it lately."""
