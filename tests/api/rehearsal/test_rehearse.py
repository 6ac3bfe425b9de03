"""`setpoint rehearse`: real servers on loopback, and a policy that makes its way through them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from agents.baselines.schedule import HourSchedule
from agents.bundle import PolicyBundle
from agents.mlflow_store import default_tracking_uri
from agents.registry import CHALLENGER, Registry
from agents.rules import arrays_of
from api.cli.main import app
from caches.knobs import KnobSettings
from caches.policies.pair import CachePolicy
from tests.agents.bundles import PROVENANCE, SCALE
from tests.api.rehearsal.test_parts import bundle_that_chooses
from tests.api.rehearsal.worlds import INTERVAL_SECONDS, SETTINGS, problem_by_hand, trace_by_hand
from traces.store import save_trace
from tuner.ledgers.sql import open_ledger
from tuner.records import Phase

MODEL = "setpoint-policy"


def bundle_that_wants(ttl_seconds: float) -> PolicyBundle:
    """One that always wants the same lifetime, and is judged against it."""
    knobs = problem_by_hand().knobs
    wanted = KnobSettings(1_000_000.0, ttl_seconds, 0.0)
    rule = HourSchedule(knobs.positions(wanted), knobs.positions(wanted)[None])
    scale = replace(SCALE, interval_seconds=INTERVAL_SECONDS)
    return PolicyBundle("schedule", knobs, wanted, PROVENANCE, scale=scale, weights=arrays_of(rule))


@pytest.fixture
def place(tmp_path: Path, mlruns: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with settings, a trace and a registry."""
    save_trace(trace_by_hand(), tmp_path / "by-hand.trace")
    tracking = f'[tracking]\nuri = "sqlite:///{mlruns.name}/mlflow.db"\nexperiment = "tuning"\nmodel = "{MODEL}"\n'
    (tmp_path / "setpoint.toml").write_text(SETTINGS + tracking)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def registry_of(mlruns: Path, model: str = MODEL) -> Registry:
    return Registry(default_tracking_uri(mlruns, {}), "tuning", model)


def enter(mlruns: Path, folder: Path, bundle: PolicyBundle) -> None:
    registry = registry_of(mlruns)
    bundle.save(folder / "policy")
    with registry.start_run("train", {}) as run:
        registry.set_challenger(registry.register(folder / "policy", run, {}))


def rehearse(*options: str) -> Result:
    command = ["rehearse", "--once", "--config", "setpoint.toml", "--speed", "300", *options]
    return CliRunner().invoke(app, command, catch_exceptions=False)


def test_a_better_policy_is_promoted_and_the_report_says_so(place: Path, mlruns: Path) -> None:
    enter(mlruns, place, bundle_that_wants(10_000.0))
    done = rehearse()
    assert done.exit_code == 0
    assert "A challenger has 5 % of the keys." in done.stdout, done.stdout
    assert "A challenger has 50 % of the keys" in done.stdout, done.stdout
    assert "The challenger was promoted" in done.stdout, done.stdout
    assert "failed" not in done.stdout
    folder = place / "out" / "by-hand" / "rehearsal"
    assert "<h1>Experiment rehearsal-" in (folder / "report.html").read_text()
    ledger = open_ledger(f"sqlite:///{folder / 'ledger.db'}", folder)
    state = ledger.state("rehearsal")
    ledger.close()
    assert state is not None
    assert state.phase is Phase.PROMOTED
    assert np.isclose(state.plan.control.ttl_seconds, 10_000.0, rtol=1e-3)
    assert registry_of(mlruns, f"{MODEL}-rehearsal").champion() == 1
    assert registry_of(mlruns).champion() is None  # nothing is decided about the real one
    assert registry_of(mlruns).version(CHALLENGER).version == 1


def test_time_is_up_where_nothing_can_be_told(place: Path, mlruns: Path) -> None:
    enter(mlruns, place, bundle_that_wants(5.0))  # just as the operator has it
    done = rehearse("--intervals", "4")
    assert done.exit_code == 0
    assert "Not decided within 4 intervals." in done.stdout
    assert "Report to read: " in done.stdout


def test_a_version_that_is_not_there_is_refused(place: Path, mlruns: Path) -> None:
    enter(mlruns, place, bundle_that_wants(5.0))
    command = ["rehearse", "9", "--config", "setpoint.toml"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code != 0
    assert "9" in str(done.exception)
    assert not (place / "out").exists()


@pytest.mark.slow
def test_a_rehearsal_may_be_under_another_policy(place: Path, mlruns: Path) -> None:
    settings = place / "setpoint.toml"
    settings.write_text(settings.read_text() + '\n[cache]\neviction_policy = "s3-fifo"\nadmission = "second-hit"\n')
    enter(mlruns, place, replace(bundle_that_wants(10_000.0), policy=CachePolicy("s3-fifo", "second-hit")))
    done = rehearse()
    assert done.exit_code == 0
    assert "The challenger was promoted" in done.stdout, done.stdout
    assert "failed" not in done.stdout


@pytest.mark.slow
def test_a_policy_that_chooses_is_rehearsed_beside_a_cache_that_offers_it(place: Path, mlruns: Path) -> None:
    """Whatever the settings name beside. It names what it chose from its first decision on."""
    settings = place / "setpoint.toml"
    settings.write_text(settings.read_text() + '\n[cache]\neviction_policy = ["gdsf", "lru", "sieve"]\n')
    enter(mlruns, place, bundle_that_chooses("sieve", "lru"))
    done = rehearse("--intervals", "8")
    assert done.exit_code == 0
    assert "failed" not in done.stdout
    folder = place / "out" / "by-hand" / "rehearsal"
    ledger = open_ledger(f"sqlite:///{folder / 'ledger.db'}", folder)
    decided = [one for one in ledger.decisions("rehearsal") if one.proposed is not None]
    ledger.close()
    applied = {one.applied.eviction_policy for one in decided if one.applied is not None}
    assert applied
    assert applied <= {"sieve", "lru"}
