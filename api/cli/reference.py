"""The pages of docs/ that are made from the code: commands, settings, those of the gateway, signals.

`python -m api.cli.reference FOLDER` writes them into the folder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer.core import TyperGroup
from typer.main import get_command

from api.cli.exit_codes import ExitCode
from api.cli.main import app
from api.gateway.config import serve_reference
from tuner.config import config_reference
from tuner.prometheus.reference import signal_reference

if TYPE_CHECKING:
    from typer._click import Command, Context

LINE_WIDTH = 100


def cli_reference(root: Command) -> str:
    """The text of docs/cli.md: the help of `root` and of every command below it, which are all imported."""
    codes = "".join(f"| {code.value} | {code.meaning} |\n" for code in ExitCode)
    return _INTRODUCTION + codes + "".join(_help_texts(root, "setpoint", None))


def write_pages(folder: Path) -> None:
    (folder / "cli.md").write_text(cli_reference(get_command(app)), encoding="utf-8")
    (folder / "configuration.md").write_text(config_reference(), encoding="utf-8")
    (folder / "gateway-settings.md").write_text(serve_reference(), encoding="utf-8")
    (folder / "signal-presets.md").write_text(signal_reference(), encoding="utf-8")


def _help_texts(command: Command, name: str, parent: Context | None) -> Iterator[str]:
    context = typer.Context(command, parent, name, terminal_width=LINE_WIDTH)
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    yield "\n## {}\n\n```text\n{}\n```\n".format(context.command_path, "\n".join(lines))
    if isinstance(command, TyperGroup):
        for inner_name in command.list_commands(context):
            _, inner, _ = command.resolve_command(context, [inner_name])
            assert inner is not None  # resolve_command fails on an unknown name
            yield from _help_texts(inner, inner_name, context)


_INTRODUCTION = """# Command line

Results go to standard output, progress and errors to standard error. `--json` prints a result as JSON.
Colours and moving bars appear on a terminal only, and `NO_COLOR=1` turns colours off there too. Settings are
in [configuration](configuration.md).

This page is generated from the code by `make docs`.

## Exit codes

| code | meaning |
|---|---|
"""

if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
