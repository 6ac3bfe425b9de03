"""The command as a process: it says where it is, answers from the cache, and stops when asked to."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from redis import Redis

from api.cli.exit_codes import ExitCode
from api.cli.main import COMMANDS, Entry, load
from caches.errors import InputError
from tests.api.gateway.conftest import Backend, ask, chat, outcome, send

ENTRY = cast(Entry, COMMANDS["serve"])
SETPOINT = str(Path(sys.executable).parent / "setpoint")


@contextmanager
def started(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its address."""
    command = [SETPOINT, "serve", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = process.stdout.readline()
            found = re.fullmatch(r"Gateway: (http://127\.0\.0\.1:\d+)/v1\n", told)
            assert found, told
            yield process, found[1]
        finally:
            process.kill()


def test_serves_and_stops_cleanly(backend: Backend) -> None:
    with started("--upstream", backend.address, "--ttl", "60") as (process, address):
        assert [outcome(ask(address)) for _ in range(2)] == ["miss", "hit-memory"]
        settings = send("GET", f"{address}/v1/cache/settings").json()["tiers"]
        assert settings == {"memory": {"cache_size": 256 * 2**20, "ttl_seconds": 60.0, "warmup_ratio": 0.0}}
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == ExitCode.DONE
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == f"Tiers: memory. Backend: {backend.address}\n"
        assert process.stderr.read() == ""


def test_what_is_in_redis_outlives_the_process(backend: Backend, redis_server: str) -> None:
    """So do the settings there, unless the options state others."""
    body = chat("in redis")
    try:
        with started("--upstream", backend.address, "--redis", redis_server, "--redis-bytes", "200000") as (_, address):
            assert outcome(ask(address, body)) == "miss"
        with started("--upstream", backend.address, "--redis", redis_server, "--ttl", "7") as (_, address):
            assert outcome(ask(address, body)) == "hit-redis"
            told = send("GET", f"{address}/v1/cache/settings").json()["tiers"]["redis"]
            assert (told["cache_size"], told["ttl_seconds"]) == (200_000, 7.0)
    finally:
        with Redis.from_url(redis_server) as redis:
            for key in redis.scan_iter("setpoint:*"):
                redis.delete(key)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--upstream", "ftp://a"], "upstream: got 'ftp://a'"),
        (["--upstream", "http://a", "--upstream-key-env", "NO_SUCH_VARIABLE"], "--upstream-key-env"),
        (["--upstream", "http://a", "--redis", "http://a"], "redis: got 'http://a'"),
    ],
)
def test_bad_options_are_bad_input(options: list[str], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        load("serve", ENTRY).main(options, standalone_mode=False)


@pytest.mark.parametrize("missing", ["uvicorn", "fastapi", "httpx", "prometheus_client"])
def test_without_the_extra_it_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("api.gateway.", "api.http.", "api.cli.serve"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=rf"needs {missing}: install it with pip install 'setpoint\[live\]'"):
        load("serve", ENTRY)
