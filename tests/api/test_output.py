from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import pytest

from api.cli.output import print_json, print_table, progress_bar, progress_console, result_console


@dataclass(frozen=True)
class Row:
    name: str
    costs: np.ndarray[tuple[int], np.dtype[np.float64]]
    path: Path
    missing: float | None


def test_json_goes_to_stdout_alone(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(Row("a", np.array([1.5, np.nan]), Path("out/x.png"), None))
    streams = capsys.readouterr()
    assert streams.err == ""
    assert streams.out.endswith("}\n")
    assert orjson.loads(streams.out) == {
        "name": "a", "costs": [1.5, None], "path": "out/x.png", "missing": None,
    }  # fmt: skip


def test_arrays_print_however_they_lie_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    table = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, np.nan]])
    print_json({"turned": table.T, "part": table[:, ::2]})
    assert orjson.loads(capsys.readouterr().out) == {
        "turned": [[1.0, 4.0], [2.0, 5.0], [3.0, None]],
        "part": [[1.0, 3.0], [4.0, None]],
    }


def test_json_refuses_what_it_does_not_know() -> None:
    with pytest.raises(TypeError, match="not JSON serializable: object"):
        print_json(object())


def test_table_in_a_pipe_is_plain_and_never_folded(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 120
    print_table("Costs", ["policy", "usd"], [[long, "1.25"], ["[bold]b", "10"]], caption="per 1,000 requests")
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert "\x1b" not in out
    assert any(long in line and line.rstrip().endswith("1.25") for line in lines)
    assert any("[bold]b" in line and line.rstrip().endswith("  10") for line in lines)
    assert lines[0].strip() == "Costs"
    assert "per 1,000 requests" in lines[-1]


def test_progress_in_a_pipe_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("requests") as bar:
        task = bar.add_task("reading", total=1000)
        for _ in range(10):
            bar.advance(task, 100)
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "\x1b" not in streams.err
    assert streams.err.strip().count("\n") == 0
    assert "reading" in streams.err
    assert "1000/1000" in streams.err
    assert "requests/s" in streams.err


class Terminal:
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_no_color_turns_colour_off_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys, "stdout", terminal)
    result_console().print("[red]hot[/red]")
    assert ("\x1b[31m" in terminal.text) is coloured
    assert "hot" in terminal.text


def test_remarks_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    progress_console().print("half-way")
    assert capsys.readouterr() == ("", "half-way\n")
