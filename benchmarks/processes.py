"""Servers of a benchmark's own: a process on a free loopback port, which ends with its block."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

START_SECONDS, STOP_SECONDS = 180.0, 10.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(
    command: Sequence[str],
    log: Path,
    is_up: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
    core: int | None = None,
) -> Iterator[int]:
    """The id of the process, once it is up. log: for what it says; its folder is that of the process. core: the only
    one that it may use. RuntimeError, with its own words, where it does not start."""
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=log.parent)
    try:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})  # before it has threads of its own
        deadline = time.monotonic() + START_SECONDS
        while not is_up():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start: {log.read_text(encoding='utf-8')[-2000:]}")
            time.sleep(0.02)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
