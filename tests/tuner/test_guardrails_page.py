"""docs/guardrails.md against the code."""

from __future__ import annotations

import re
from pathlib import Path

from tuner.guardrails import GUARDRAILS
from tuner.guards.objectives import Objectives
from tuner.records import Outcome, Phase, Verdict, WishKind
from tuner.rollout import TABLE, Arrival, Cause
from tuner.rollout_section import RolloutConfig

PAGE = (Path(__file__).parents[2] / "docs" / "guardrails.md").read_text(encoding="utf-8")
KINDS: dict[type, str] = {Outcome: "outcome ", Verdict: "verdict ", WishKind: "wish ", Arrival: ""}
CAUSES: tuple[Cause, ...] = (*Outcome, *Verdict, *WishKind, *Arrival)


def test_the_rollout_table_is_the_codes() -> None:
    rows = [
        f"| {KINDS[type(cause)]}{cause.value} | {' | '.join(TABLE[phase, cause] for phase in Phase)} |".replace(
            "_", " "
        )
        for cause in CAUSES
    ]
    _, _, below = PAGE.partition("<!-- rollout table: begin (tuner/rollout.py) -->\n")
    table = below.partition("<!-- rollout table: end -->")[0].splitlines()
    assert table[0] == f"| | {' | '.join(phase.value.replace('_', ' ') for phase in Phase)} |"
    assert table[2:] == rows


def test_every_guardrail_is_told_in_its_order() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE) == [guardrail.__name__ for guardrail in GUARDRAILS]


def test_every_setting_is_told() -> None:
    missing = [name for name in Objectives.model_fields if f"`{name}`" not in PAGE]
    missing += [
        name
        for name in ("step_intervals", "settle_intervals", "cool_down_intervals")
        if f"`rollout.{name}`" not in PAGE
    ]
    assert missing == []


def test_shares_are_the_default_ones() -> None:
    assert [f"{100 * share:g} %" in PAGE for share in RolloutConfig().shares] == [True] * 4


def test_examples_are_sentences_that_tests_know() -> None:
    """Each quotation stands, up to its line breaks, in the tests of the guardrails."""
    folder = Path(__file__).parent
    tests = [
        (folder / name).read_text(encoding="utf-8") for name in ("test_guardrails.py", "test_objective_guardrails.py")
    ]
    text = re.sub(r'"\s*\n\s*"', "", "".join(tests))
    quoted = re.findall(r"^> .*(?:\n> .*)*", PAGE, flags=re.MULTILINE)
    sentences = [re.sub(r"\n> ", " ", one).removeprefix("> ") for one in quoted]
    assert len(sentences) == 8
    assert [one for one in sentences if one not in text] == []
