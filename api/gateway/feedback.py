"""`POST /v1/cache/feedback`: what a client says of an answer that it got, and what follows from that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from fastapi import Request
from fastapi.responses import Response

from api.access.rates import Rate
from api.gateway.access import partition_of_request
from api.gateway.asked import read_body
from api.gateway.auditing import Auditing
from api.gateway.freshening import Freshening, ServedLately
from api.gateway.invalidating import fingerprint_of
from api.gateway.settings import GatewaySettings
from api.http.delivery import json_response
from api.http.errors import ApiError, BadRequest, Missing
from caches.freshness.lifetime import Verdict
from caches.freshness.recent import Recent
from caches.keys.request_key import Partition, RequestKey
from caches.routing import Routing
from caches.semantic.checking import HitChecker
from caches.semantic.verification import Outcome
from caches.stack import Stack

FIELDS = frozenset({"key", "verdict"})
PARTIAL = 503
MOST_PARTITIONS = 10_000  # clients name them


class TooOften(ApiError):
    """More feedback in a minute than is taken."""

    status = 429
    kind = "rate_limit_error"


@dataclass
class Judged:
    """Verdicts of a partition, on answers of the cache."""

    counts: dict[Verdict, int] = field(default_factory=lambda: dict.fromkeys(Verdict, 0))
    by_meaning: int = 0  # of those called wrong


class Feedback:
    """Raises BadRequest, NoKey, TooOften, and Missing where it is turned off. ticks: a clock that is never set."""

    def __init__(
        self,
        settings: GatewaySettings,
        stack: Stack | Routing,
        freshening: Freshening | None,
        auditing: Auditing,
        checker: HitChecker | None,
        ticks: Callable[[], float],
    ) -> None:
        self._settings, self._stack, self._auditing, self._checker = settings, stack, auditing, checker
        self._freshening, self._on = freshening, freshening is not None and freshening.parts.config.feedback
        per_minute = freshening.parts.config.feedback_per_minute if freshening is not None else 1
        self._rate = Rate(per_minute, ticks)
        self.judged: Recent[Partition, Judged] = Recent(MOST_PARTITIONS)

    async def take(self, request: Request) -> Response:
        partition = partition_of_request(request, self._settings)
        if self._freshening is None or not self._on:
            raise Missing("This gateway takes no feedback (feedback in [freshness]).")
        wait = self._rate.take(partition.tenant)
        if wait is not None:
            raise TooOften("Too much feedback from this tenant.", headers={"retry-after": str(wait)})
        fingerprint, verdict = await self._body(request)
        told = {"namespace": partition.namespace, "key": fingerprint.hex(), "verdict": verdict.value}
        self._auditing.note("feedback", request, told)
        key = RequestKey(partition, fingerprint, fingerprint)
        removed = await self._followed(self._freshening, key, verdict)
        return json_response(told | {"removed": removed}, PARTIAL if None in removed.values() else 200)

    async def _body(self, request: Request) -> tuple[bytes, Verdict]:
        try:
            body: Any = orjson.loads(await read_body(request, self._settings.largest_body_bytes))
        except orjson.JSONDecodeError as error:
            raise BadRequest(f"The body is not valid JSON: {error}") from error
        if not isinstance(body, dict) or not set(body) <= FIELDS:
            raise BadRequest(f"The body: expected an object with {' and '.join(sorted(FIELDS))}.")
        if body.get("verdict") not in list(Verdict):
            expected = ", ".join(Verdict)
            raise BadRequest(f"verdict: got {str(body.get('verdict'))[:40]!r}, expected {expected}", "verdict")
        return fingerprint_of(body.get("key")), Verdict(body["verdict"])

    async def _followed(self, freshening: Freshening, key: RequestKey, verdict: Verdict) -> dict[str, int | None]:
        """Returns what was removed, by tier."""
        lately = freshening.lately.get(key.id)
        by_meaning = lately is not None and lately.similarity < 1.0
        judged = self.judged.known_or(key.partition, Judged)
        judged.counts[verdict] += 1
        freshening.freshness.judged(key, verdict, by_meaning)
        if verdict is Verdict.USEFUL:
            return {}
        freshening.lately.drop(key.id)  # what is said of it again proves nothing more
        if verdict is Verdict.STALE and lately is not None:
            await self._outdated(freshening, key, lately)
        if not by_meaning:
            return await self._stack.clear(key)
        if verdict is Verdict.WRONG and lately is not None:
            judged.by_meaning += 1
            self._wrong_by_meaning(freshening, key, lately)
        return {}

    async def _outdated(self, freshening: Freshening, key: RequestKey, lately: ServedLately) -> None:
        if freshening.freshness.evidence.report_stale(key.partition, lately.age_seconds):
            await freshening.estimate(key)

    def _wrong_by_meaning(self, freshening: Freshening, key: RequestKey, lately: ServedLately) -> None:
        """The entry that was served answers its own question, and may do that well, so it stays. Clients report what
        they please, so unless they are trusted this changes no threshold."""
        if self._checker is not None and freshening.parts.config.feedback_is_trusted:
            self._checker.verification.record(key.partition, Outcome(lately.similarity, right=False))
