"""Tiny traces under each policy, with counts derived by hand in their comments: tests/golden/eviction."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caches.policies.catalog import EVICTIONS, admission_called, eviction_called
from caches.policies.settings import Admission, Eviction
from caches.stats import CacheStats, Expiry
from tests.caches.policies.test_policy_contract import run_in_process, run_shadow
from tests.contracts.cache_contract import Request, Script, Told
from tests.contracts.policy_contract import model

FOLDER = Path(__file__).parents[2] / "golden" / "eviction"
Runner = Callable[[Script, Eviction, Admission], Told]


@pytest.mark.parametrize("run", [run_shadow, run_in_process, model], ids=["shadow", "in process", "model"])
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_counts_are_those_derived_by_hand(path: Path, run: Runner) -> None:
    golden: dict[str, Any] = tomllib.loads(path.read_text())
    steps = tuple(Request(*rest) for _, *rest in golden["events"])
    script = Script(golden["capacity_bytes"], float("inf"), Expiry.SINCE_WRITE, steps)
    eviction = replace(eviction_called(golden["eviction"]), **golden.get("parameters", {}))
    admission = replace(admission_called(golden.get("admission", "all")), **golden.get("rule", {}))
    told = run(script, eviction, admission)
    assert "".join(outcome[0].upper() for outcome in told.outcomes) == golden["outcomes"]
    assert told.after[-1] == (CacheStats(**golden["counts"]), frozenset(golden["resident"]))


def test_every_policy_has_one() -> None:
    named = {tomllib.loads(path.read_text())["eviction"] for path in FOLDER.glob("*.toml")}
    assert named == set(EVICTIONS) - {"lru-3"}
