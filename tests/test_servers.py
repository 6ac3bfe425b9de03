"""The clients in our stack talk to the real servers that the fixtures start."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest
import redis
from prometheus_api_client import PrometheusConnect

from tests.servers import free_port, require, running


def test_redis_answers_and_takes_a_size_limit(redis_server: str) -> None:
    with redis.Redis.from_url(redis_server) as client:
        assert client.ping() is True
        client.config_set("maxmemory", 1 << 20)
        assert client.config_get("maxmemory") == {"maxmemory": str(1 << 20)}
        client.config_set("maxmemory", 0)


def test_prometheus_answers_a_query(prometheus_server: str) -> None:
    client = PrometheusConnect(url=prometheus_server)
    deadline = time.monotonic() + 15.0
    while not (answer := client.custom_query("up")) and time.monotonic() < deadline:
        time.sleep(0.1)  # the first scrape comes within a second
    assert [(series["metric"]["job"], series["value"][1]) for series in answer] == [("prometheus", "1")]


def test_missing_binary_skips_for_a_person_and_fails_under_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "false")
    with pytest.raises(pytest.skip.Exception, match="no-such-server is not installed"):
        require("no-such-server")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-server is not installed"):
        require("no-such-server")


def test_server_that_dies_fails_with_its_own_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('port is taken')"]
    with (
        pytest.raises(pytest.fail.Exception, match="port is taken"),
        running(command, tmp_path, lambda: False),
    ):
        pass


def test_server_is_stopped_in_the_end(tmp_path: Path) -> None:
    with running(["sleep", "60"], tmp_path, lambda: True) as process:
        assert process.poll() is None
    assert process.returncode == -signal.SIGTERM


def test_free_ports_are_loopback_ports() -> None:
    assert 1024 <= free_port() <= 65535
