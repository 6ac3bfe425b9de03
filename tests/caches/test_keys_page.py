"""docs/keys.md against the tables and rules in the code."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from caches.keys.fields import ALWAYS_COUNTED, CHOICES, DEFAULTS, LEFT_OUT, NULL_IS_ABSENT, OPENAI_DEFAULTS, Endpoint
from caches.keys.levels import LEVELS
from caches.keys.rules import KeyRules
from caches.keys.structure import TRACKING_FIELDS, Structure

PAGE = (Path(__file__).parents[2] / "docs" / "keys.md").read_text(encoding="utf-8")


def named(row: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+)`", row))


def first_cells(heading: str) -> str:
    """The first column of the tables below a heading of the second level."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return "\n".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))


def test_the_page_lists_what_is_left_out() -> None:
    assert named(first_cells("What is left out")) == LEFT_OUT


def test_the_page_lists_where_null_is_absent() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| null |"))
    assert named(row) == NULL_IS_ABSENT


@pytest.mark.parametrize(("tables", "when"), [(DEFAULTS, "always"), (OPENAI_DEFAULTS, "with `openai_defaults`")])
@pytest.mark.parametrize("endpoint", Endpoint)
def test_the_page_lists_the_defaults(tables: dict[Endpoint, dict[str, object]], when: str, endpoint: Endpoint) -> None:
    short = endpoint.value.removeprefix("/v1/").split("/")[0]
    rows = [line.split("|") for line in PAGE.splitlines() if line.endswith(f"| {when} |")]
    listed = {name for row in rows if short in row[2] for name in re.findall(r"`([a-z_]+)` [0-9tf`]", row[1])}
    assert listed == set(tables[endpoint])


def test_the_page_lists_the_choices() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| `tool_choice`"))
    assert {name for pair in CHOICES for name in pair} <= named(row)


def test_the_page_lists_the_rules() -> None:
    rules = [field.name for field in fields(KeyRules) if field.init]
    assert re.findall(r"`([a-z_]+)`", first_cells("Which answers are kept")) == rules
    assert named(PAGE.split("| `left_out` |")[1].split("\n")[0]) == ALWAYS_COUNTED


def test_the_page_lists_the_rules_of_structure() -> None:
    listed = re.findall(r"`([a-z_]+)`", first_cells("Written differently"))
    assert listed == [field.name for field in fields(Structure)]
    row = next(line for line in PAGE.splitlines() if line.startswith("| `tracking_fields`"))
    assert named(row) - {"tracking_fields"} == TRACKING_FIELDS


def test_the_page_lists_the_levels() -> None:
    assert re.findall(r"`([a-z_]+)`", first_cells("What keeps equal requests apart")) == [one.value for one in LEVELS]


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = PAGE.split("```python\n")[1].split("```")[0]
    exec(code, {})
    reason, key = capsys.readouterr().out.splitlines()
    assert reason == "None"
    assert re.fullmatch(r"[0-9a-f]{64} Capital of France\?", key)
