"""Freshness in the gateway: what schedules go by is seen on the path of requests, and asked for beside it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from api.gateway.asked import Asked
from api.gateway.config_freshness import FreshnessConfig
from api.gateway.errors import NotStored
from api.gateway.guard_errors import FAILED, TOO_BUSY
from api.gateway.lasting import LOG
from api.gateway.metadata_tags import metadata_tags
from api.gateway.reasking import Beside, SpendingLimit, asked_anew
from api.http.errors import ApiError
from caches.errors import SetpointError
from caches.flight import Flight
from caches.freshness.answer_facts import facts_of
from caches.freshness.change_rate import Look, change_rate
from caches.freshness.freshness import Freshness
from caches.freshness.looks_file import LooksFile
from caches.freshness.recent import Recent
from caches.freshness.schedules import HAZARD
from caches.freshness.shift import Drift
from caches.keys.request_key import RequestKey
from caches.routing import Routing
from caches.semantic.same_answer import SameAnswer
from caches.stack import Call, Served, Stack, Watch
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer

KEEPING_SECONDS = 60.0  # between two writes of what was measured
SERVED_LATELY = 10_000  # hits of which is known how they came about, for feedback
Fetch = Callable[..., Coroutine[Any, Any, Served]]
AskedOf = Callable[..., Asked | None]


@dataclass(frozen=True)
class ServedLately:
    """How a request was answered last. similarity: below 1 for the answer to another question."""

    similarity: float
    age_seconds: float
    written_seconds: float


@dataclass
class FreshnessParts:
    """What freshness is made of, before the gateway is an application. same: whether two answers are; said: the text
    that is compared. drift: None where it is not looked for. looks: where what was measured is kept; None: nowhere."""

    config: FreshnessConfig
    freshness: Freshness
    same: SameAnswer
    said: Callable[[Answer], str]
    drift: Drift | None = None
    looks: LooksFile | None = None
    seed: int = 0


@dataclass
class FreshnessCounts:
    """Since the application began. asked_again: hits that the backend was asked about; changed: of them. not_kept:
    answers that the model was too unsure of. flushed: families that drifted, and were flushed."""

    asked_again: int = 0
    changed: int = 0
    not_kept: int = 0
    flushed: int = 0


class Freshening:
    """From the application's start to its end. clock: Unix time. flush: of a family whose answers drifted."""

    def __init__(
        self,
        parts: FreshnessParts,
        stack: Stack | Routing,
        clock: Callable[[], float],
        deadline_seconds: float,
        flush: Callable[[Selection], Awaitable[None]],
    ) -> None:
        self.parts, self.counts, self._stack, self._clock = parts, FreshnessCounts(), stack, clock
        self._flush, self._config, self.freshness = flush, parts.config, parts.freshness
        self.beside = Beside(deadline_seconds)
        self._limit = SpendingLimit(parts.config.asked_again_per_second, time.monotonic)
        self._random = random.Random(parts.seed)
        self.lately: Recent[bytes, ServedLately] = Recent(SERVED_LATELY)
        self._kept = 0  # looks, when they were written last

    async def close(self) -> None:
        await self.beside.close()
        await self._keep_looks()

    async def tend(self) -> float:
        """Returns the seconds until the next."""
        await self._keep_looks()
        return KEEPING_SECONDS

    async def _keep_looks(self) -> None:
        evidence = self.freshness.evidence
        if self.parts.looks is None or evidence.recorded == self._kept:
            return
        recorded = evidence.recorded
        try:
            await asyncio.to_thread(self.parts.looks.write, evidence.all_looks())
            self._kept = recorded
        except SetpointError as error:
            LOG.error("what was measured of changes is not kept: %s", error)

    # --- on the path of requests -----------------------------------------------------------------------------------

    def fetching(self, fetch: Fetch) -> Fetch:
        """The same, with what schedules go by noted. A few microseconds."""

        async def fetched(asked: Asked, call: Call, watch: Watch | None = None) -> Served:
            now, body = self._clock(), asked.body
            self.freshness.asked(asked.key, body.get("temperature"), body.get("top_p"), now)
            served = await fetch(asked, self._watched(asked.key, call), watch)
            if self._config.feedback:
                lately = ServedLately(served.similarity, served.age_seconds, served.answer.written_seconds)
                self.lately.note(asked.key.id, lately)
            return served

        return fetched

    def keyed(self, asked_of: AskedOf) -> AskedOf:
        """The same, with the tags that a request's metadata says."""
        if not self._config.tag_metadata:
            return asked_of

        def keying(*arguments: Any) -> Asked | None:
            asked = asked_of(*arguments)
            if asked is None or "metadata" not in asked.body:
                return asked
            tags = metadata_tags(asked.body["metadata"], self._config.tag_metadata)
            return replace(asked, key=replace(asked.key, tags=asked.key.tags | tags)) if tags else asked

        return keying

    def _watched(self, key: RequestKey, call: Call) -> Call:
        async def calling(flight: Flight[Served]) -> Answer:
            try:
                answer = await call(flight)
            except (NotStored, ApiError) as error:
                self.freshness.called(key, _is_failure(error), self._clock())
                raise
            self.freshness.called(key, False, self._clock())
            return self.sure(answer)

        return calling

    def sure(self, answer: Answer) -> Answer:
        """An answer that the model was too unsure of is served, and over before it could be kept."""
        least = self._config.least_mean_logprob
        if least is None:
            return answer
        mean = facts_of(answer.body).mean_logprob
        if mean is None or mean >= least:
            return answer
        self.counts.not_kept += 1
        return replace(answer, ttl_seconds=0.0)

    # --- beside it -------------------------------------------------------------------------------------------------

    def consider(self, asked: Asked, served: Served, call: Call) -> None:
        """Draws, and where the lot falls on this hit has the backend asked beside the request, if that may be spent."""
        if served.tier is None or served.instead is not None or served.similarity < 1.0 or served.refresh_due:
            return
        if self.freshness.rule(asked.key.partition).name != HAZARD:
            return
        if self._random.random() >= self._config.asked_again_share:
            return
        if not self._limit.take():
            self.beside.left_out += 1
            return
        self.beside.start(partial(self._ask_again, asked.key, served, call))

    async def _ask_again(self, key: RequestKey, served: Served, call: Call) -> None:
        age = self._clock() - served.answer.written_seconds
        fresh = await asked_anew(self._stack, key, self.kept(call))
        old, new = self.parts.said(served.answer), self.parts.said(fresh)
        changed = not await asyncio.to_thread(self.parts.same, old, new)
        self.counts.asked_again += 1
        self.counts.changed += changed
        if age > 0.0 and self.freshness.evidence.record(key.partition, Look(age, changed)):
            await self.estimate(key)
        await self.compared(key, served.answer, fresh)

    async def estimate(self, key: RequestKey) -> None:
        """In a thread: it takes some milliseconds."""
        looks = self.freshness.evidence.looks(key.partition)
        self.freshness.evidence.found(key.partition, await asyncio.to_thread(change_rate, looks))

    async def compared(self, key: RequestKey, old: Answer, new: Answer) -> None:
        """Two answers to one request, for whether answers drift."""
        drift = self.parts.drift
        if drift is None:
            return
        shift = await asyncio.to_thread(drift.compare, old, new)
        for family in drift.record(key, shift):
            LOG.warning("answers drift: %s", family)
            if self._config.on_shift == "flush":
                self.counts.flushed += 1
                drift.begin_anew(family)
                await self._flush(family)

    def renewing(self, key: RequestKey, served: Served, call: Call) -> Call:
        """A call that renews an entry, with the answers compared."""
        if self.parts.drift is None:
            return self.kept(call)
        sure = self.kept(call)

        async def calling(flight: Flight[Served]) -> Answer:
            fresh = await sure(flight)
            self.beside.start(partial(self.compared, key, served.answer, fresh))
            return fresh

        return calling

    def kept(self, call: Call) -> Call:
        """A call whose answer is kept unless the model was too unsure of it."""

        async def calling(flight: Flight[Served]) -> Answer:
            return self.sure(await call(flight))

        return calling


def _is_failure(error: NotStored | ApiError) -> bool:
    """Of the backend, not of the client."""
    status = error.reply.status if isinstance(error, NotStored) else error.status
    return status >= FAILED or status == TOO_BUSY
