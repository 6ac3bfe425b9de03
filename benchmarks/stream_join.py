"""Streams that are kept while they come: what joining saves, what an append costs, whether resumes are right."""

from __future__ import annotations

import asyncio
import random
import re
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx
import numpy as np

from benchmarks.harness import Benchmark, Cell, Goal, Report, Table, at_most, main, say
from benchmarks.redis_process import redis_binary, redis_process, redis_version
from benchmarks.stream_appends import EVENT_BYTES, appends, rewrites
from benchmarks.stream_servers import OUTPUT_TOKENS, SLOTS, Setup, generated, setups

PATH = "/v1/chat/completions"
CLIENTS, KEYS = 32, 4
MOST_APPEND_MS = 8.0
ID = re.compile(rb"^id: (.+)$", re.MULTILINE)
DONE = b"data: [DONE]\n\n"
numbers = count()


@dataclass
class Runs:
    """Of one set-up, by round: seconds until all clients had their answers, calls of the backend; and of each client
    the seconds to its first event."""

    seconds: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    first_seconds: list[float] = field(default_factory=list)


def body(number: int) -> dict[str, object]:
    """Of a question that nobody asked before."""
    return {
        "model": "small",
        "temperature": 0,
        "stream": True,
        "max_tokens": OUTPUT_TOKENS,
        "min_tokens": OUTPUT_TOKENS,
        "messages": [{"role": "user", "content": f"How long is the way, number {number}?"}],
    }


async def one_client(client: httpx.AsyncClient, setup: Setup, address: str, asked: dict[str, object]) -> float:
    """Seconds to the first event. RuntimeError for a stream that does not end well."""
    loop, first, last = asyncio.get_running_loop(), 0.0, b""
    began = loop.time()
    async with client.stream("POST", address + PATH, json=asked, headers=setup.headers) as response:
        async for piece in response.aiter_raw():
            first = first or loop.time() - began
            last = (last + piece)[-len(DONE) :]
    if last != DONE:
        raise RuntimeError(f"{setup.what}: a stream ended with {last!r}")
    return first


async def one_round(setup: Setup, runs: Runs) -> None:
    """All clients at once, spread over keys and gateways so that each key is asked for at each gateway."""
    questions = [body(next(numbers)) for _ in range(KEYS)]
    before, loop = generated(setup.backend), asyncio.get_running_loop()
    limits = httpx.Limits(max_connections=2 * CLIENTS)
    async with httpx.AsyncClient(timeout=60.0, limits=limits) as client:
        began = loop.time()
        asked = [
            one_client(client, setup, setup.gateways[number // KEYS % len(setup.gateways)], questions[number % KEYS])
            for number in range(CLIENTS)
        ]
        runs.first_seconds += await asyncio.gather(*asked)
        runs.seconds.append(loop.time() - began)
    runs.calls.append((generated(setup.backend) - before) / OUTPUT_TOKENS)


async def cut(client: httpx.AsyncClient, address: str, asked: dict[str, object], last: bytes, most: int) -> bytes:
    """The whole events among so many bytes of the stream, or of the rest of it."""
    got, headers = b"", {"last-event-id": last.decode()} if last else {}
    async with client.stream("POST", address + PATH, json=asked, headers=headers) as response:
        response.raise_for_status()
        async for piece in response.aiter_raw():
            got += piece
            if len(got) >= most:
                break
    got = got[:most]
    return got[: got.rfind(b"\n\n") + 2] if b"\n\n" in got else b""


async def resumed_right(setup: Setup, draw: random.Random) -> bool:
    """A stream in pieces: broken off at random bytes, two to five times, each time resumed at a random gateway."""
    asked, parts, last = body(next(numbers)), list[bytes](), b""
    async with httpx.AsyncClient(timeout=60.0) as client:
        for _ in range(draw.randint(2, 5)):
            if not (parts and parts[-1].endswith(DONE)):
                parts.append(await cut(client, draw.choice(setup.gateways), asked, last, draw.randint(1, 6_000)))
                last = (ID.findall(parts[-1]) or [last])[-1]
        if not parts[-1].endswith(DONE):
            parts.append(await cut(client, draw.choice(setup.gateways), asked, last, 10**9))
        if not last:
            raise RuntimeError(f"{setup.what}: a stream without ids")
        token = last.decode().partition(":")[0]
        whole = await client.get(f"{setup.gateways[0]}/v1/cache/streams/{token}")
    return b"".join(parts) == whole.content


async def resumes(setup: Setup, number: int, seed: int) -> int:
    """How many of so many were right."""
    draw, right = random.Random(seed), 0
    for _ in range(0, number, 4):  # four at once
        seeds = [random.Random(draw.random()) for _ in range(4)]
        right += sum(await asyncio.gather(*(resumed_right(setup, one) for one in seeds)))
    return right


def measure(quick: bool) -> Report:
    binary = redis_binary()
    if binary is None:
        goal = Goal(f"append to Redis: p99 at most {MOST_APPEND_MS:g} ms", "no Redis on this machine", None)
        return Report(["Needs a Redis."], [], [goal])
    rounds, times, events = (1, 4, 10) if quick else (8, 200, 200)
    with redis_process(binary) as url, tempfile.TemporaryDirectory() as folder:
        say("appends")
        appended = asyncio.run(appends(url, CLIENTS, events))
        whole = asyncio.run(rewrites(url, CLIENTS, events))
        with setups(Path(folder), url) as all_setups:
            runs = {setup.what: Runs() for setup in all_setups}
            for turn in range(rounds + 1):  # the first one warms up
                for setup in all_setups:
                    say(f"round {turn}, {setup.what}")
                    asyncio.run(one_round(setup, Runs() if turn == 0 else runs[setup.what]))
            rights = {}
            for setup in all_setups:
                if setup.keeps:
                    say(f"resumes, {setup.what}")
                    rights[setup.what] = asyncio.run(resumes(setup, times, seed=0))
    p99 = 1000.0 * float(np.quantile(appended, 0.99))
    goals = [
        at_most("append to Redis, p99", MOST_APPEND_MS, p99, "ms"),
        Goal(f"calls of the backend for {CLIENTS} clients on {KEYS} keys: {KEYS}", *_calls(runs)),
        Goal(f"all of {times} resumes right to the byte", *_rights(rights, times)),
    ]
    tables = [_table(runs), _appends(appended, whole), _resumes(rights, times)]
    return Report(_facts(binary, rounds, events), tables, goals)


def _calls(runs: dict[str, Runs]) -> tuple[str, bool]:
    shared = {what: max(one.calls) for what, one in runs.items() if "each for itself" not in what}
    return f"at most {max(shared.values()):.1f}", all(round(calls) <= KEYS for calls in shared.values())


def _rights(rights: dict[str, int], times: int) -> tuple[str, bool]:
    return ", ".join(f"{right} {what}" for what, right in rights.items()), set(rights.values()) == {times}


def _facts(binary: str, rounds: int, events: int) -> list[str]:
    return [
        f"{CLIENTS} clients at once, each with a stream of {OUTPUT_TOKENS} tokens, on {KEYS} keys that nobody asked "
        "for before; with two gateways half of the clients of each key at each. Each for itself: with "
        "`Cache-Control: no-store`, past the cache.",
        f"Backend: `setpoint emulate` in real time with {SLOTS} sequences at once. Gateways are processes, with a tier "
        f"in memory and one in Redis {redis_version(binary)}; all share the cores of this machine with the clients.",
        f"{rounds} rounds, in which all set-ups take turns; median and [least, most] of the rounds, time to "
        "the first event over all clients.",
        f"Appends: {CLIENTS} streams at once, {events} events of {EVENT_BYTES} bytes each, 20 ms apart, from one event "
        "loop; each append is timed as the gateway does. Rewriting: the same, with all that came so far set anew.",
        "Resumes: broken off at random bytes and resumed at a random gateway, two to five times each, four at once, "
        "while the stream runs and after it; then compared with all of the stream as it is kept.",
    ]


def _table(runs: dict[str, Runs]) -> Table:
    header = ("set-up", "answers/s", "calls of the backend", "first event p50, s", "first event p99, s")
    rows: list[Sequence[Cell]] = []
    for what, one in runs.items():
        rates = [CLIENTS / seconds for seconds in one.seconds]
        p50, p99 = (float(np.quantile(one.first_seconds, share)) for share in (0.5, 0.99))
        rows.append([what, _spread(rates), _spread(one.calls), p50, p99])
    return Table(f"{CLIENTS} clients on {KEYS} keys", header, rows)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} [{min(values):.1f}, {max(values):.1f}]"


def _appends(appended: Sequence[float], whole: Sequence[float]) -> Table:
    rows: list[Sequence[Cell]] = []
    for what, taken in (("append", appended), ("rewriting the whole", whole)):
        rows.append([what, len(taken), *(1000.0 * float(np.quantile(taken, share)) for share in (0.5, 0.99, 1.0))])
    return Table("Writing events to Redis", ("what", "writes", "p50, ms", "p99, ms", "most, ms"), rows)


def _resumes(rights: dict[str, int], times: int) -> Table:
    rows: list[Sequence[Cell]] = [[what, times, right] for what, right in rights.items()]
    return Table("Resumed streams", ("set-up", "streams", "right to the byte"), rows)


if __name__ == "__main__":
    packages = ("setpoint", "uvicorn", "httpx", "redis", "hiredis")
    main(Benchmark("stream_join", "Streams joined and resumed", packages, measure))
