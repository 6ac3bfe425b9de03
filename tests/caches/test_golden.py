from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from caches.stats import CacheStats, Expiry
from tests.caches.test_cache_contract import run_in_process, run_shadow
from tests.contracts.cache_contract import Change, Request, Runner, Script, WarmUp, model

FOLDER = Path(__file__).parents[1] / "golden"
STEPS = {
    "request": Request,
    "change": Change,
    "warm": lambda time, until, keys: WarmUp(time, tuple(keys), until),
}


def script_of(golden: dict[str, Any]) -> Script:
    steps = tuple(STEPS[kind](*rest) for kind, *rest in golden["events"])
    return Script(golden["capacity_bytes"], golden["ttl_seconds"], Expiry[golden["expiry"]], steps)


@pytest.mark.parametrize("run", [run_shadow, run_in_process, model], ids=["shadow", "in process", "model"])
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_counts_are_those_derived_by_hand(path: Path, run: Runner) -> None:
    golden = tomllib.loads(path.read_text())
    told = run(script_of(golden))
    assert "".join(outcome[0].upper() for outcome in told.outcomes) == golden["outcomes"]
    assert told.after[-1] == (CacheStats(**golden["counts"]), frozenset(golden["resident"]))


def test_there_are_golden_traces() -> None:
    assert len(list(FOLDER.glob("*.toml"))) >= 4
