"""Hits by meaning, verified: on a share of them the backend is asked anyway, off the path of the request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson

from api.gateway.arm_counting import ArmCount, ArmCounting
from api.gateway.asked import Asked
from api.gateway.errors import NotStored
from api.http.errors import ApiError
from caches.flight import Flight, LeaderGone
from caches.keys.request_key import RequestKey
from caches.routing import Routing
from caches.semantic.checking import HitChecker
from caches.stack import Call, Served, Stack
from caches.tiers.tier import Answer, Found

MOST_AT_ONCE = 16  # verifications on their way; a hit that is drawn while there are as many is not verified


class _Elsewhere(Exception):
    """Another request has the backend asked for it just now."""


class Verifying:
    """What the backend says is kept too: who asks this again gets the answer to this very question. failed: that the
    backend did not answer. left_out: drawn, but not verified because there was too much to do. counting: where the
    cache is tuned, counts what came out for the arm whose hit it was."""

    def __init__(
        self,
        stack: Stack | Routing,
        checker: HitChecker,
        deadline_seconds: float,
        counting: ArmCounting | None = None,
    ) -> None:
        self.checker, self.failed, self.left_out = checker, 0, 0
        self._stack, self._deadline_seconds, self._counting = stack, deadline_seconds, counting
        self._work: set[asyncio.Task[None]] = set()

    def consider(self, asked: Asked, served: Served, call: Call) -> None:
        """Draws, and where the lot falls on this hit has it verified beside the request."""
        found = Found(served.answer, served.similarity)
        if not self.checker.chosen(found):
            return
        if len(self._work) >= MOST_AT_ONCE:
            self.left_out += 1
            return
        count = None if self._counting is None else self._counting.of(asked.key)
        task = asyncio.create_task(self._verify(asked.key, found, call, count))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def close(self) -> None:
        work = list(self._work)
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)

    async def _verify(self, key: RequestKey, found: Found, call: Call, count: ArmCount | None) -> None:
        """count: of the arm that the key belonged to when it hit."""
        try:
            async with asyncio.timeout(self._deadline_seconds):
                right = await self.checker.check(key, found, self._asking(key, call))
        except (NotStored, ApiError, LeaderGone, TimeoutError):
            self.failed += 1
        except _Elsewhere:
            self.left_out += 1
        else:
            if count is not None:
                count.verified(right)

    def _asking(self, key: RequestKey, call: Call) -> Callable[[], Any]:
        async def ask() -> Answer:
            got: list[Answer] = []

            async def kept(flight: Flight[Served]) -> Answer:
                got.append(await call(flight))
                return got[0]

            await self._stack.renew(key, kept)
            if not got:
                raise _Elsewhere
            return got[0]

        return ask


def said(answer: Answer) -> str:
    """What an answer says, without what differs each time: of a chat the text and the tools that it calls."""
    body = orjson.loads(answer.body)
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        return answer.body.decode("utf-8", "replace")
    return "\n".join(_choice(choice) for choice in choices)


def _choice(choice: dict[str, Any]) -> str:
    message = choice.get("message")
    if not isinstance(message, dict):
        return str(choice.get("text") or "")
    functions = [call.get("function") for call in message.get("tool_calls") or () if isinstance(call, dict)]
    calls = [f"{one.get('name')} {one.get('arguments')}" for one in functions if isinstance(one, dict)]
    text = message.get("content")
    return "\n".join([text if isinstance(text, str) else "", *calls])
