"""Servers that a benchmark or a test may kill, hold and start again, at the same port each time."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import redis

START_SECONDS, STOP_SECONDS = 120.0, 20.0


class Server:
    """command: whose first word is looked up on the PATH. log: for what it says; its folder is that of the process."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        is_up: Callable[[], bool] = lambda: True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command, self.log, self._is_up, self._environment = [*command], log, is_up, environment
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Does not wait until it is up."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=output, cwd=self.log.parent, env=self._environment
            )

    def wait(self) -> None:
        """Until it is up. RuntimeError, with its own words, where it is not in time."""
        deadline = time.monotonic() + START_SECONDS
        while not self._is_up():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self._command[0]} did not start: {self.said()[-2000:]}")
            time.sleep(0.02)

    def start(self) -> None:
        self.begin()
        self.wait()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self._command[0]}: it was not started")
        return self._process

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """With SIGKILL, as when a machine goes away."""
        self.process.kill()
        self.process.wait()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Stopped where it stands, with all its connections open, for as long as the block lasts."""
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    def end(self) -> None:
        """With SIGTERM first. Also one that is gone, or never was there."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


def answers(url: str) -> bool:
    """Whether it answers a GET with 200."""
    try:
        with urllib.request.urlopen(url, timeout=5.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def answers_ping(port: int) -> bool:
    with redis.Redis(port=port) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
