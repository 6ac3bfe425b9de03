"""`setpoint trace convert`."""

from __future__ import annotations

import gzip
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from api.cli.main import app
from api.cli.trace import parse_columns
from caches.errors import InputError
from tests.traces.trace_samples import FOLDER
from traces.store import open_trace

runner = CliRunner()


def test_converts_and_reports(tmp_path: Path) -> None:
    out = tmp_path / "requests.trace"
    columns = ("time=ts", "key=prompt_hash", "size=bytes")
    options = [part for column in columns for part in ("--column", column)]
    result = runner.invoke(
        app,
        ["trace", "convert", str(FOLDER / "requests.csv"), str(out), *options, "--time-unit", "ms", "--json"],
    )
    assert result.exit_code == 0, result.output
    report = orjson.loads(result.stdout)
    trace = open_trace(out)
    assert report["requests"] == len(trace) == 5
    assert report["unique_keys"] == 3
    assert report["span_seconds"] == 3
    assert report["sha256"] == trace.sha256
    assert report["assumptions"] == []


def test_table_shows_assumptions(tmp_path: Path) -> None:
    command = [
        "trace",
        "convert",
        str(FOLDER / "order.keys"),
        str(tmp_path / "x.trace"),
        "--requests-per-second",
        "2",
    ]
    result = runner.invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "Assumption: The source has no sizes" in result.stdout


def test_nothing_is_written_for_a_truncated_file(tmp_path: Path) -> None:
    source = tmp_path / "cut.jsonl.gz"
    source.write_bytes(gzip.compress((FOLDER / "mooncake.jsonl").read_bytes())[:-20])
    result = runner.invoke(app, ["trace", "convert", str(source), str(tmp_path / "x.trace")])
    assert isinstance(result.exception, InputError)
    assert "cut short" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["cut.jsonl.gz"]


def test_refuses_an_existing_output_before_reading(tmp_path: Path) -> None:
    out = tmp_path / "x.trace"
    command = ["trace", "convert", str(FOLDER / "azure.csv"), str(out)]
    assert runner.invoke(app, command).exit_code == 0
    assert isinstance(runner.invoke(app, command).exception, InputError)
    assert runner.invoke(app, [*command, "--overwrite", "--limit", "2"]).exit_code == 0
    assert len(open_trace(out)) == 2
    missing = ["trace", "convert", str(tmp_path / "none.csv"), str(out)]
    assert "exists already" in str(runner.invoke(app, missing).exception)


def test_a_converted_trace_is_not_converted_again(tmp_path: Path) -> None:
    out = tmp_path / "x.trace"
    assert runner.invoke(app, ["trace", "convert", str(FOLDER / "azure.csv"), str(out)]).exit_code == 0
    again = runner.invoke(app, ["trace", "convert", str(out), str(tmp_path / "y.trace")])
    assert "is a converted trace already" in str(again.exception)


def test_parse_columns() -> None:
    assert parse_columns(["time=ts", "key=a=b"]) == {"time": "ts", "key": "a=b"}
    for bad in ("time", "=ts", "time="):
        with pytest.raises(InputError, match="expected ROLE=COLUMN"):
            parse_columns([bad])
    with pytest.raises(InputError, match="got key twice"):
        parse_columns(["key=a", "key=b"])
