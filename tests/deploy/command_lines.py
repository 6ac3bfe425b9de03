"""Whether `setpoint` would understand a command line, without running it."""

from __future__ import annotations

from collections.abc import Sequence

from typer.main import get_command

from api.cli.main import app


def understood(arguments: Sequence[str]) -> str:
    """The command that would be run. Raises what the command line raises for what it does not know."""
    root = get_command(app)
    with root.make_context("setpoint", list(arguments)) as context:
        rest = [*context._protected_args, *context.args]
        name, command, rest = root.resolve_command(context, rest)  # type: ignore[attr-defined]
        with command.make_context(name, rest, parent=context):
            return str(name)
