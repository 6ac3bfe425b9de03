"""A Redis server of a benchmark's own, in a subprocess on a free loopback port, that keeps nothing on disk."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import redis

from benchmarks.processes import free_port, running


def redis_binary() -> str | None:
    """None where none is installed."""
    return shutil.which("redis-server")


def redis_version(binary: str) -> str:
    """As `v=` of its own line, such as 7.0.15."""
    line = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    return next(word.removeprefix("v=") for word in line.split() if word.startswith("v="))


@contextmanager
def redis_process(binary: str) -> Iterator[str]:
    """URL of a server that answers; it ends with the block."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", folder, "--save", "", "--appendonly", "no"]
        with running([binary, *options], Path(folder) / "redis.log", lambda: _answers(port)):
            yield f"redis://127.0.0.1:{port}/0"


def _answers(port: int) -> bool:
    with redis.Redis(port=port) as client, suppress(redis.ConnectionError):
        return bool(client.ping())
    return False
