"""Real Redis and Prometheus servers for tests, started by fixtures on free loopback ports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

START_SECONDS = 20.0
STOP_SECONDS = 10.0


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an empty Redis that keeps nothing on disk. Shared by the session: clean up your keys."""
    folder = tmp_path_factory.mktemp("redis")
    port = free_port()
    command = [require("redis-server"), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    url = f"redis://127.0.0.1:{port}/0"
    with running([*command, "--save", "", "--appendonly", "no"], folder, lambda: answers_ping(url)):
        yield url


@pytest.fixture(scope="session")
def prometheus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Prometheus that scrapes itself every second."""
    folder = tmp_path_factory.mktemp("prometheus")
    port = free_port()
    settings = folder / "prometheus.yml"
    settings.write_text(
        "global: {scrape_interval: 1s}\n"
        "scrape_configs:\n"
        f"  - {{job_name: prometheus, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n",
        encoding="utf-8",
    )
    url = f"http://127.0.0.1:{port}"
    command = [
        require("prometheus"),
        f"--config.file={settings}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with running(command, folder, lambda: is_ready(f"{url}/-/ready")):
        yield url


def require(binary: str) -> str:
    """Path of the binary. Without it the test is skipped, but fails under CI, where nobody sees a skip."""
    path = shutil.which(binary)
    if path is None:
        reason = f"{binary} is not installed (make test installs it where it may)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(command: list[str], folder: Path, is_up: Callable[[], bool]) -> Iterator[subprocess.Popen[bytes]]:
    """Start, wait until it answers, stop in the end. Where it does not start, fail with its own words."""
    log = folder / "log.txt"
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not is_up():
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{command[0]} did not start:\n{log.read_text(encoding='utf-8')[-2000:]}")
            time.sleep(0.02)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers_ping(url: str) -> bool:
    with redis.Redis.from_url(url) as client:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
