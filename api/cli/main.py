"""The command `setpoint`: a table of commands, each loaded only when it runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from api.cli.exit_codes import ExitCode
from caches.errors import SetpointError

if TYPE_CHECKING:
    from typer._click import Command, Context


class Entry(NamedTuple):
    """Where the function of a command lives."""

    module: str
    function: str
    help: str


class Group(NamedTuple):
    """Commands below a name of their own."""

    help: str
    commands: Mapping[str, Entry]


COMMANDS: dict[str, Entry | Group] = {
    "trace": Group(
        "Look at, convert and make request traces.",
        {
            "info": Entry("api.cli.trace_info", "info", "Describe a trace as tables and a picture."),
            "convert": Entry("api.cli.trace", "convert", "Convert a trace or a log once, to open it at once."),
            "fetch": Entry("api.cli.trace_fetch", "fetch", "Make a trace of an access log in a Redis stream."),
            "sessions": Entry("api.cli.sessions", "sessions", "Make days of traffic from recorded agent sessions."),
            "synth": Entry("api.cli.synth", "synth", "Make a synthetic or a composed trace."),
        },
    ),
    "whatif": Entry("api.cli.whatif", "whatif", "What every size and TTL would have cost, without learning."),
    "calibrate": Entry("api.cli.calibrate", "calibrate_command", "Fit a serving profile to measured runs."),
    "train": Entry("api.cli.train", "train", "Train control policies on the training part of a trace."),
    "evaluate": Entry("api.cli.evaluate", "evaluate", "Judge a policy on traffic that it never saw."),
    "promote": Entry("api.cli.promote", "promote", "Make a policy the champion if it wins, or say why not."),
    "policies": Entry("api.cli.policies", "policies", "List the registered policies and their aliases."),
    "cache": Group(
        "Move what is hot in the live cache from one gateway to another.",
        {
            "export": Entry("api.cli.cache", "export_command", "Write the entries asked for most to a file."),
            "import": Entry("api.cli.cache", "import_command", "Take the entries of a file into a gateway."),
        },
    ),
    "keys": Group(
        "What keys of requests are made by.",
        {"fit": Entry("api.cli.keys", "fit", "Fit buckets of questions to traffic.")},
    ),
    "signals": Group(
        "What Prometheus knows of a cache and its backends.",
        {"check": Entry("api.cli.signals", "check", "Read every signal once, or say why it is missing.")},
    ),
    "serve": Entry("api.cli.serve", "serve", "The live cache, as a gateway in front of a backend."),
    "rehearse": Entry("api.cli.rehearse", "rehearse_command", "Try a policy beside a live cache on this machine."),
    "tune": Entry("api.cli.tune", "tune", "The tuning daemon beside a live cache."),
    "status": Entry("api.cli.status", "status", "Where the tuning of a cache stands."),
    "pause": Entry("api.cli.wishes", "pause", "Hold all settings where they are."),
    "resume": Entry("api.cli.wishes", "resume", "Let policies decide again."),
    "rollback": Entry("api.cli.wishes", "rollback", "End the experiment and keep its challenger out."),
    "release": Entry("api.cli.wishes", "release", "Forget a rollback."),
    "kill": Entry("api.cli.wishes", "kill", "Restore the operator's static settings at once."),
    "ledger": Group(
        "Look after the ledger of what the daemon did.",
        {"prune": Entry("api.cli.ledger", "prune", "Remove what is old and no experiment needs.")},
    ),
    "api": Entry("api.cli.api", "api", "What the tuner did and saved, as a page and as REST."),
    "hash-key": Entry("api.cli.hash_key", "hash_key", "The hash of an API key, for the settings of a gateway."),
    "emulate": Entry("api.cli.emulate", "emulate", "An OpenAI-compatible backend in which no model runs."),
}


# Help drawn by rich costs 0.25 s of imports, more than all the rest together.
_GROUP_STYLE: Any = {"no_args_is_help": True, "rich_markup_mode": None}


class LazyGroup(TyperGroup):
    """A group that knows its commands by name and help line, and imports one only to run it.

    The imports behind a command (numpy, torch, MLflow) take seconds; `setpoint --help` must not.
    """

    def __init__(self, table: Mapping[str, Entry | Group] = COMMANDS, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.table = table
        for name, entry in table.items():
            if isinstance(entry, Group):
                self.add_command(LazyGroup(entry.commands, name=name, help=entry.help, **_GROUP_STYLE))
            else:
                self.add_command(TyperCommand(name, help=entry.help))  # for listings only

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """As the base class, with the real command in the place of the one that only has a help line."""
        name, command, rest = super().resolve_command(ctx, args)
        entry = None if name is None else self.table[name]
        return name, load(name or "", entry) if isinstance(entry, Entry) else command, rest


def load(name: str, entry: Entry) -> Command:
    """Import the function of a command and make the command of it, with its own full help."""
    function = getattr(importlib.import_module(entry.module), entry.function)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name)(function)
    return get_command(single)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"setpoint {version('setpoint')}")
        raise typer.Exit(ExitCode.DONE)


app = typer.Typer(
    cls=LazyGroup,
    **_GROUP_STYLE,
    epilog="Exit codes: " + "; ".join(f"{code.value} {code.meaning}" for code in ExitCode) + ".",
)


@app.callback()
def setpoint(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Set the knobs of an LLM cache (size, TTL, warm-up) from your own traffic."""


def main() -> None:
    """Run the command line and exit with an ExitCode. An unforeseen exception is a bug: traceback, code 1."""
    try:
        get_command(app).main(prog_name="setpoint")
    except SetpointError as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        sys.exit(error.exit_code)
