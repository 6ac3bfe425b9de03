"""The servers of the gateway's benchmark: processes on one core, paused while they are not asked."""

from __future__ import annotations

import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks import litellm_peer
from benchmarks.processes import free_port, running

SETPOINT = str(Path(sys.executable).with_name("setpoint"))
FIXED = str(Path(__file__).with_name("fixed_server.py"))
MODEL = "small"
SERVER_CORE, OTHER_CORE = 0, 1
# Whether this machine lets processes be kept to a core, and has two; asked before this one is kept to one itself.
PINNED = hasattr(os, "sched_setaffinity") and {SERVER_CORE, OTHER_CORE} <= os.sched_getaffinity(0)
LEAST_MEMORY = 2**16  # bytes; holds some forty answers


@dataclass(frozen=True)
class Server:
    """A server on 127.0.0.1. what: in the words of the tables."""

    what: str
    port: int
    process: psutil.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        """That the process has used so far."""
        times = self.process.cpu_times()
        return times.user + times.system

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Only in here does it run."""
        self.process.resume()
        try:
            yield
        finally:
            self.process.suspend()


@dataclass(frozen=True)
class Servers:
    """fixed: answers the same bytes whatever comes. missing: a gateway whose backend answers at once, for requests that
    were not there before. hits: by tier ("memory", "Redis"), of the gateway and of LiteLLM; why_not: why there is none
    of LiteLLM, if so. backend: of those with hits, and slower, as models are: a cache in front of a backend that
    answers within a lookup's time would leave its tiers alone."""

    fixed: Server
    emulator: Server
    missing: Server
    backend: Server
    hits: Mapping[str, Server]
    litellm: Mapping[str, Server]
    why_not: str


@contextmanager
def all_running(folder: Path, redis_url: str | None, answer_bytes: int) -> Iterator[Servers]:
    """Those that are measured on one core, paused; backends on the other, with the generator. folder: for what they
    say. redis_url: None where there is none."""
    with ExitStack() as stack:

        def start(what: str, command: Sequence[str], path: str | None = None, core: int = SERVER_CORE) -> Server:
            server = stack.enter_context(_running(folder, what, [*command], path, core))
            if core == SERVER_CORE:
                server.process.suspend()
                stack.callback(server.process.resume)  # to be stopped
            return server

        emulate, serve = ([SETPOINT, verb, "--port", "PORT"] for verb in ("emulate", "serve"))
        fastest = [*emulate, "--speed", "1000000"]
        at_once = start("backend at once", fastest, "/healthz", OTHER_CORE)
        backend = start("backend", [*emulate, "--speed", "10"], "/healthz", OTHER_CORE)
        serve += ["--no-semantic", "--no-disk"]  # LiteLLM answers equal requests only, and from memory or Redis
        behind = [*serve, "--upstream", backend.url]
        hits = {"memory": start("Setpoint, hit in memory", behind, "/readyz")}
        if redis_url is not None:
            small = [*behind, "--memory-bytes", str(LEAST_MEMORY), "--redis", redis_url]
            hits["Redis"] = start("Setpoint, hit in Redis", small, "/readyz")
        litellm, why_not = dict[str, Server](), ""
        try:
            program = str(litellm_peer.program())
            for tier in hits:
                file = folder / f"litellm-{tier}.json"
                file.write_text(litellm_peer.config(MODEL, backend.url, redis_url if tier == "Redis" else None))
                proxy = [program, "--config", str(file), "--host", "127.0.0.1", "--port", "PORT"]
                litellm[tier] = start(f"LiteLLM, hit in {tier}", proxy, "/health/liveliness")
        except litellm_peer.Unavailable as error:
            why_not = str(error)
        yield Servers(
            fixed=start("fixed bytes", [sys.executable, FIXED, "PORT", str(answer_bytes)]),
            emulator=start("emulator alone", fastest, "/healthz"),
            missing=start("Setpoint, miss", [*serve, "--upstream", at_once.url], "/readyz"),
            backend=backend,
            hits=hits,
            litellm=litellm,
            why_not=why_not,
        )


@contextmanager
def _running(folder: Path, what: str, command: Sequence[str], path: str | None, core: int) -> Iterator[Server]:
    """PORT in the command becomes a free one. It is up when it answers at `path`, or takes a connection."""
    port = free_port()
    line = [str(port) if part == "PORT" else part for part in command]
    kept_to = core if PINNED else None
    with running(line, folder / f"{what}.log", lambda: _is_up(port, path), _environment(), kept_to) as process:
        yield Server(what, port, psutil.Process(process))


def _environment() -> Mapping[str, str]:
    return os.environ | litellm_peer.ENVIRONMENT


def _is_up(port: int, path: str | None) -> bool:
    with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
        if path is None:
            with socket.create_connection(("127.0.0.1", port), 1.0):
                return True
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5.0) as answer:
            return bool(answer.status == 200)
    return False
