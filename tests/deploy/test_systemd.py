"""The units of systemd: by its own tool where that is here, and by what they run."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.command_lines import understood

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))
INSTALLED = "/opt/setpoint/bin/setpoint"
HERE = str(Path(sys.executable).parent / "setpoint")


def lines_of(unit: Path, name: str) -> list[str]:
    lines = unit.read_text(encoding="utf-8").splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


def test_there_is_one_for_each_process() -> None:
    assert [unit.stem for unit in UNITS] == ["setpoint-api", "setpoint-gateway", "setpoint-tune"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_what_a_unit_runs_is_understood(unit: Path) -> None:
    (line,) = lines_of(unit, "ExecStart")
    command, *arguments = shlex.split(line)
    assert command == INSTALLED
    names = {"setpoint-gateway": "serve", "setpoint-tune": "tune", "setpoint-api": "api"}
    assert understood(arguments) == names[unit.stem]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_gives_no_more_rights_than_needed(unit: Path) -> None:
    assert lines_of(unit, "User") == ["setpoint"]
    assert lines_of(unit, "NoNewPrivileges") == ["yes"]
    assert lines_of(unit, "ProtectSystem") == ["strict"]
    assert lines_of(unit, "StateDirectory") == ["setpoint"]  # the ledger


def test_systemd_has_nothing_against_them(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed here")
    copies = [tmp_path / unit.name for unit in UNITS]
    for unit, copy in zip(UNITS, copies, strict=True):  # it looks whether the program is there
        copy.write_text(unit.read_text(encoding="utf-8").replace(INSTALLED, HERE), encoding="utf-8")
    command = [tool, "verify", "--man=no", *map(str, copies)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if "setpoint" in line]
    assert (done.returncode, said) == (0, [])
