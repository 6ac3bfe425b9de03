"""The processes of the benchmark of resilience: a backend with few slots, a smaller one, a Redis, and two gateways that
differ in `[resilience]` only."""

from __future__ import annotations

import shutil
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil

from benchmarks.fault_servers import Server, answers, answers_ping
from benchmarks.harness import ROOT
from benchmarks.http_load import post
from benchmarks.processes import free_port

SETPOINT = str(Path(sys.executable).with_name("setpoint"))
PROFILE = ROOT / "envs" / "profiles" / "qwen2.5-7b-a100.toml"
SLOTS, SPEED, OUTPUT_TOKENS = 4, 10.0, 50
ANSWER_SECONDS = OUTPUT_TOKENS * 0.012 / SPEED  # 0.06 s, four at a time: 66 answers a second
DEADLINE_SECONDS = 2.0
PATH = "/v1/chat/completions"
PLAIN, GUARDED = "without", "with"


@dataclass(frozen=True)
class Gateway:
    """One of the two."""

    port: int
    server: Server

    def cpu_seconds(self) -> float:
        """That its process has used so far."""
        times = psutil.Process(self.server.process.pid).cpu_times()
        return float(times.user + times.system)

    def sent(self) -> int:
        """Requests that went to the backend so far."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=20.0) as answer:
            lines = answer.read().decode().splitlines()
        return int(
            sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("setpoint_upstream_sent_total"))
        )


@dataclass(frozen=True)
class World:
    """upstream: with few slots. gateways: by `PLAIN` and `GUARDED`."""

    upstream: Server
    upstream_port: int
    redis_port: int
    gateways: dict[str, Gateway]


@contextmanager
def world(folder: Path, tiers: str, guards: str) -> Iterator[World]:
    """tiers, guards: parts of the settings file, of both and of the one that is guarded. FALLBACK in guards becomes the
    URL of a smaller backend that is never busy."""
    with ExitStack() as stack:
        servers: list[Server] = []

        def begun(command: Sequence[str], name: str, port: int, path: str) -> Server:
            server = Server(command, folder / f"{name}.log", lambda: answers(f"http://127.0.0.1:{port}{path}"))
            stack.callback(server.end)
            server.begin()
            servers.append(server)
            return server

        ports = [free_port() for _ in range(5)]
        upstream_port, other_port, redis_port = ports[:3]
        few = folder / "few-slots.toml"
        few.write_text(PROFILE.read_text(encoding="utf-8").replace("max_sequences = 128", f"max_sequences = {SLOTS}"))
        emulate = [SETPOINT, "emulate", "--port"]
        few_slots = [*emulate, str(upstream_port), "--profile", str(few), "--speed", str(SPEED)]
        upstream = begun(few_slots, "upstream", upstream_port, "/healthz")
        begun([*emulate, str(other_port), "--speed", "200"], "smaller", other_port, "/healthz")
        redis = shutil.which("redis-server")
        assert redis is not None  # the benchmark has looked
        options = ["--bind", "127.0.0.1", "--port", str(redis_port), "--save", "", "--appendonly", "no"]
        kept = Server([redis, *options], folder / "redis.log", lambda: answers_ping(redis_port))
        stack.callback(kept.end)
        kept.start()
        gateways = {}
        for name, port in zip((PLAIN, GUARDED), ports[3:], strict=True):
            more = guards.replace("FALLBACK", f"http://127.0.0.1:{other_port}") if name == GUARDED else ""
            file = folder / f"{name}.toml"
            file.write_text(_settings(name, upstream_port, redis_port, tiers) + more, encoding="utf-8")
            serve = [SETPOINT, "serve", "--config", str(file), "--port", str(port)]
            gateways[name] = Gateway(port, begun(serve, name, port, "/readyz"))
        for server in servers:
            server.wait()
        yield World(upstream, upstream_port, redis_port, gateways)


def question(text: str, **fields: object) -> bytes:
    body = {
        "model": "small",
        "temperature": 0,
        "max_tokens": OUTPUT_TOKENS,
        "ignore_eos": True,
        "messages": [{"role": "user", "content": text}],
        **fields,
    }
    return post(PATH, orjson.dumps(body))


def _settings(name: str, upstream_port: int, redis_port: int, tiers: str) -> str:
    redis = f'[tiers.redis]\nurl = "redis://127.0.0.1:{redis_port}/0"\nprefix = "{name}"\n' if "REDIS" in tiers else ""
    return (
        f'[gateway]\nupstream = "http://127.0.0.1:{upstream_port}"\ndeadline_seconds = {DEADLINE_SECONDS}\n'
        "health_seconds = 0.5\n[tiers.disk]\nenabled = false\n[tiers.semantic]\nenabled = false\n"
        f"{redis}{tiers.replace('REDIS', '')}\n"
    )
