"""The command as a process: it says where it is, answers from the cache, and stops when asked to."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from redis import Redis

from api.cli.exit_codes import ExitCode
from api.cli.main import COMMANDS, Entry, load
from api.gateway.settings import key_hash
from caches.errors import InputError
from tests.api.gateway.conftest import Backend, ask, chat, outcome, send
from tests.servers import PATIENT_SECONDS

ENTRY = cast(Entry, COMMANDS["serve"])
SETPOINT = str(Path(sys.executable).parent / "setpoint")


@contextmanager
def started(*options: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its address. variables: of its environment, beside ours; what it keeps in the user's cache folder
    lies in a folder that goes with it, unless they say where."""
    command = [SETPOINT, "serve", "--port", "0", *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        TemporaryDirectory() as cache,
        subprocess.Popen(command, env=os.environ | {"XDG_CACHE_HOME": cache} | variables, **pipes) as process,
    ):
        try:
            assert process.stdout is not None
            told = process.stdout.readline()
            found = re.fullmatch(r"Gateway: (http://127\.0\.0\.1:\d+)/v1\n", told)
            assert found, told
            yield process, found[1]
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it printed after its address, and its errors; it stops when asked to, and says that all is well."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENT_SECONDS) == ExitCode.DONE
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdout.read(), process.stderr.read()  # not by `communicate`, which misses what was read ahead


def test_serves_and_stops_cleanly(backend: Backend) -> None:
    options = ("--upstream", backend.address, "--ttl", "60", "--no-semantic", "--no-disk")
    with started(*options) as (process, address):
        assert [outcome(ask(address)) for _ in range(2)] == ["miss", "hit-l1"]
        settings = send("GET", f"{address}/v1/cache/settings").json()["tiers"]
        told = {"cache_size": 256 * 2**20, "ttl_seconds": 60.0, "warmup_ratio": 0.0, "eviction_policy": "lru"}
        assert settings == {"memory": told}
        assert ended(process) == (f"Tiers: memory. Backend: {backend.address}\n", "")


def test_by_default_it_keeps_answers_from_a_stop_to_the_next_start(backend: Backend, tmp_path: Path) -> None:
    folder, answers, told = tmp_path / "setpoint", [], ""
    for _ in range(2):
        options = ("--upstream", backend.address, "--no-semantic")
        with started(*options, XDG_CACHE_HOME=str(tmp_path)) as (process, address):
            answers.append(ask(address, chat("to be kept")))
            told, errors = ended(process)
            assert errors == ""
    (file,) = folder.glob("*.sqlite")
    assert [outcome(answer) for answer in answers] == ["miss", "hit-l2"]
    assert answers[0].content == answers[1].content
    assert told.endswith(f"Answers are kept in {file} for the next start; --no-disk turns this off.\n")
    assert [oct(path.stat().st_mode & 0o777) for path in (folder, file)] == ["0o700", "0o600"]


def test_by_a_settings_file_it_keeps_what_it_knows_and_prints_no_secret(backend: Backend, tmp_path: Path) -> None:
    """Neither questions nor keys: not when all goes well, not when a request is bad."""
    file, kept = tmp_path / "gateway.toml", tmp_path / "semantic"
    file.write_text(
        f'[gateway]\nupstream = "{backend.address}"\n'
        f'upstream_key_env = "BACKEND_KEY"\nhost = "no.such.host.invalid"\n'
        f'[[gateway.keys]]\nsha256 = "{key_hash("sp-of-a-client")}"\n'
        f'[tiers.semantic]\nfolder = "{kept}"\n',
        encoding="utf-8",
    )
    options, printed = ("--config", str(file), "--host", "127.0.0.1"), []
    for question, expected in (("How do I reset my password?", "miss"), ("How can I reset my password?", "hit-l3")):
        backend.calls.clear()
        with started(*options, BACKEND_KEY="sk-backend") as (process, address):
            answer = ask(address, chat(question), authorization="Bearer sp-of-a-client")
            assert outcome(answer) == expected
            ask(address, chat(question, temperature="hot"), authorization="Bearer sp-of-a-client")
            assert ask(address, chat(question), authorization="Bearer sp-of-nobody").status_code == 401
            printed += ended(process)
        assert {headers["authorization"] for _, headers in backend.calls} == {"Bearer sk-backend"}
    assert f"Semantic entries from {kept}: 0." in printed[1]
    assert f"Semantic entries from {kept}: 1." in printed[3]
    for secret in ("reset", "sk-backend", "sp-of", key_hash("sp-of-a-client")):
        assert secret not in "".join(printed)
    assert not any(b"sk-backend" in path.read_bytes() for path in kept.iterdir())


def test_what_is_in_redis_outlives_the_process(backend: Backend, redis_server: str, tmp_path: Path) -> None:
    """So do the settings there, unless the options state others."""
    file, body = tmp_path / "gateway.toml", chat("in redis")
    file.write_text(
        f'[gateway]\nupstream = "{backend.address}"\n[tiers.redis]\nurl = "{redis_server}"\nslow_seconds = 15\n',
        encoding="utf-8",
    )
    try:
        with started("--config", str(file), "--redis-bytes", "200000") as (_, address):
            assert outcome(ask(address, body)) == "miss"
        with started("--config", str(file), "--ttl", "600", "--no-semantic") as (_, address):
            assert outcome(ask(address, body)) == "hit-l2"
            told = send("GET", f"{address}/v1/cache/settings").json()["tiers"]["redis"]
            assert (told["cache_size"], told["ttl_seconds"]) == (200_000, 600.0)
    finally:
        with Redis.from_url(redis_server) as redis:
            for key in redis.scan_iter("setpoint:*"):
                redis.delete(key)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--upstream", "ftp://a"], "upstream: got 'ftp://a'"),
        (
            ["--upstream", "http://a", "--upstream-key-env", "NO_SUCH"],
            "command line, gateway.upstream_key_env: got 'NO_SUCH'",
        ),
        ([], "gateway.upstream: not set, expected the URL of a backend, there or as --upstream"),
        (["--config", "no-such-file.toml"], "no-such-file.toml: cannot be read"),
        (["--upstream", "http://a", "--redis", "http://a"], "command line, tiers.redis: redis: got 'http://a'"),
        (["--upstream", "http://a", "--disk", "a", "--no-disk"], "--disk, --no-disk: got both"),
    ],
)
def test_bad_options_are_bad_input(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match=re.escape(message)):
        load("serve", ENTRY).main(options, standalone_mode=False)


@pytest.mark.parametrize("missing", ["uvicorn", "fastapi", "httpx", "prometheus_client"])
def test_without_the_extra_it_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("api.gateway.", "api.http.", "api.cli.serve"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=rf"needs {missing}: install it with pip install 'setpoint\[live\]'"):
        load("serve", ENTRY)
