"""Every command in docs/bring-your-trace.md runs and prints what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli.main import app
from caches.errors import InputError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "bring-your-trace.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder where the samples lie at the path that the page uses."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "tests").symlink_to(ROOT / "tests")
    return folder


def _run(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, BaseException | None]:
    program, *arguments = shlex.split(command.replace("\\\n", " "))
    assert program == "setpoint"
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, arguments)
    return result.stdout, result.exception


def test_commands_run_in_order(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = _blocks("sh")
    assert len(commands) == 9
    for command in commands:
        _, error = _run(command, workplace, monkeypatch)
        assert error is None, command


def test_printed_lines_are_as_shown(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in _blocks("console"):
        command, *shown = block.removeprefix("$ ").strip().split("\n")
        printed, error = _run(command, workplace, monkeypatch)
        if error is not None:
            assert isinstance(error, InputError)
            printed = f"error: {error}"
        for line in shown:
            assert line in printed.splitlines()


def test_python_example_runs(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(_blocks("sh")[-1], workplace, monkeypatch)
    monkeypatch.chdir(workplace)
    (example,) = _blocks("python")
    exec(compile(example, "docs/bring-your-trace.md", "exec"), {})
