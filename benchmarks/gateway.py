"""The gateway beside the LiteLLM proxy: how many cached answers a core gives, and how long a request takes."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import litellm_peer
from benchmarks.gateway_servers import MODEL, OTHER_CORE, PINNED, Server, Servers, all_running
from benchmarks.gateway_tables import KINDS, WHOLE, Measured, Runs, goals, ratios, table_of
from benchmarks.harness import Benchmark, Report, main, say, shown
from benchmarks.http_load import at_rate, each_once, post, saturate
from benchmarks.redis_process import redis_binary, redis_process, redis_version

PATH = "/v1/chat/completions"
KEYS, CONNECTIONS, OUTPUT_TOKENS = 200, 64, 256  # a token of the emulator is four characters
PROMPT = "The ferry leaves at nine and takes cars, bicycles and dogs. " * 16  # 960 characters


@dataclass(frozen=True)
class Seconds:
    """Of one measurement: at saturation, before it to warm up, at a constant rate."""

    saturated: float
    warm: float
    steady: float


def request(number: int, stream: bool) -> bytes:
    """Of about a kilobyte, and so is its answer. The number makes it one of its own."""
    body = {
        "model": MODEL,
        "temperature": 0,
        "max_tokens": OUTPUT_TOKENS,
        "min_tokens": OUTPUT_TOKENS,
        "messages": [
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": f"How long is the way, number {number}?"},
        ],
    }
    return post(PATH, json.dumps(body | ({"stream": True} if stream else {})).encode())


class New:
    """Requests that nobody made before."""

    def __init__(self) -> None:
        self._number = itertools.count(10**9)

    def requests(self, stream: bool) -> Iterator[bytes]:
        """Lengths are those of numbers of ten digits."""
        like = request(10**9, stream)
        before, after = like.split(b"1000000000")
        return (before + b"%d" % number + after for number in self._number)


def measured(
    server: Server, requests: Iterator[bytes], seconds: Seconds, rate: float | None, backend: Server | None
) -> Measured:
    """rate: of the second part; None for half of what the first one reached."""
    asked = None if backend is None else generated(backend)
    saturate(server.port, requests, CONNECTIONS, seconds.warm)
    used = server.cpu_seconds()
    saturated = saturate(server.port, requests, CONNECTIONS, seconds.saturated)
    used = server.cpu_seconds() - used
    steady = at_rate(server.port, requests, rate or saturated.per_second / 2.0, CONNECTIONS, seconds.steady)
    counted = len(saturated.latencies_seconds)
    cached = None
    if backend is not None and asked is not None:
        answered = (generated(backend) - asked) / OUTPUT_TOKENS
        cached = 1.0 - answered / (counted + len(steady.latencies_seconds))
    return Measured(saturated, steady, used / counted, cached)


def generated(emulator: Server) -> float:
    """Output tokens of all its answers so far."""
    with urllib.request.urlopen(f"{emulator.url}/metrics") as page:
        lines = page.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith("vllm:generation_tokens_total")).split()[-1])


def one_round(servers: Servers, kind: str, seconds: Seconds, new: New, runs: Runs) -> None:
    stream = KINDS[kind]
    keys = [request(number, stream) for number in range(KEYS)]

    def turn(server: Server, ask: Callable[[], Iterator[bytes]], rate: float | None, backend: Server | None) -> None:
        say(f"{server.what}, {kind}")
        with server.awake():
            if backend is not None:
                each_once(server.port, keys)
            runs.setdefault((server.what, kind), []).append(measured(server, ask(), seconds, rate, backend))

    def again() -> Iterator[bytes]:
        return itertools.cycle(keys)

    if kind == WHOLE:
        turn(servers.fixed, again, None, None)
    turn(servers.missing, lambda: new.requests(stream), None, None)
    steady = runs[servers.missing.what, kind][-1].steady
    turn(servers.emulator, lambda: new.requests(stream), steady.per_second, None)
    for tier, server in servers.hits.items():
        turn(server, again, None, servers.backend)
        if tier in servers.litellm:
            turn(servers.litellm[tier], again, None, servers.backend)


def measure(quick: bool) -> Report:
    seconds, rounds = (Seconds(1.0, 0.3, 1.0), 1) if quick else (Seconds(2.0, 1.0, 4.0), 3)
    before = os.sched_getaffinity(0) if PINNED else None
    if before is not None:
        os.sched_setaffinity(0, {OTHER_CORE})
    binary = redis_binary()
    try:
        if binary is None:
            return compared(None, seconds, rounds)
        with redis_process(binary) as url:
            return compared(url, seconds, rounds)
    finally:
        if before is not None:
            os.sched_setaffinity(0, before)


def compared(redis_url: str | None, seconds: Seconds, rounds: int) -> Report:
    runs: Runs = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        all_running(Path(folder), redis_url, 4 * OUTPUT_TOKENS + 350) as servers,
    ):
        new = New()
        for _ in range(rounds):
            for kind in KINDS:
                one_round(servers, kind, seconds, new, runs)
    tables = [table_of(runs, kind) for kind in KINDS]
    return Report(facts(redis_url, seconds, rounds, runs), [*tables, ratios(servers, runs)], goals(servers, runs))


def facts(redis_url: str | None, seconds: Seconds, rounds: int, runs: Runs) -> list[str]:
    where = "on a core of its own" if PINNED else "on any core: this system does not pin processes"
    fixed = runs["fixed bytes", WHOLE]
    highest = max(one.saturated.busy for (what, _), its in runs.items() if what != "fixed bytes" for one in its)
    binary = redis_binary()
    beside = "no Redis on this machine" if redis_url is None or binary is None else f"Redis {redis_version(binary)}"
    return [
        f"Chat completions of {len(request(0, False)):,} bytes with their heads, answers of {OUTPUT_TOKENS} tokens, "
        f"about 1.4 kB; {KEYS} keys in turn, temperature 0. Hits were asked for once before.",
        f"The server that is measured is {where}, one process; all others are paused, but for {beside}, the backend "
        "(`setpoint emulate`) and the load generator on the other core. Equal requests only "
        "(`--no-semantic`). A hit in Redis: the memory tier holds some "
        f"forty answers, so that of {KEYS} in turn none is there.",
        f"{rounds} rounds, in each of which all take turns: {CONNECTIONS} connections for {seconds.saturated:g} s, "
        f"then {seconds.steady:g} s at half of the rate reached (the emulator alone: at the rate of the miss), latency "
        "from when a request was due to the last byte. Median and [least, most] of the rounds.",
        f"Generator: one thread (benchmarks/http_load.py); it got {shown(fixed[0].saturated.per_second)} answers/s of "
        f"fixed bytes and worked {100 * fixed[0].saturated.busy:.0f} % of that time, and at most {100 * highest:.0f} % "
        "beside the others.",
        f"LiteLLM proxy {litellm_peer.VERSION}, its default server, one worker, no keys, no database, its cache alone.",
    ]


if __name__ == "__main__":
    packages = ("setpoint", "uvicorn", "starlette", "redis", "hiredis")
    main(Benchmark("gateway", "The gateway beside the LiteLLM proxy", packages, measure))
