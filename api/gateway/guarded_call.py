"""A call of the backend behind the guard: it is made only where the guard lets it, and tells it how it went."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from api.gateway.asked import Asked
from api.gateway.call import BackendCall
from api.gateway.errors import Headers, NotStored, Reply, TooLate
from caches.flight import Flight
from caches.guards.negatives import LASTING_STATUSES, Negatives
from caches.keys.request_key import Partition
from caches.stack import Served
from caches.tiers.tier import Answer


@dataclass(frozen=True)
class Wanted:
    """What a request wants of the backend. body_bytes: how long it came."""

    partition: Partition
    body: dict[str, Any]
    body_bytes: int
    streamed: bool

    @classmethod
    def of(cls, asked: Asked) -> Wanted:
        return cls(asked.key.partition, asked.body, len(asked.raw), asked.streamed)


class Ticket(Protocol):
    """For one call that was let through; exactly one of the two is called."""

    def answered(self, answer: Answer) -> None: ...

    def ended(self, error: BaseException) -> None: ...


class Gate(Protocol):
    """What a guarded call asks. Raises Refused. forced: also where the backend is slow."""

    def admit(self, wanted: Wanted, forced: bool) -> Ticket: ...


class GuardedCall(BackendCall):
    """patience_seconds: to the whole answer, or to a stream's first piece. ticks: never set. given: as of a
    BackendCall."""

    def __init__(
        self,
        gate: Gate,
        negatives: Negatives[Reply] | None,
        patience_seconds: float | None,
        ticks: Callable[[], float],
        *given: Any,
    ) -> None:
        super().__init__(*given)
        self._gate, self._negatives, self._patience, self._ticks = gate, negatives, patience_seconds, ticks
        self.forced, self._name = False, b""

    @property
    def to_send(self) -> Headers:
        """With the request's headers, as the backend gets them."""
        return self._headers

    async def __call__(self, flight: Flight[Served]) -> Answer:
        self.repeat_what_was_said()
        ticket = self._gate.admit(Wanted.of(self._asked), self.forced)
        try:
            answer = await self._in_patience(flight)
        except BaseException as error:
            ticket.ended(error)
            if isinstance(error, NotStored):
                self._keep(error)
            raise
        ticket.answered(answer)
        return answer

    async def _in_patience(self, flight: Flight[Served]) -> Answer:
        if self._patience is None:
            return await super().__call__(flight)
        working = asyncio.ensure_future(super().__call__(flight))
        try:
            done, _ = await asyncio.wait({working}, timeout=self._patience)
            if not done and not flight.begun:
                raise TooLate(f"The backend gave no answer within {self._patience:g} seconds.")
            return await working
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    def repeat_what_was_said(self) -> None:
        """Raises NotStored where this request was wrong a moment ago."""
        if self._negatives is None:
            return
        if not self._name:
            key = next((value for name, value in self._headers if name == b"authorization"), b"")
            # whether a model is there may depend on whose key it is
            self._name = self._asked.key.id + hashlib.blake2b(key, digest_size=16).digest()
        if self._asked.wishes.max_age_seconds is not None:
            return  # nobody knows how old it may be
        reply = self._negatives.get(self._name, self._ticks())
        if reply is not None:
            raise NotStored(reply)

    def _keep(self, error: NotStored) -> None:
        reply = error.reply
        if self._negatives is not None and reply.status in LASTING_STATUSES and not error.in_stream:
            self._negatives.keep(self._name, reply, len(reply.body), self._ticks())
