"""`setpoint trace sessions`, and the options of `trace convert` for recordings of sessions."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from api.cli.main import app
from caches.errors import InputError
from traces.session_arrivals import Made, SessionStarts, compose_sessions
from traces.store import open_trace

SAMPLE = Path(__file__).parents[1] / "traces" / "samples" / "agent_sessions.jsonl"


def run(*arguments: str | Path) -> str:
    return CliRunner().invoke(app, ["trace", *map(str, arguments)], catch_exceptions=False).stdout


@pytest.fixture
def rates(tmp_path: Path) -> Path:
    path = tmp_path / "rates.csv"
    path.write_text("t_s,client,rate_rps\n" + "".join(f"{600 * i},1,{1 + i % 144}\n" for i in range(288)))
    return path


def test_options_say_what_is_made(tmp_path: Path, rates: Path) -> None:
    out = tmp_path / "agents.trace"
    options = ("--days", "1", "--per-day", "30", "--start-day", "1", "--coarsen", "2", "--seed", "5")
    text = run("sessions", SAMPLE, out, "--rates", rates, *options, "--licence", "CC0", "--json")
    made = open_trace(out)
    report = orjson.loads(text)
    assert report["sha256"] == made.sha256
    assert report["composed"] is True
    assert made.info.name == "agents"
    assert made.info.licence == "rates Apache-2.0; sessions CC0"
    assert made.info.block_size_tokens == 8
    assert any("days 1 to 2" in sentence for sentence in made.info.assumptions)
    constant = compose_sessions(SAMPLE, SessionStarts(1, 30), 5, Made(coarsen=2))
    assert constant.sha256 != made.sha256


def test_a_constant_rate_is_the_default(tmp_path: Path) -> None:
    run("sessions", SAMPLE, tmp_path / "x.trace", "--days", "2", "--seed", "3")
    assert open_trace(tmp_path / "x.trace").sha256 == compose_sessions(SAMPLE, SessionStarts(2), 3).sha256


def test_a_recording_is_converted_at_even_spacing(tmp_path: Path) -> None:
    run("convert", SAMPLE, tmp_path / "x.trace", "--sessions-per-day", "1440", "--coarsen", "2")
    made = open_trace(tmp_path / "x.trace")
    assert len(made) == 8
    assert made.info.block_size_tokens == 8


def test_bad_options_write_nothing(tmp_path: Path) -> None:
    for options, message in (
        (("--start-day", "1"), "--start-day: got 1, expected it together with --rates"),
        (("--coarsen", "0"), "coarsen: got 0, expected at least 1"),
        (("--days", "0"), "days: got 0"),
    ):
        with pytest.raises(InputError, match=message):
            run("sessions", SAMPLE, tmp_path / "x.trace", *options)
    assert list(tmp_path.iterdir()) == []


def test_info_shows_blocks_and_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("convert", SAMPLE, "x.trace", "--sessions-per-day", "1440")
    text = run("info", "x.trace")
    for label in (
        "token hit ratio of an endless cache",
        "different prompt blocks",
        "time since a block's last use",
        "time between requests of a session",
    ):
        assert label in text
    blocks = orjson.loads(run("info", "x.trace", "--json"))["blocks"]
    # 5 + 7 + 2 + 6 + 0 + 3 + 7 + 6 blocks, of which 5, 3 (by b, of a's prefix), 2 and 2 were there before.
    assert blocks["references"] == 36
    assert blocks["different"] == 36 - 5 - 3 - 2 - 2
    assert blocks["token_hit_ratio"] == 4 * (5 + 3 + 2 + 2) / (22 + 30 + 9 + 25 + 3 + 13 + 30 + 24)
    assert blocks["sessions"] == 3
