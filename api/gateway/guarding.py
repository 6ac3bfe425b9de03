"""The guard in front of the backend, and who answers where it says no or the backend fails.

It stands where a request would cost the backend something: on a miss, and past the cache. Hits never see it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from api.gateway.asked import Asked
from api.gateway.balancing import Backend
from api.gateway.call import BackendCall
from api.gateway.errors import NotStored, Reply
from api.gateway.guard_errors import FAILED, TOO_BUSY, OverRate, Refused, is_failure, why_of
from api.gateway.guarded_call import GuardedCall, Wanted
from api.gateway.instead import asked_of_fallback, headers_to_another, template_answer, text_of, tokens_of
from api.gateway.lasting import lasting
from api.gateway.resilience import Fallback, Resilience
from api.gateway.service import GatewayService
from api.gateway.upstream import Upstream
from api.http.errors import ApiError
from caches.flight import Flight
from caches.guards.classes import PromptClass
from caches.guards.health import Condition
from caches.guards.ladder import Descent, Rung, Why
from caches.guards.negatives import Negatives
from caches.keys.fields import Endpoint
from caches.keys.request_key import Partition
from caches.stack import Call, Served, Watch
from caches.tiers.tier import Answer

Fetch = Callable[..., Coroutine[Any, Any, Served]]
Answers = (ApiError, NotStored)  # what a backend call may raise, beside bugs


@dataclass
class Ticket:
    """A call that was let through."""

    guard: Guard
    tenant: str
    tokens: float
    prompt_class: PromptClass | None
    began: float
    streamed: bool

    def answered(self, answer: Answer) -> None:
        now = self.guard.ticks()
        taken = answer.prompt_tokens + answer.output_tokens
        if self.guard.rate is not None and taken > 0:
            self.guard.rate.settle(self.tenant, self.tokens, taken, now)
        if self.prompt_class is not None:
            self.prompt_class.health.answered(now - self.began, self.streamed, now)

    def replied(self, status: int) -> None:
        """Of a response that nobody reads here."""
        if self.prompt_class is not None:
            health, now = self.prompt_class.health, self.guard.ticks()
            (health.failed if status >= FAILED else health.given_up if status == TOO_BUSY else health.alive)(now)

    def ended(self, error: BaseException) -> None:
        """What the backend refused took nothing of it; how much a call that broke off took nobody knows."""
        now, failed = self.guard.ticks(), is_failure(error)
        if self.guard.rate is not None and isinstance(error, NotStored) and not failed:
            self.guard.rate.settle(self.tenant, self.tokens, 0.0, now)
        if self.prompt_class is not None:
            health = self.prompt_class.health
            (health.failed if failed else health.given_up)(now)


class Guard:
    """Of one application."""

    def __init__(self, service: GatewayService, resilience: Resilience, upstream: Upstream) -> None:
        self._service, self._parts, self._upstream = service, resilience, upstream
        self.ticks, self.rate, self.classes = service.clocks.ticks, resilience.rate, resilience.classes
        self.refused: Counter[Why] = Counter()
        self.instead: Counter[tuple[Why, Rung | None]] = Counter()
        fallback = resilience.fallback
        self._other = upstream
        if fallback is not None and fallback.client is not None and fallback.settings is not None:
            self._other = Upstream(fallback.client, fallback.settings)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Looks at backends that nobody else looks at."""
        looking = asyncio.create_task(lasting(self._look))
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            if self._other is not self._upstream:
                await self._other.close()

    def call_of(self, *given: Any) -> GuardedCall:
        """As BackendCall."""
        parts = self._parts
        return GuardedCall(self, parts.negatives, parts.patience_seconds, self.ticks, *given)

    def fetching(self, fetch: Fetch) -> Fetch:
        """With somebody else to answer where the backend does not; of a stream, as long as nothing was sent on."""
        negatives = self._parts.negatives

        async def fetched(asked: Asked, call: Call, watch: Watch | None = None) -> Served:
            flights: list[Flight[Served]] = []

            def watching(flight: Flight[Served]) -> None:
                flights.append(flight)
                if watch is not None:
                    watch(flight)

            if negatives and isinstance(call, GuardedCall):
                call.repeat_what_was_said()  # before any tier is asked
            try:
                return await fetch(asked, call, None if watch is None else watching)
            except Answers as error:
                why = why_of(error)
                if why is None or not isinstance(call, GuardedCall) or any(one.begun for one in flights):
                    raise
                return await self._descended(fetch, asked, call, watch, why, error)

        return fetched

    # --- whether a call may go ---------------------------------------------------------------------------------------

    def admit(self, wanted: Wanted, forced: bool) -> Ticket:
        """Raises Refused."""
        now, tenant, parts = self.ticks(), wanted.partition.tenant, self._parts
        prompt, answers = tokens_of(wanted.body, wanted.body_bytes, parts.bytes_per_token, parts.output_tokens)
        prompt_class = self._class_of(wanted, prompt)
        condition = self._upstream.condition()
        if condition is Condition.DOWN:
            raise self._refusal(Why.DOWN, "The backend is not there, or failed a moment ago.", self._left_seconds(now))
        if prompt_class is not None and (
            prompt_class.rule.refused or prompt_class.health.condition(now) is not Condition.HEALTHY
        ):
            left = prompt_class.health.left_seconds(now)
            raise self._refusal(Why.CLASS, f"Requests of the class {prompt_class.rule.name} are kept back now.", left)
        if condition is Condition.SLOW and not forced:
            raise self._refusal(Why.SLOW, "The backend is slow now.", 1.0)
        left = 0.0 if self.rate is None else self.rate.asked(tenant, prompt + answers, now)
        if left > 0.0:
            raise self._refusal(Why.OVER_RATE, "Too many tokens a second are asked for; shorter ones may pass.", left)
        if prompt_class is not None:
            prompt_class.health.began(now)
        return Ticket(self, tenant, prompt + answers, prompt_class, now, wanted.streamed)

    def _class_of(self, wanted: Wanted, prompt_tokens: float) -> PromptClass | None:
        return self.classes.of(text_of(wanted.body), prompt_tokens) if self.classes.classes else None

    def _refusal(self, why: Why, message: str, left_seconds: float) -> Refused:
        self.refused[why] += 1
        return (OverRate if why is Why.OVER_RATE else Refused)(why, message, left_seconds)

    def _left_seconds(self, now: float) -> float:
        return min(backend.health.left_seconds(now) for backend in self._upstream.backends)

    # --- who answers instead -----------------------------------------------------------------------------------------

    def descent(self, why: Why, partition: Partition) -> Descent:
        rungs = self._service.settings.rules_of(partition.namespace).rungs
        return Descent(self._parts.ladder, why, tuple(Rung) if rungs is None else (*rungs, Rung.UPSTREAM))

    def fallback(self) -> Fallback | None:
        """None where there is none, or something that it needs is down."""
        fallback = self._parts.fallback
        down = fallback is None or any(one.condition(self.ticks()) is Condition.DOWN for one in fallback.on)
        return None if down else fallback

    def template(self, endpoint: Endpoint, body: dict[str, Any]) -> Answer | None:
        text = self._parts.template
        return None if text is None else template_answer(endpoint, body, text, self._service.clock())

    # --- for who looks -----------------------------------------------------------------------------------------------

    @property
    def backends(self) -> Sequence[Backend]:
        return (
            self._upstream.backends
            if self._other is self._upstream
            else (*self._upstream.backends, *self._other.backends)
        )

    @property
    def negatives(self) -> Negatives[Reply] | None:
        return self._parts.negatives

    def conditions(self) -> dict[str, Condition]:
        """Of all that can be depended on, by name."""
        return {name: node.condition(self.ticks()) for name, node in self._parts.nodes.items()}

    def tokens_left(self) -> float | None:
        return None if self.rate is None else self.rate.level(self.ticks())

    @property
    def other(self) -> Upstream:
        """Where the fallback is."""
        return self._other

    async def _descended(
        self, fetch: Fetch, asked: Asked, call: GuardedCall, watch: Watch | None, why: Why, error: Exception
    ) -> Served:
        """Raises the last error of the backend where nobody answers."""
        descent = self.descent(why, asked.key.partition)
        while (rung := descent.next()) is not None:
            call.returned = []  # of a reply that is not passed on
            try:
                served = await self._answered(rung, fetch, asked, call, watch)
            except Answers as failed:
                if rung is not Rung.UPSTREAM or why_of(failed) is None:
                    raise
                error = failed
                descent.failed()
                continue
            if served is not None:
                self.instead[why, rung] += 1
                return served if rung is Rung.UPSTREAM else replace(served, instead=rung.value, refresh_due=False)
        self.instead[why, None] += 1
        raise error

    async def _answered(
        self, rung: Rung, fetch: Fetch, asked: Asked, call: GuardedCall, watch: Watch | None
    ) -> Served | None:
        if rung is Rung.UPSTREAM:
            call.forced = True
            served: Served = await fetch(asked, call, watch)
            return served
        if rung is Rung.STALE:
            return await self._stale(asked)
        if rung is Rung.FALLBACK:
            return await self._from_fallback(asked, call, watch)
        answer = self.template(asked.endpoint, asked.body)
        return None if answer is None else Served(answer, None, 0.0)

    async def _stale(self, asked: Asked) -> Served | None:
        """Not older than the client wants."""
        served = await self._service.stack.stale(asked.key, asked.wishes.stale_seconds)
        oldest = asked.wishes.max_age_seconds
        return None if served is None or (oldest is not None and served.age_seconds > oldest) else served

    async def _from_fallback(self, asked: Asked, call: GuardedCall, watch: Watch | None) -> Served | None:
        """Kept under a key of its own."""
        fallback = self.fallback()
        if fallback is None:
            return None
        rules = self._service.settings.rules_of(asked.key.partition.namespace).key_rules
        other = asked_of_fallback(asked, fallback.model, fallback.label, rules)
        if other is None:
            return None
        headers = call.to_send if self._other is self._upstream else headers_to_another(call.to_send, self._other)
        stack = self._service.stack.of(asked.key.partition)
        asking = BackendCall(self._other, other, headers, self._service.clock)
        try:
            return await stack.fetch(other.key, asking, other.wishes.max_age_seconds, watch)
        except Answers:
            return None

    async def _look(self) -> float:
        """Of several backends the upkeep asks how they are."""
        if len(self._upstream.backends) == 1:
            await self._upstream.check()
        if self._other is not self._upstream:
            await self._other.check()
        return self._service.settings.health_seconds
