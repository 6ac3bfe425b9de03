"""`setpoint train --continue` end to end on the tiny trace of test_train."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.bundle import PolicyBundle
from agents.continual import Continued
from agents.uncertainty import Estimate
from api.cli.main import main
from tests.api.test_train import place, registry_of, run
from tuner import continuing

__all__ = ["place"]


@pytest.fixture
def trained(place: Path, tmp_path: Path) -> Path:
    """A place of its own with one trained version."""
    folder = tmp_path / "place"
    shutil.copytree(place, folder)
    run(folder, "--seeds", "0,")
    return folder


def test_what_is_no_better_is_not_registered(trained: Path) -> None:
    """Two steps of next to nothing."""
    (trained / "setpoint.toml").write_text((trained / "setpoint.toml").read_text() + "learning_rate = 1e-30\n")
    before = registry_of(trained).versions()
    said = run(trained, "--continue", "1", "--seeds", "1,", "--window", "12")
    assert "No seed is cheaper than version 1 with confidence: it stays, and nothing was registered." in said
    assert "intervals 24 to 36" in said
    assert registry_of(trained).versions() == before


def test_what_is_better_becomes_the_challenger(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judgement is made up: on traffic this small nothing is better with confidence."""

    def better(study: Any, last_good: Any, told: Any) -> Continued:
        return Continued(told, Estimate(0.02, 0.01, 0.03), told.actor, adopted=True)

    monkeypatch.setattr(continuing, "judge_continued", better)
    before = len(registry_of(trained).versions())
    told = json.loads(run(trained, "--continue", "1", "--seeds", "1,", "--json"))
    registry = registry_of(trained)
    new = registry.version("challenger")
    assert told["best"]["version"] == new.version == before + 1
    assert (told["last_good"], told["first_interval"], told["end_interval"]) == (1, 24, 36)
    assert new.tags["continued_from"] == "1"
    old, bundle = registry.load(1), registry.load(new.version)
    assert isinstance(bundle, PolicyBundle)
    assert (bundle.reference, bundle.scale, bundle.knob_space) == (old.reference, old.scale, old.knob_space)
    learnt = {(part.first_interval, part.end_interval) for part in bundle.provenance.traffic if part.use == "train"}
    assert learnt == {(0, 36), (24, 36)}  # what the last good policy learnt from counts as learnt from


def test_an_unknown_version_is_said_before_training(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["setpoint", "train", "--continue", "77"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code not in (0, None)
    assert "`setpoint train` registers policies" in capsys.readouterr().err
