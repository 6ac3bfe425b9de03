from __future__ import annotations

from pathlib import Path

import pytest

from api.cli.exit_codes import ExitCode
from api.cli.main import Entry, Group, LazyGroup
from api.cli.reference import cli_reference


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "kettle.py").write_text(
        "def boil(litres: float = 1.5) -> None:\n    'Boil water, to the end of the kettle.'\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "20")
    table = {"kitchen": Group("What is hot.", {"boil": Entry("kettle", "boil", "Boil water.")})}
    return cli_reference(LazyGroup(table, name="setpoint", help="The root."))


def test_every_command_has_its_help_as_printed(page: str) -> None:
    assert (
        "\n## setpoint kitchen boil\n\n```text\n"
        "Usage: setpoint kitchen boil [OPTIONS]\n\n"
        "  Boil water, to the end of the kettle.\n\n"
        "Options:\n"
        "  --litres <float>  [default: 1.5]\n"
        "  --help            Show this message and exit.\n```\n"
    ) in page


def test_commands_come_depth_first(page: str) -> None:
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == ["## Exit codes", "## setpoint", "## setpoint kitchen", "## setpoint kitchen boil"]


def test_exit_codes_are_listed(page: str) -> None:
    assert all(f"\n| {code.value} | {code.meaning} |\n" in page for code in ExitCode)
