"""The clients of the benchmark of techniques: they ask an application in this process, and judge what they get."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson
from fastapi import FastAPI
from starlette.types import Message

from api.gateway.access import DEFAULT, NAMESPACE_HEADER
from api.gateway.answering import CACHE_HEADER, KEY_HEADER
from api.gateway.events import END
from api.gateway.stream_tokens import LAST_EVENT_HEADER, RESUME_HEADER
from benchmarks.technique_traffic import Ask, Traffic
from caches.guards.ladder import Rung

PATH, FEEDBACK, INVALIDATE = "/v1/chat/completions", "/v1/cache/feedback", "/v1/cache/invalidate"
SAID = re.compile(rb"Answer (\d+), version (\d+)\.")
EVENT_ID = re.compile(rb"id: ([^\n]+)\n")
INSTEAD = frozenset(rung.value for rung in (Rung.STALE, Rung.FALLBACK, Rung.TEMPLATE))
AWAY_SECONDS = 1.0  # a client whose connection broke is back after so long
REPORTED_SHARE = 0.2  # of the answers that a client sees to be wrong or outdated, where the gateway takes feedback
OBJECTIVE_SECONDS = 2.0
WRONG_STATUS = 400


@dataclass
class Judged:
    """Counts of answers. latencies: of all requests to the end of their answer, s. slow: those that took
    OBJECTIVE_SECONDS more than an idle backend would. instead: a stale answer or a smaller model's, by a rung of the
    ladder."""

    hits: int = 0
    instead: int = 0
    wrong: int = 0
    stale: int = 0
    failed: int = 0
    slow: int = 0
    latencies: list[float] = field(default_factory=list)


@dataclass
class Reply:
    """is_cut: the client lost its connection before the end."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_cut: bool = False


class Caller:
    """One request to an application, as a server would hand it over."""

    def __init__(self, body: bytes, pieces_before_drop: int | None) -> None:
        self.reply, self._body, self._left = Reply(), body, pieces_before_drop
        self._gone, self._pieces, self._is_sent = asyncio.Event(), list[bytes](), False

    async def receive(self) -> Message:
        if not self._is_sent:
            self._is_sent = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.reply.status = message["status"]
            self.reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif not self.reply.is_cut and message.get("body"):
            self._pieces.append(message["body"])
            if self._left is not None and len(self._pieces) >= self._left and message.get("more_body"):
                self.reply.is_cut = True
                self._gone.set()

    def ended(self) -> Reply:
        self.reply.body = b"".join(self._pieces)
        return self.reply


async def call(app: FastAPI, path: str, body: bytes, headers: dict[str, str], drop: int | None = None) -> Reply:
    given = {"host": "gateway", "content-type": "application/json", "content-length": str(len(body)), **headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
    }
    caller = Caller(body, drop)
    await app(scope, caller.receive, caller.send)
    return caller.ended()


class Clients:
    """reports: whether they tell the gateway of bad answers. ticks: time of the run."""

    def __init__(self, app: FastAPI, traffic: Traffic, ticks: Callable[[], float], *, reports: bool) -> None:
        self._app, self._traffic, self._ticks, self._reports = app, traffic, ticks, reports
        self._chance = random.Random(0)
        self.judged = Judged()

    async def replay(self) -> None:
        """All requests when they are due, and flushes."""
        async with asyncio.TaskGroup() as group:
            for seconds in self._traffic.troubles.flushes:
                group.create_task(self._flush(seconds))
            for one in self._traffic.asks:
                wait = one.due_seconds - self._ticks()
                if wait > 0.0:
                    await asyncio.sleep(wait)
                group.create_task(self._ask(one))

    async def _flush(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds - self._ticks(), 0.0))
        wish = orjson.dumps({"namespace": DEFAULT, "flush": True})
        reply = await call(self._app, INVALIDATE, wish, {})
        if reply.status != 200:
            raise RuntimeError(f"a flush: got {reply.status} {reply.body[:200]!r}, expected 200")

    async def _ask(self, one: Ask) -> None:
        began = self._ticks()
        headers = {} if one.namespace == DEFAULT else {NAMESPACE_HEADER: one.namespace}
        reply = await call(self._app, PATH, one.body, headers, one.pieces_before_drop)
        if reply.is_cut:
            reply = await self._again(one, headers, reply)
        seconds = self._ticks() - began
        self.judged.latencies.append(seconds)
        if await self._is_answered(one, reply, began, headers):
            self.judged.slow += seconds > one.work_seconds + OBJECTIVE_SECONDS
        else:
            self.judged.failed += 1

    async def _again(self, one: Ask, headers: dict[str, str], cut: Reply) -> Reply:
        """For the rest, where there is one to be had; else for all of it."""
        await asyncio.sleep(AWAY_SECONDS)
        ids = EVENT_ID.findall(cut.body)
        if ids and RESUME_HEADER in cut.headers:
            rest = await call(self._app, PATH, one.body, headers | {LAST_EVENT_HEADER: ids[-1].decode()})
            if rest.status == 200:
                return Reply(200, cut.headers, cut.body + rest.body)
        return await call(self._app, PATH, one.body, headers)

    async def _is_answered(self, one: Ask, reply: Reply, began: float, headers: dict[str, str]) -> bool:
        if one.is_wrong:
            return reply.status == WRONG_STATUS
        said = SAID.search(reply.body)
        whole = END in reply.body or not one.is_streamed
        if reply.status != 200 or said is None or not whole:
            return False
        told = reply.headers.get(CACHE_HEADER, "")
        self.judged.hits += told.startswith("hit")
        self.judged.instead += told in INSTEAD
        meaning, version = int(said[1]), int(said[2])
        is_wrong = meaning != one.meaning
        is_stale = not is_wrong and version < self._traffic.truth.version(meaning, began)
        self.judged.wrong += is_wrong
        self.judged.stale += is_stale
        if self._reports and (is_wrong or is_stale) and self._chance.random() < REPORTED_SHARE:
            verdict = {"key": reply.headers[KEY_HEADER], "verdict": "wrong" if is_wrong else "stale"}
            await call(self._app, FEEDBACK, orjson.dumps(verdict), headers)
        return True
