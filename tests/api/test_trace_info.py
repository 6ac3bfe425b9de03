"""`setpoint trace info` from file to table, JSON and picture."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
import typer
from typer.testing import CliRunner

from api.cli.trace_info import info
from caches.errors import InputError
from tests.traces.tiny import tiny_trace
from traces.store import save_trace
from traces.trace import TraceInfo

APP = typer.Typer()
APP.command()(info)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A converted trace, below a working directory of its own."""
    about = TraceInfo("tiny", "written [by hand]", composed=True, assumptions=("All [made] up.",))
    save_trace(tiny_trace([0, 1, 0, 0], [0, 1, 2, 4], [10, 20, 10, 10], info=about), tmp_path / "tiny.trace")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "tiny.trace"


def test_table_has_the_numbers_and_the_assumptions(folder: Path) -> None:
    result = CliRunner().invoke(APP, [str(folder)], catch_exceptions=False)
    assert result.exit_code == 0
    for text in (
        "written [by hand] (composed of several sources)",
        "0.5000",  # re-reference ratio: 1 - 2 / 4
        "30 bytes",
        "0.811 bits",  # of the shares 3/4 and 1/4
        "Assumption: All [made] up.",
        "Picture: out/tiny.info.png",
    ):
        assert text in result.stdout
    assert (folder.parent / "out" / "tiny.info.png").stat().st_size > 10_000


def test_json_has_the_same_and_says_none_as_null(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "here.png"
    result = CliRunner().invoke(
        APP, [str(folder), "--json", "--window", "2", "--png", str(picture)], catch_exceptions=False
    )
    content = orjson.loads(result.stdout)
    assert content["rereference_ratio"] == 0.5
    assert content["prompt_tokens"] is None
    assert len(content["windows"]) == 2
    assert content["picture"] == str(picture)
    assert picture.is_file()


def test_a_folder_that_does_not_exist_is_refused_before_any_work(folder: Path) -> None:
    with pytest.raises(InputError, match=r"--png: got nowhere/x\.png"):
        CliRunner().invoke(APP, [str(folder), "--png", "nowhere/x.png"], catch_exceptions=False)


def test_a_missing_trace_is_refused_without_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"none\.csv"):
        CliRunner().invoke(APP, ["none.csv"], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []
