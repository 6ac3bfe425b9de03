"""`setpoint trace synth`: both ways to make a trace, and options that do not go together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest
import typer
from typer.testing import CliRunner

from api.cli.synth import synth
from caches.errors import InputError
from tests.traces.tiny import tiny_trace
from traces.store import open_trace, save_trace
from traces.synthetic.generate import synthesise
from traces.synthetic.parts import Popularity, Rate, SyntheticWorkload

APP = typer.Typer()
APP.command()(synth)


def run(*arguments: str | Path) -> str:
    return CliRunner().invoke(APP, [str(a) for a in arguments], catch_exceptions=False).stdout


def test_a_synthetic_trace_from_file_settings_and_flags(tmp_path: Path) -> None:
    config = tmp_path / "workload.toml"
    config.write_text("days = 9\n[popularity]\nnum_keys = 40\n")
    out = tmp_path / "small.trace"
    text = run(out, "--config", config, "--set", "rate.mean_rps=0.1", "--days", "0.5", "--seed", "4", "--json")
    made = open_trace(out)
    workload = SyntheticWorkload(days=0.5, rate=Rate(mean_rps=0.1), popularity=Popularity(num_keys=40))
    assert np.array_equal(made.arrival_seconds, synthesise(workload, 4).arrival_seconds)
    assert made.info.name == "small"
    report = orjson.loads(text)
    assert report["requests"] == len(made)
    assert report["sha256"] == made.sha256
    assert report["assumptions"][0].startswith("Synthetic")


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    (tmp_path / "rates.csv").write_text("t_s,client,rate_rps\n0,1,2\n600,1,2\n")
    (tmp_path / "lengths.csv").write_text("t_s,client,in_p50,in_p95,out_p50,out_p95\n0,1,100,200,10,30\n")
    save_trace(tiny_trace([0, 1, 0, 2], [0, 1, 2, 3], [5, 6, 5, 7]), tmp_path / "keys.trace")
    return tmp_path


def test_a_composed_trace(parts: Path) -> None:
    out = parts / "mix.trace"
    options = ("--rates", parts / "rates.csv", "--keys", parts / "keys.trace", "--requests", "3")
    text = run(out, *options, "--lengths", parts / "lengths.csv", "--seed", "2")
    made = open_trace(out)
    assert made.info.composed
    assert made.key.tolist() == [0, 1, 0]
    assert made.size_bytes.tolist() == [5, 6, 5]
    assert made.prompt_tokens is not None
    assert "Assumption: Composed" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--requests", "5"], r"^--requests: got 5, expected it together with --rates"),
        (["--start-day", "0"], r"^--start-day: got 0"),
        (["--rates", "rates.csv"], r"^--rates: got no --keys"),
        (["--rates", "rates.csv", "--set", "days=1"], r"^--set: got .* expected it without --rates"),
        (["--rates", "rates.csv", "--keys", "keys.trace", "--days", "1"], r"^days: got 1"),
        (["--set", "rate.mean_rp=1"], r"rate\.mean_rp, expected rate\.mean_rps"),
        (["--days", "nan"], r"days: got nan"),
    ],
)
def test_bad_options_are_refused_and_write_nothing(
    options: list[str], message: str, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(parts)
    before = set(parts.iterdir())
    with pytest.raises(InputError, match=message):
        run("out.trace", *options)
    assert set(parts.iterdir()) == before


def test_an_existing_trace_is_not_overwritten_unasked(parts: Path) -> None:
    with pytest.raises(InputError, match="exists already"):
        run(parts / "keys.trace", "--set", "rate.mean_rps=0.1")
    run(parts / "keys.trace", "--set", "rate.mean_rps=0.1", "--days", "0.1", "--overwrite")
    assert open_trace(parts / "keys.trace").info.source.startswith("Setpoint synthetic")
