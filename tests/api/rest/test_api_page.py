"""docs/api.md against the server: its commands are run, its table of roles is the code's."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from api.asking import ROLES
from tests.api.rest.conftest import ADMIN, KEYS, Placing, served
from tests.api.rest.history import Told
from tuner.api_sections import ApiConfig, ApiRole
from tuner.records import WishKind

PAGE = Path(__file__).parents[3] / "docs" / "api.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = [
    command
    for block in re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL)
    for command in re.split(r"\n(?!\s)", block.strip())
    if command.startswith("curl ")
]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl (Debian: apt-get install curl)")
def test_every_command_of_the_page_does_what_it_says(placing: Placing) -> None:
    """One after the other, as a reader would."""
    assert len(COMMANDS) >= 15
    place = placing(Told(intervals=6, lead_in=2), keys=KEYS, poll_seconds=0.1)
    with served(place) as address:
        for command in COMMANDS:
            wanted = command.replace("http://127.0.0.1:8090", address).replace("curl ", "curl -sS --fail-with-body ", 1)
            done = subprocess.run(
                ["sh", "-c", wanted], env={"KEY": ADMIN, "PATH": "/usr/bin:/bin"}, capture_output=True, check=False
            )
            ended = 28 if "--max-time" in command else 0  # curl's code for a time that is over: a stream goes on
            assert done.returncode == ended, f"{command}: {done.stdout!r} {done.stderr!r}"
            assert done.stdout
    assert [wish.kind.value for wish in place.ledger.wishes("gateway")] == ["kill", "stop", "resume", "pause"]


def test_the_numbers_of_the_page_are_the_defaults() -> None:
    config, flat = ApiConfig(), " ".join(TEXT.split())
    assert (config.reads_per_minute, config.writes_per_minute, config.failures_per_minute) == (600, 30, 10)
    assert "600 reads and 30 writes a minute, and ten wrong keys" in flat
    assert f"a comment every {config.heartbeat_seconds:g} s" in flat
    assert f"http://{config.host}:{config.port}/" in flat


def test_the_page_names_what_only_an_admin_may() -> None:
    assert {kind for kind, role in ROLES.items() if role is ApiRole.ADMIN} == {WishKind.PROMOTE, WishKind.RELEASE}
    assert set(ROLES.values()) == {ApiRole.OPERATOR, ApiRole.ADMIN}


def test_the_page_explains_every_wish() -> None:
    table = TEXT.partition("| wish |")[2].partition("\n\n")[0]
    explained = set(
        re.findall(r"`(\w+)`", "\n".join(line.partition("|")[2].partition("|")[0] for line in table.splitlines()))
    )
    assert explained == {kind.value for kind in WishKind} - {"start"}
