"""`setpoint signals check` as a person meets it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from api.cli.exit_codes import ExitCode
from api.cli.main import main
from tests.servers import free_port
from tests.tuner.prometheus_parts import backfilled
from tuner.signals import SIGNALS

Check = Callable[..., "Done"]


class Done(NamedTuple):
    code: int | str | None
    out: str
    err: str


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its samples reach from five minutes ago into the next hour."""
    levels = {"redis_memory_used_bytes": [1_250_000.0] * 400, "redis_memory_max_bytes": [5_000_000.0] * 400}
    with backfilled(tmp_path_factory.mktemp("prometheus"), levels, int(time.time()) - 300) as url:
        yield url


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """Runs the command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["setpoint", "signals", "check", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return Done(caught.value.code, *capsys.readouterr())

    return run


def test_a_table_of_what_is_there_and_what_is_missing(prometheus: str, check: Check) -> None:
    done = check("--prometheus", prometheus, "--preset", "redis")
    assert (done.code, done.err) == (ExitCode.NOTHING_FOUND, "")
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line.strip()}
    assert rows["used_bytes"][:2] == ["1,250,000", "bytes"]
    assert rows["used_bytes"][3:] == ["s", "redis"]
    assert rows["fill_ratio"][0] == "0.25"
    assert rows["hit_ratio"] == ["missing", "share", "–", "redis", "yes"]
    assert rows["p99_ttft_seconds"] == ["missing", "s", "–", "–", "yes"]
    assert "  entries: no series redis_db_keys{}: see whether Prometheus scrapes it" in done.out
    assert "  p99_ttft_seconds: no query: add a preset that has one, or signals.queries.p99_ttft_seconds" in done.out
    assert "  used_bytes: sum(redis_memory_used_bytes{})\n" in done.out
    assert "Not asked for: byte_hit_ratio, token_hit_ratio, " in done.out


def test_all_that_is_required_is_there(
    prometheus: str, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "setpoint.toml").write_text(
        f'[signals]\nprometheus = "{prometheus}"\npreset = ["redis"]\nrequired = ["used_bytes"]\n', encoding="utf-8"
    )
    done = check()
    assert (done.code, done.err) == (ExitCode.DONE, "")
    monkeypatch.setenv("SETPOINT_SIGNALS__REQUIRED", '["entries"]')
    assert check().code == ExitCode.NOTHING_FOUND


def test_as_json(prometheus: str, check: Check) -> None:
    done = check("--prometheus", prometheus, "--preset", "dcgm", "--preset", "redis", "--json")
    assert done.code == ExitCode.NOTHING_FOUND
    found = {one["signal"]: one for one in json.loads(done.out)}
    assert list(found) == list(SIGNALS)
    age_seconds = found["fill_ratio"].pop("age_seconds")
    assert 0.0 <= age_seconds < 90.0
    assert found["fill_ratio"] == {
        "signal": "fill_ratio",
        "unit": "share",
        "value": 0.25,
        "missing": None,
        "required": False,
        "from": "redis",
        "query": "sum(redis_memory_used_bytes{}) / sum(redis_memory_max_bytes{})",
    }
    assert found["vram_ratio"]["value"] is None
    assert found["vram_ratio"]["missing"].startswith("no series DCGM_FI_DEV_FB_USED{}")


def test_a_prometheus_that_is_not_there_is_a_reason_once(check: Check) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = check("--prometheus", url)
    assert done.code == ExitCode.NOTHING_FOUND
    assert done.out.count(f"{url} cannot be reached (ConnectionError): see whether it runs") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "signals.prometheus: not set, expected the URL of a Prometheus there or as --prometheus"),
        (["--prometheus", "nowhere"], "prometheus: expected a URL such as http://127.0.0.1:9090"),
        (["--prometheus", "http://a", "--preset", "vlm"], "signals.preset[0]: got 'vlm', expected one of dcgm"),
    ],
)
def test_bad_input(check: Check, arguments: list[str], words: str) -> None:
    done = check(*arguments)
    assert (done.code, done.out) == (ExitCode.BAD_INPUT, "")
    assert done.err.startswith("error: ")
    assert words in done.err
