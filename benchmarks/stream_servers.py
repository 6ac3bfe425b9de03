"""The set-ups of the benchmark of streams: a backend with few slots, and one or two gateways in front of it."""

from __future__ import annotations

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import ROOT
from benchmarks.processes import free_port, running

SETPOINT = str(Path(sys.executable).with_name("setpoint"))
PROFILE = ROOT / "envs" / "profiles" / "qwen-7b-a100.toml"
SLOTS, OUTPUT_TOKENS = 8, 64
PATIENT_SECONDS = 2.0  # with Redis: servers and clients share two cores, and what is measured is not giving up


@dataclass(frozen=True)
class Setup:
    """what: in the words of the tables. gateways, backend: addresses. keeps: whether streams can be resumed. headers:
    of each request."""

    what: str
    gateways: Sequence[str]
    backend: str
    keeps: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def setups(folder: Path, redis_url: str) -> Iterator[list[Setup]]:
    """All that are compared, in front of one backend: they take turns."""
    profile = folder / "profile.toml"
    profile.write_text(re.sub(r"(?m)^max_sequences = \d+", f"max_sequences = {SLOTS}", PROFILE.read_text()))
    with ExitStack() as stack:
        backend = stack.enter_context(_serving(folder / "backend.log", ["emulate", "--profile", str(profile)]))

        def gateways(name: str, number: int, streaming: str) -> list[str]:
            file = folder / f"{name}.toml"
            file.write_text(
                f'[gateway]\nupstream = "{backend}"\n'
                f'[tiers.redis]\nurl = "{redis_url}"\nprefix = "{name}"\nslow_seconds = {PATIENT_SECONDS}\n'
                f"[tiers.disk]\nenabled = false\n[tiers.semantic]\nenabled = false\n{streaming}"
            )
            words = ["serve", "--config", str(file)]
            logs = [folder / f"{name}-{index}.log" for index in range(number)]
            return [stack.enter_context(_serving(log, words)) for log in logs]

        memory, shared = (f'[streaming]\nenabled = true\nplace = "{place}"\n' for place in ("memory", "redis"))
        one, two = gateways("one", 1, ""), gateways("two", 2, "")
        yield [
            Setup("one gateway, each for itself", one, backend, headers={"cache-control": "no-store"}),
            Setup("one gateway", one, backend),
            Setup("one gateway, kept in memory", gateways("memory", 1, memory), backend, keeps=True),
            Setup("one gateway, kept in Redis", gateways("redis", 1, shared), backend, keeps=True),
            Setup("two gateways", two, backend),
            Setup("two gateways, joined through Redis", gateways("joined", 2, shared), backend, keeps=True),
        ]


def generated(backend: str) -> float:
    """Output tokens of all its answers so far."""
    with urllib.request.urlopen(f"{backend}/metrics") as page:
        lines = page.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith("vllm:generation_tokens_total")).split()[-1])


@contextmanager
def _serving(log: Path, words: Sequence[str]) -> Iterator[str]:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with running([SETPOINT, *words, "--port", str(port)], log, lambda: _is_up(f"{address}/healthz")):
        yield address


def _is_up(url: str) -> bool:
    with suppress(urllib.error.URLError, ConnectionError, TimeoutError), urllib.request.urlopen(url, timeout=5) as one:
        return bool(one.status == 200)
    return False
