"""`setpoint train` end to end on a tiny trace: what it registers, logs and prints, and going on when interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from agents.bundle import PolicyBundle
from agents.mlflow_store import mlflow
from agents.registry import Registry
from api.cli.exit_codes import ExitCode
from api.cli.main import app, main
from api.cli.train import parse_seeds
from caches.errors import InputError
from envs.observation import SIZE
from tests.stores import FirstUse
from tests.traces.tiny import tiny_trace
from traces.store import save_trace
from traces.trace import TraceInfo
from tuner.training import FittedRule, TrainedSeed, Training

INTERVALS, INTERVAL_SECONDS, PER_INTERVAL = 60, 60, 20
SETTINGS = """
[trace]
path = "tiny.trace"
interval_seconds = 60

[serving]
max_sequences = 1

[run]
seeds = [0, 1]
workers = 1

[ppo]
total_steps = 256
lanes = 8
steps_per_update = 8
batch_size = 32
epochs = 2
horizon = 12
starts = 4
evaluate_every = 1
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, first_use: FirstUse) -> Path:
    """A working directory with 60 intervals of 20 requests for 40 keys, settings and an empty registry."""
    folder = tmp_path_factory.mktemp("train")
    for name in ("mlruns", "other"):
        (folder / name).mkdir()
        shutil.copy(first_use.mlruns / "mlflow.db", folder / name / "mlflow.db")
    random = np.random.default_rng(1)
    requests = INTERVALS * PER_INTERVAL + 1
    keys = np.minimum(random.geometric(0.1, requests) - 1, 39)
    keys[:40] = np.arange(40)
    trace = tiny_trace(
        [int(key) for key in keys],
        [index * INTERVAL_SECONDS / PER_INTERVAL for index in range(requests)],
        [100 + int(key) for key in keys],
        prompt_tokens=np.full(requests, 500, np.int32),
        output_tokens=np.full(requests, 40, np.int32),
        info=TraceInfo("tiny", "drawn for a test", composed=True, assumptions=("All made up.",)),
    )
    save_trace(trace, folder / "tiny.trace")
    (folder / "setpoint.toml").write_text(SETTINGS)
    return folder


def run(folder: Path, *arguments: str) -> str:
    """The command in this process and in that folder; returns its standard output."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        result = CliRunner().invoke(app, ["train", *arguments], catch_exceptions=False)
    finally:
        os.chdir(before)
    assert result.exit_code == ExitCode.DONE, result.output
    return result.stdout


def registry_of(folder: Path) -> Registry:
    return Registry(f"sqlite:///{folder}/mlruns/mlflow.db", "setpoint", "cache-policy")


@pytest.fixture(scope="module")
def trained(place: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(run(place, "--json"))
    return result


def test_one_version_per_seed_with_the_best_as_challenger(place: Path, trained: dict[str, Any]) -> None:
    registry = registry_of(place)
    versions = {version.version: version for version in registry.versions()}
    assert [one["seed"] for one in trained["seeds"]] == [0, 1]
    for one in trained["seeds"]:
        version = versions[one["version"]]
        assert version.kind == "ppo"
        assert version.tags["training"] == version.run_id == trained["run_id"]
        assert version.tags["training_key"] == trained["key"]
        assert version.tags["seed"] == str(one["seed"])
        assert version.metrics["validation_saving_ratio"] == one["saving"]
        assert version.metrics["intervals_until_within_1_percent"] == one["learned_within"] <= one["best_steps"]
    best = min((*trained["seeds"], *trained["rules"]), key=lambda one: (one["excess"], -one["saving"]))
    assert registry.version("challenger").version == best["version"] == trained["best"]["version"]
    assert registry.champion() is None


def test_the_rules_are_versions_of_the_training_too(place: Path, trained: dict[str, Any]) -> None:
    registry = registry_of(place)
    versions = {version.version: version for version in registry.versions()}
    assert [one["kind"] for one in trained["rules"]] == ["whatif", "schedule"]
    for one in trained["rules"]:
        version, bundle = versions[one["version"]], registry.load(one["version"])
        assert version.kind == bundle.kind == one["kind"]
        assert version.tags["training"] == trained["run_id"]
        assert "seed" not in version.tags
        assert (
            version.metrics["validation_saving_ratio"] == one["saving"] >= 0.0
        )  # staying is among what they choose from
        assert bundle.reference == registry.load(trained["seeds"][0]["version"]).reference
        bundle.rule().reset(0)


def test_the_best_on_validation_is_nominated_whatever_it_is() -> None:
    """The least unsafe first, then the cheapest, then the first."""
    seeds = tuple(TrainedSeed(i, i + 1, saving, 0, 64, False, 0, 0.0) for i, saving in enumerate((0.01, 0.02)))
    rule, other = FittedRule("whatif", 3, 0.03, 0.0), FittedRule("schedule", 4, 0.5, 0.1)
    assert Training("a", "b", seeds, (rule, other)).best is rule
    assert Training("a", "b", seeds, (replace(rule, saving=0.02), other)).best is seeds[1]


def test_bundles_say_where_they_come_from(place: Path, trained: dict[str, Any]) -> None:
    first = trained["seeds"][0]
    bundle = registry_of(place).load(first["version"])
    provenance = bundle.provenance
    assert [(part.use, part.first_interval, part.end_interval) for part in provenance.traffic] == [
        ("train", 0, 36),
        ("validation", 36, 48),
        ("test", 48, 60),
    ]
    manifest = json.loads((place / "tiny.trace" / "trace.json").read_text())
    assert provenance.trace_sha256 == (manifest["sha256"],)
    assert provenance.seed == first["seed"]
    assert provenance.metrics["validation_saving_ratio"] == first["saving"]
    assert provenance.config["serving"]["max_sequences"] == 1  # type: ignore[call-overload, index]
    assert {"numpy", "torch", "setpoint"} <= set(provenance.versions)
    assert bundle.actor().act(np.zeros(SIZE, np.float32)).shape == (3,)
    assert bundle.scale is not None
    assert bundle.scale.requests_per_second == pytest.approx(PER_INTERVAL / INTERVAL_SECONDS)


def test_curves_settings_and_the_static_fit_are_logged(place: Path, trained: dict[str, Any]) -> None:
    client = mlflow().MlflowClient(f"sqlite:///{place}/mlruns/mlflow.db")
    logged = client.get_run(trained["run_id"])
    assert logged.info.status == "FINISHED"
    assert logged.data.params["ppo.total_steps"] == "256"
    assert logged.data.params["trace.composed"] == "True"
    assert logged.data.tags["assumptions"] == "All made up."
    for one in trained["seeds"]:
        curve = client.get_metric_history(trained["run_id"], f"seed_{one['seed']}/validation_saving_ratio")
        assert [point.step for point in curve] == [0, 64, 128, 192, 256]
        assert max(point.value for point in curve) == one["saving"]
    tables = [artefact.path for artefact in client.list_artifacts(trained["run_id"], "tables")]
    assert tables == ["tables/static_fit.json"]


def test_untrained_is_the_reference(place: Path, trained: dict[str, Any]) -> None:
    """The first look, before any update, saves exactly nothing, so the best never saves less."""
    client = mlflow().MlflowClient(f"sqlite:///{place}/mlruns/mlflow.db")
    for one in trained["seeds"]:
        curve = client.get_metric_history(trained["run_id"], f"seed_{one['seed']}/validation_saving_ratio")
        assert curve[0].value == 0.0
        assert one["saving"] >= 0.0


def test_again_changes_nothing(place: Path, trained: dict[str, Any]) -> None:
    before = [version.version for version in registry_of(place).versions()]
    again = json.loads(run(place, "--json"))
    assert again["reused"]
    assert {**again, "reused": False} == trained
    assert [version.version for version in registry_of(place).versions()] == before
    assert "Trained before on tiny" in run(place)


def test_fresh_with_two_workers_gives_equal_policies(place: Path, trained: dict[str, Any]) -> None:
    anew = json.loads(run(place, "--fresh", "--workers", "2", "--json"))
    assert not anew["reused"]
    registry = registry_of(place)
    for old, new in zip(trained["seeds"], anew["seeds"], strict=True):
        assert new["version"] > old["version"]
        one, other = registry.load(old["version"]), registry.load(new["version"])
        assert one.weights.keys() == other.weights.keys()
        assert all(np.array_equal(one.weights[name], other.weights[name]) for name in one.weights)


LONG = ("--steps", "1000000", "--workers", "2")


@pytest.fixture
def process(place: Path) -> Iterator[subprocess.Popen[str]]:
    """A training that takes much longer than this test."""
    command = [str(Path(sys.executable).parent / "setpoint"), "train", *LONG]
    never_early = {**os.environ, "SETPOINT_PPO__PATIENCE": "1000000"}
    with subprocess.Popen(
        command,
        cwd=place,
        env=never_early,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # whatever started the tests ignores
    ) as process:
        yield process
        for pid in processes_of(process.pid):
            os.kill(pid, signal.SIGKILL)


def checkpoints(place: Path) -> list[Path]:
    """Of the long training: those with more steps than a short one has."""
    found = (place / "out" / "checkpoints").glob("*/seed-*/checkpoint.json")
    return [file for file in found if json.loads(file.read_text())["config"]["total_steps"] == 1_000_000]


def wait_for(what: Callable[[], bool], seconds: float = 200.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def steps(file: Path) -> int:
    return int(json.loads(file.read_text())["steps"])


def processes_of(session: int) -> list[int]:
    """Processes of a session that still run."""
    alive = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            alive.append(int(folder.name))
    return alive


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_interrupted_training_leaves_only_checkpoints_and_goes_on(
    how: signal.Signals, place: Path, trained: dict[str, Any], process: subprocess.Popen[str]
) -> None:
    versions = len(registry_of(place).versions())
    before = {file: steps(file) for file in checkpoints(place)}
    wait_for(lambda: len(checkpoints(place)) == 2 and all(steps(f) > before.get(f, 0) for f in checkpoints(place)))
    os.kill(process.pid, how)
    output, errors = process.communicate(timeout=180)
    wait_for(lambda: not processes_of(process.pid), 30)
    assert output == ""
    assert "Traceback" not in errors
    assert process.returncode == (ExitCode.INTERRUPTED if how == signal.SIGINT else -signal.SIGKILL)
    assert len(registry_of(place).versions()) == versions
    for file, done in before.items():
        saved = json.loads(file.read_text())
        assert done < saved["steps"] < 1_000_000  # it went on, it did not start anew
        assert saved["looks"][0]["steps"] == 0


def test_what_a_checkpoint_has_is_not_trained_again(place: Path, trained: dict[str, Any]) -> None:
    """Without its registry, a finished training comes back from its checkpoints: same policies, new versions."""
    uri = f"sqlite:///{place}/other/mlflow.db"
    again = json.loads(run(place, "--tracking-uri", uri, "--json"))
    assert not again["reused"]
    assert [one["saving"] for one in again["seeds"]] == [one["saving"] for one in trained["seeds"]]
    bundle = PolicyBundle.load(place / "out" / "policies" / trained["key"] / "seed-0")
    original = registry_of(place).load(trained["seeds"][0]["version"])
    assert all(np.array_equal(bundle.weights[name], original.weights[name]) for name in bundle.weights)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "0"], "--seeds: got '0', expected a number of seeds from 1 on"),
        (["--seeds", "3,3"], "run.seeds = (3, 3)"),
        (["--steps", "0"], "command line, ppo.total_steps: got 0, expected greater than 0"),
        (["nowhere.csv"], "nowhere.csv: got no such file"),
        (["--config", "none.toml"], "none.toml: cannot be read"),
        (["--config", "long.toml"], "interval_seconds: got 9000.0, expected at most half the trace's span"),
        (["--config", "typo.toml"], "typo.toml: unknown key ppo.lane, the nearest known is ppo.lanes"),
        (["--tracking-uri", "file:mlruns"], "tracking URI: got 'file:mlruns'"),
    ],
)
def test_bad_settings_are_one_line_and_code_2(
    arguments: list[str],
    words: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (place / "long.toml").write_text('trace.path = "tiny.trace"\ntrace.interval_seconds = 9000')
    (place / "typo.toml").write_text('trace.path = "tiny.trace"\nppo.lane = 3')
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["setpoint", "train", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    streams = capsys.readouterr()
    assert caught.value.code == ExitCode.BAD_INPUT
    assert streams.out == ""
    lines = [line for line in streams.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert words in lines[0]


def test_parse_seeds() -> None:
    assert parse_seeds("3") == (0, 1, 2)
    assert parse_seeds("3,7") == (3, 7)
    assert parse_seeds("3,") == (3,)
    for bad in ("", "x", "1.5", "-1", ","):
        with pytest.raises(InputError, match="--seeds"):
            parse_seeds(bad)
