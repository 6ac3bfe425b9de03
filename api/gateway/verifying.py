"""Hits by meaning, verified: on a share of them the backend is asked anyway, off the path of the request."""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson

from api.gateway.arm_counting import ArmCount, ArmCounting
from api.gateway.asked import Asked
from api.gateway.reasking import Beside, asked_anew
from caches.keys.request_key import RequestKey
from caches.routing import Routing
from caches.semantic.checking import HitChecker
from caches.stack import Call, Served, Stack
from caches.tiers.tier import Answer, Found


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
        self.checker, self._stack, self._counting = checker, stack, counting
        self._beside = Beside(deadline_seconds)

    @property
    def failed(self) -> int:
        return self._beside.failed

    @property
    def left_out(self) -> int:
        return self._beside.left_out

    def consider(self, asked: Asked, served: Served, call: Call) -> None:
        """Draws, and where the lot falls on this hit has it verified beside the request."""
        found = Found(served.answer, served.similarity)
        if not self.checker.chosen(found):
            return
        count = None if self._counting is None else self._counting.of(asked.key)
        self._beside.start(partial(self._verify, asked.key, found, call, count))

    async def close(self) -> None:
        await self._beside.close()

    async def _verify(self, key: RequestKey, found: Found, call: Call, count: ArmCount | None) -> None:
        """count: of the arm that the key belonged to when it hit."""
        right = await self.checker.check(key, found, partial(asked_anew, self._stack, key, call))
        if count is not None:
            count.verified(right)


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
