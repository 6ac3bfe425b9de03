"""`setpoint evaluate`, `promote` and `policies` on a small real world with a real MLflow store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import typer
from typer.testing import CliRunner, Result

from agents.bundle import PolicyBundle
from agents.mlflow_store import Store, default_tracking_uri
from agents.promotion import PromotionEvidence, Saving, record_evidence, recorded_evidence
from agents.provenance import Provenance, TracePart
from agents.registry import Registry
from agents.rules import arrays_of
from agents.study import Study, open_study
from agents.units import usd
from agents.whatif import WhatIfController
from api.cli.evaluate import evaluate
from api.cli.policies import policies
from api.cli.promote import promote
from api.cli.registry import parse_policy
from caches.errors import InputError, Mismatch, NotFound
from caches.knobs import KnobSettings
from envs.observation import OBSERVATION_VERSION, SIZE
from envs.world import World
from tests.api.html_pages import HtmlPage
from tests.envs.worlds import random_trace
from tests.stores import FirstUse
from traces.store import open_trace, save_trace
from tuner.config import load_tuner_config
from tuner.problem import problem_of, split_of

SETTINGS = """
[trace]
path = "small.trace"
interval_seconds = 10
split = { train = 0.5, validation = 0.2, test = 0.3 }
[run]
workers = 1
[constraints]
p99_ttft_seconds = 30.0
stale_ratio = 0.5
"""
SEEDS = (0, 1, 2)


def command(function: Any) -> typer.Typer:
    app = typer.Typer()
    app.command()(function)
    return app


def run(function: Any, *arguments: str) -> Result:
    return CliRunner().invoke(command(function), list(arguments), catch_exceptions=False)


def registry_in(folder: Path) -> Registry:
    return Registry(default_tracking_uri(folder / "mlruns", {}), "setpoint", "cache-policy")


def bundle(study: Study, seed: int, sha256: str) -> PolicyBundle:
    """Seed 0 never moves; the others do, each in its way."""
    rng = np.random.default_rng(seed)
    scale = 0.0 if seed == 0 else 0.3
    weights = {"actor.0.weight": scale * rng.normal(size=(3, SIZE)), "actor.0.bias": np.zeros(3)}
    parts = (("train", study.training), ("validation", study.validation), ("test", study.test))
    return PolicyBundle(
        kind="ppo",
        knob_space=study.world.problem.knobs,
        reference=study.reference.settings,
        provenance=Provenance(
            tuple(TracePart("small", sha256, use, part.start, part.stop) for use, part in parts),  # type: ignore[arg-type]
            seed,
        ),
        observation_version=OBSERVATION_VERSION,
        observation_size=SIZE,
        scale=study.scale,
        weights={name: value.astype(np.float32) for name, value in weights.items()},
    )


def register_training(folder: Path) -> None:
    """Three versions of one training; version 1, whose policy never moves, is the challenger."""
    config = load_tuner_config(folder / "setpoint.toml", folder, {}, {"trace.path": folder / "small.trace"})
    trace = open_trace(folder / "small.trace")
    reference = KnobSettings(2_000.0, 60.0, 0.5)
    study = open_study(World(problem_of(config, trace)), split_of(config), reference, horizon=1, starts=1)
    registry = registry_in(folder)
    with registry.start_run("train small", {}) as made:
        for seed in SEEDS:
            place = folder / "policies" / str(seed)
            bundle(study, seed, trace.sha256).save(place)
            version = registry.register(place, made, {"validation_saving_ratio": 0.01 * seed})
            registry.set_tag(version, "training", made.id)
            registry.set_tag(version, "seed", str(seed))
    registry.set_challenger(1)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory, first_use: FirstUse) -> Iterator[tuple[Path, Result]]:
    """A working folder after one `setpoint evaluate`, and what that printed."""
    folder = tmp_path_factory.mktemp("installation")
    (folder / "mlruns").mkdir()
    shutil.copy(first_use.mlruns / "mlflow.db", folder / "mlruns" / "mlflow.db")
    (folder / "setpoint.toml").write_text(SETTINGS)
    save_trace(random_trace(0, intervals=60), folder / "small.trace")
    register_training(folder)
    shutil.copytree(folder / "mlruns", folder / "before")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield folder, run(evaluate, "--resamples", "200")


@pytest.fixture
def here(evaluated: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder as working folder, with a store of its own."""
    for name in ("setpoint.toml", "small.trace", "mlruns"):
        source = evaluated[0] / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_evaluate_prints_tables_sentences_and_what_to_do_next(evaluated: tuple[Path, Result]) -> None:
    text = evaluated[1].stdout
    for expected in (
        "default",
        "best static",
        "random",
        "hill climber",
        "learned, mean of 3 seeds",
        "what-if controller",
        "clairvoyant bound",
        "per-interval static bound",
    ):
        assert expected in text
    assert "Version 1 on intervals 42 to 60 of random" in text
    assert "Only 3 learned policies were judged" in text
    assert "Next: setpoint promote 1" in text


def test_evaluate_writes_numbers_and_pictures(evaluated: tuple[Path, Result]) -> None:
    folder = evaluated[0] / "out" / "random"
    names = ["cost_by_cause.png", "cost_over_time.png", "evaluation.json", "report.html", "settings_over_time.png"]
    assert sorted(path.name for path in folder.iterdir()) == names
    body = orjson.loads((folder / "evaluation.json").read_bytes())
    assert [policy["version"] for policy in body["policies"] if policy["role"] == "learned"] == [1, 2, 3]
    still = next(policy for policy in body["policies"] if policy["version"] == 1)
    assert still["saving"]["usd_per_1000"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "confidence": 0.95}
    assert body["setting"]["test"] == [42, 60]
    assert body["evidence"]["candidate"] == 1


def test_evaluate_writes_a_report_to_read(evaluated: tuple[Path, Result]) -> None:
    folder, printed = evaluated
    assert "Report to read: out/random/report.html" in printed.stdout
    page = HtmlPage((folder / "out" / "random" / "report.html").read_text(encoding="utf-8"))
    assert (page.faults, page.outside()) == ([], [])
    body = orjson.loads((folder / "out" / "random" / "evaluation.json").read_bytes())
    assert all(usd(policy["usd_per_1000"]) in page.text for policy in body["policies"])
    assert body["setting"]["trace_sha256"] in page.text
    assert body["run_id"] in page.text
    assert "Version 1 has not earned promotion" in page.text


def test_evaluate_logs_tables_and_pictures_to_mlflow(evaluated: tuple[Path, Result]) -> None:
    folder = evaluated[0]
    version = registry_in(folder).version(1)
    run_id = version.tags["evaluation_run"]
    with Store(default_tracking_uri(folder / "mlruns", {})).asking("look") as client:
        logged = client.get_run(run_id)
        artifacts = {
            file.path for part in ("tables", "pictures", "evaluation") for file in client.list_artifacts(run_id, part)
        }
    assert logged.info.status == "FINISHED"
    assert logged.data.tags["evaluated_version"] == "1"
    assert logged.data.tags["training"] == version.tags["training"]
    assert logged.data.metrics["usd_per_1000/best static"] > 0
    assert "saving_percent_low_over_time" in logged.data.metrics
    assert artifacts == {
        "tables/comparison.json",
        "tables/behaviour.json",
        "tables/cost_by_cause.json",
        "tables/sentences.json",
        "pictures/cost_over_time.png",
        "pictures/settings_over_time.png",
        "pictures/cost_by_cause.png",
        "evaluation/evaluation.json",
    }


def test_only_the_chosen_version_gets_evidence(evaluated: tuple[Path, Result]) -> None:
    registry = registry_in(evaluated[0])
    found = recorded_evidence(registry, 1)
    assert (found.candidate, found.champion, found.intervals) == (1, None, 18)
    assert float(registry.version(2).tags["test_saving_percent"]) != 0.0
    with pytest.raises(NotFound, match="not evaluated yet"):
        recorded_evidence(registry, 2)


def test_evaluate_against_a_champion_as_json(here: Path) -> None:
    registry = registry_in(here)
    registry.swap_champion(3, None)
    result = run(evaluate, "2", "--resamples", "200", "--seed", "5", "--json")
    body = orjson.loads(result.stdout)
    assert body["version"] == 2
    assert body["evidence"]["champion"] == 3
    rival = next(policy for policy in body["policies"] if policy["role"] == "champion")
    same = next(policy for policy in body["policies"] if policy["version"] == 3 and policy["role"] == "learned")
    mine = next(policy for policy in body["policies"] if policy["version"] == 2)
    assert rival["usd_per_1000"] == same["usd_per_1000"]
    expected = rival["usd_per_1000"] - mine["usd_per_1000"]
    assert body["evidence"]["saving_over_champion"]["mean_usd_per_1000"] == pytest.approx(expected)
    assert body["setting"]["seed"] == 5
    assert body["report"] == "out/random/report.html"
    assert "with the champion, version 3" in Path(body["report"]).read_text(encoding="utf-8")


def test_a_quick_evaluation_has_the_evidence_without_rivals_and_bound(here: Path) -> None:
    full = orjson.loads(run(evaluate, "2", "--resamples", "200", "--json").stdout)
    quick = orjson.loads(run(evaluate, "2", "--resamples", "200", "--json", "--quick").stdout)
    assert quick["evidence"] == full["evidence"]
    roles = {policy["role"] for policy in quick["policies"]}
    assert roles == {"default", "best static", "baseline", "learned", "ghost bound"}
    baselines = [policy["name"] for policy in quick["policies"] if policy["role"] == "baseline"]
    assert baselines == ["random", "hill climber"]
    assert quick["learned"]["headroom_captured"] is None
    page = Path(quick["report"]).read_text(encoding="utf-8")
    assert "clairvoyant" not in page


@pytest.mark.slow  # a cluster does not start in time on a machine that is busy with other tests
@pytest.mark.filterwarnings("ignore")  # of the cluster's own sockets and processes
def test_ghosts_and_rules_on_a_cluster_are_the_same_to_the_digit(here: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra `ray`")
    at_home, away = (
        orjson.loads(run(evaluate, "2", "--resamples", "200", "--json", *where).stdout)
        for where in ((), ("--ray", "local"))
    )
    assert away["policies"] == at_home["policies"]
    assert away["evidence"] == at_home["evidence"]
    assert {"what-if controller", "hour-of-week schedule"} <= {policy["name"] for policy in away["policies"]}


def test_a_rule_of_the_training_is_judged_like_a_policy(here: Path) -> None:
    """It is the learned one then, and the seeds beside it are there to compare with."""
    registry, network = registry_in(here), registry_in(here).load(1)
    controller = WhatIfController(network.knob_space.positions(network.reference), network.knob_space.max_steps, 1.0)
    rule = PolicyBundle(
        kind="whatif",
        knob_space=network.knob_space,
        reference=network.reference,
        provenance=replace(network.provenance, seed=None),
        scale=network.scale,
        weights=arrays_of(controller),
    )
    rule.save(here / "rule")
    with registry.start_run("rule", {}) as made:
        version = registry.register(here / "rule", made, {})
    registry.set_tag(version, "training", registry.version(1).tags["training"])
    body = orjson.loads(run(evaluate, str(version), "--resamples", "200", "--json").stdout)
    roles = {policy["name"]: (policy["role"], policy["version"]) for policy in body["policies"]}
    assert roles["what-if controller"] == ("learned", version)
    assert {roles[f"PPO seed {seed}"] for seed in SEEDS} == {("baseline", 1), ("baseline", 2), ("baseline", 3)}
    assert body["evidence"]["candidate"] == version
    assert any("The what-if controller costs" in sentence for sentence in body["sentences"])
    assert len([policy for policy in body["policies"] if policy["name"] == "what-if controller"]) == 1


def test_test_traffic_that_was_trained_on_is_refused(here: Path) -> None:
    """Tested would be 30 to 60; trained was 0 to 30, validated 30 to 42."""
    (here / "setpoint.toml").write_text(
        SETTINGS.replace("train = 0.5, validation = 0.2, test = 0.3", "train = 0.4, validation = 0.1, test = 0.5")
    )
    message = "validation intervals 30 to 42 of trace small overlap the test intervals 30 to 60 of trace random"
    with pytest.raises(Mismatch, match=message):
        run(evaluate)
    assert not (here / "out").exists()


def test_other_knobs_are_refused(here: Path) -> None:
    (here / "setpoint.toml").write_text(SETTINGS + "[knobs.ttl_seconds]\nlow = 1.0\n")
    with pytest.raises(Mismatch, match=r"ttl_seconds\.low: the bundle has 10\.0, this program has 1\.0"):
        run(evaluate)


def test_evaluate_needs_a_trace_and_a_policy(here: Path) -> None:
    with pytest.raises(NotFound, match="no alias 'best'"):
        run(evaluate, "best")
    (here / "setpoint.toml").write_text("")
    with pytest.raises(InputError, match="got none, expected --trace"):
        run(evaluate)


def test_no_saving_is_not_promoted(here: Path) -> None:
    result = run(promote)
    assert result.exit_code == 3
    assert result.stdout.splitlines() == [
        "Version 1 is not promoted, because:",
        "- The saving against the best static setting is 0 USD per 1,000 requests (95% interval 0 to 0): its lower "
        "bound is not above zero.",
    ]
    assert registry_in(here).champion() is None


def winning(version: int, champion: int | None) -> PromotionEvidence:
    sure = Saving(0.2, 0.1, 0.3)
    over_champion = None if champion is None else sure
    return PromotionEvidence(version, champion, 18, over_champion, sure, {"p99_ttft": 0, "stale_ratio": 0})


def test_a_sure_saving_is_promoted_once(here: Path) -> None:
    registry = registry_in(here)
    record_evidence(registry, winning(1, None))
    assert run(promote, "--dry-run").stdout.startswith("Version 1 would become the champion.")
    assert registry.champion() is None
    result = run(promote)
    assert (result.exit_code, registry.champion()) == (0, 1)
    assert "It saves 0.2 USD per 1,000 requests (95% interval 0.1 to 0.3) against the best static" in result.stdout
    again = run(promote, "1")
    assert again.exit_code == 3
    assert "The champion changed: the evidence was made against no champion, now it is version 1" in again.stdout


def test_every_reason_is_on_a_line_and_in_json(here: Path) -> None:
    registry = registry_in(here)
    record_evidence(registry, replace(winning(2, 9), saving_over_best_static=None, violated_intervals={"p99_ttft": 2}))
    text = run(promote, "2", "--dry-run")
    assert text.exit_code == 3
    assert len(text.stdout.splitlines()) == 4  # the heading, best static, the constraint, the champion that changed
    result = run(promote, "2", "--json")
    body = orjson.loads(result.stdout)
    assert result.exit_code == 3
    assert (body["promoted"], body["version"], len(body["reasons"])) == (False, 2, 3)
    assert body["evidence"]["violated_intervals"] == {"p99_ttft": 2}


def test_promote_says_which_command_is_missing(here: Path, evaluated: tuple[Path, Result]) -> None:
    with pytest.raises(NotFound, match="run `setpoint evaluate 2` first") as missing:
        run(promote, "2")
    assert missing.value.exit_code == 4
    shutil.rmtree(here / "mlruns")
    with pytest.raises(NotFound, match="`setpoint train` registers policies") as nothing:
        run(promote)
    assert nothing.value.exit_code == 4
    with pytest.raises(NotFound, match="nothing registered yet"):
        run(policies)


def test_policies_lists_all_with_their_savings(evaluated: tuple[Path, Result]) -> None:
    listed = orjson.loads(run(policies, "--json").stdout)
    assert [one["version"] for one in listed] == [3, 2, 1]
    assert listed[2]["aliases"] == ["challenger"]
    assert listed[2]["test_saving_percent"] == 0.0
    assert listed[0]["validation_saving_percent"] == 2.0
    assert listed[1]["seed"] == "1"
    text = run(policies).stdout
    assert "challenger" in text
    assert open_trace(evaluated[0] / "small.trace").sha256[:12] in text


def test_a_number_is_a_version_and_anything_else_an_alias() -> None:
    assert parse_policy("12") == 12
    assert parse_policy("champion") == "champion"
