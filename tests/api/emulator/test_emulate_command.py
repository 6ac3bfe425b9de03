"""The command as a process: it says what it is, serves, and stops when asked to."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.cli.exit_codes import ExitCode
from api.cli.main import COMMANDS, Entry, load
from caches.errors import InputError
from tests.api.emulator.conftest import emulator

SETPOINT = str(Path(sys.executable).parent / "setpoint")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    command = [SETPOINT, "emulate", "--port", "0", "--speed", "1000", "--replicas", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_says_where_and_what_it_is_and_stops_cleanly(process: subprocess.Popen[str], number: signal.Signals) -> None:
    assert process.stdout is not None
    told = process.stdout.readline()
    found = re.fullmatch(r"Emulator, no model runs: (http://127\.0\.0\.1:\d+)/v1\n", told)
    assert found, told
    answer = httpx.post(f"{found[1]}/v1/completions", json={"model": "m", "prompt": "a"})
    assert answer.status_code == 200
    process.send_signal(number)
    assert process.wait(timeout=10) == ExitCode.DONE
    assert process.stdout.read() == ("Profile qwen2.5-7b-a100, 256 sequences at once, 1000 times real time, seed 0.\n")
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_stops_while_a_stream_runs(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1]
    body = {"model": "m", "prompt": "a", "max_tokens": 1_000_000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{address}/completions", json=body) as stream:
        next(stream.iter_raw())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == ExitCode.DONE


def test_taken_port_is_bad_input() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run([SETPOINT, "emulate", "--port", port], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.BAD_INPUT
    assert f"127.0.0.1, {port}, expected a free address" in done.stderr


def test_answers_are_not_held_back_by_the_network() -> None:
    """Of ten requests on one connection the fastest takes no 40 ms, which is what Nagle's delay would cost each."""
    seconds = []
    with emulator() as address, httpx.Client(base_url=address) as client:
        for _ in range(10):
            start = time.perf_counter()
            client.post("/v1/completions", json={"model": "m", "prompt": "a"})
            seconds.append(time.perf_counter() - start)
    assert min(seconds[1:]) < 0.02


@pytest.mark.parametrize("missing", ["uvicorn", "fastapi", "prometheus_client"])
def test_without_the_extra_it_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("api.emulator.", "api.http.", "api.cli.emulate"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    entry = COMMANDS["emulate"]
    assert isinstance(entry, Entry)
    with pytest.raises(InputError, match=rf"needs {missing}: install it with pip install 'setpoint\[live\]'"):
        load("emulate", entry)
