"""The commands on docs/train-and-judge.md and in examples exist and take these arguments."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from api.cli.main import app
from tuner.config import load_tuner_config
from tuner.problem import make_problem

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "train-and-judge.md").read_text(encoding="utf-8")
COMMANDS = [
    line.removeprefix("setpoint ")
    for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    for line in block.splitlines()
    if line.startswith("setpoint ")
]


@pytest.mark.parametrize("line", COMMANDS)
def test_command_of_the_page_is_one(line: str) -> None:
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    context = root.make_context("setpoint", shlex.split(line))
    name, command, rest = root.resolve_command(context, [*context._protected_args, *context.args])
    assert command is not None
    assert name is not None
    command.make_context(name, rest, parent=context)  # raises a usage error for what it does not know


def test_the_page_has_every_step() -> None:
    assert {line.split()[0] for line in COMMANDS} == {"train", "evaluate", "promote", "policies"}


def test_settings_of_the_first_run_make_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_tuner_config(ROOT / "examples" / "first_run.toml", tmp_path, {}, {})
    problem = make_problem(config)
    assert problem.trace.info.name == "servegen-twitter-14d"
    assert len(config.run.seeds) >= 5
    assert os.listdir(tmp_path) == []  # noqa: PTH208
