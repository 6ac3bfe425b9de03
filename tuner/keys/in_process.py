"""The key stream of a cache in this very process: records of its requests, handed over through a bounded queue."""

from __future__ import annotations

from collections import deque
from math import nan

from caches.target import Arm
from envs.journal import Batch
from traces.access.record import AccessRecord
from traces.access.secret import key_hash, new_secret
from tuner.keys.stream import ID_BYTES, Pending, Taken, batch_of

MOST_WAITING = 200_000


class InProcessKeys:
    """A `KeyStream`. `add` is for one thread, that of the event loop, and costs it nothing to speak of; everything else
    is for another.

    secret: of the keys' hashes; with that of an access log, a key is called the same as there. most_waiting: records
    that wait to be taken; dropped: those that found no room.
    """

    delay_seconds = 0.0

    def __init__(self, secret: bytes | None = None, most_waiting: int = MOST_WAITING) -> None:
        self._hashed = key_hash(new_secret() if secret is None else secret)
        self._waiting: deque[AccessRecord] = deque()
        self._room, self.dropped, self._told = most_waiting, 0, 0
        self._pending = Pending()

    def add(self, record: AccessRecord) -> None:
        if len(self._waiting) < self._room:
            self._waiting.append(record)
        else:
            self.dropped += 1

    def take(self, until_seconds: float) -> Taken:
        records = [self._waiting.popleft() for _ in range(len(self._waiting))]
        self._pending.add(
            self._batch([one for one in records if one.key_id is not None and one.size_bytes is not None])
        )
        lost = self.dropped - self._told
        self._told += lost
        notes = (f"{lost:,} requests were not seen: more than {self._room:,} waited.",) if lost else ()
        return self._pending.take(until_seconds, notes)

    def _batch(self, records: list[AccessRecord]) -> Batch:
        return batch_of(
            [int.from_bytes(self._hashed(one.key_id or b"")[:ID_BYTES], "big") for one in records],
            [one.arrival_seconds for one in records],
            [one.size_bytes or 0 for one in records],
            [nan if one.ttl_seconds is None else one.ttl_seconds for one in records],
            ([one.prompt_tokens or 0 for one in records], [one.output_tokens or 0 for one in records]),
            [one.arm == Arm.TREATMENT for one in records],
        )
