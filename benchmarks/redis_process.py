"""A Redis server of a benchmark's own, in a subprocess on a free loopback port, that keeps nothing on disk."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis

START_SECONDS = 20.0


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
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", folder, "--save", "", "--appendonly", "no"]
        process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
        try:
            _wait(process, port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    with redis.Redis(port=port) as client:
        while True:
            try:
                client.ping()
            except redis.ConnectionError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"redis-server did not start on port {port}") from error
                time.sleep(0.02)
            else:
                return
