"""A whole evaluation: from settings and a registered version to tables, pictures and evidence for its promotion."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from agents.candidates import Candidates, find_candidates
from agents.figures import save_pictures
from agents.judge import Judgement, evidence, judge, require_held_out
from agents.promotion import PromotionEvidence, record_evidence
from agents.registry import MetricRow, Registry, Run
from agents.results import Evaluation
from agents.study import Study
from agents.summary import behaviour, causes, comparison, sentences
from agents.tracks import Depth, study_for
from agents.uncertainty import Resampling
from agents.version_tags import EVALUATION_RUN, TEST_SAVING, TRAINING
from caches.files import written_whole
from envs.world import Progress, World
from traces.trace import Trace
from tuner.config import TunerConfig
from tuner.problem import problem_of, split_of, under_bundle
from tuner.remote import grid_on_ray, rivals_on_ray

JSON_FILE = "evaluation.json"


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation left behind. run_id: of MLflow. folder: holds evaluation.json and the pictures."""

    version: int
    judgement: Judgement
    evidence: PromotionEvidence
    folder: Path
    pictures: tuple[Path, ...]
    run_id: str

    @property
    def evaluation(self) -> Evaluation:
        return self.judgement.evaluation

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "version": self.version,
            "run_id": self.run_id,
            "evidence": asdict(self.evidence),
            "pictures": [str(path) for path in self.pictures],
            **self.evaluation.as_dict(),
            "sentences": sentences(self.evaluation),
        }


def evaluate_and_record(
    config: TunerConfig,
    trace: Trace,
    registry: Registry,
    reference: int | str,
    resampling: Resampling,
    progress: Progress | None = None,
    depth: Depth = Depth.FULL,
) -> Evaluated:
    """Judges a version and its siblings on the test part of `trace`, writes OUTPUT/<trace>/, logs to MLflow and records
    the evidence with the version.

    Raises NotFound for an unknown version, and Mismatch where policy and settings do not fit or the test part overlaps
    what the policy learned from.
    """
    candidates = find_candidates(registry, reference)
    config = under_bundle(config, candidates.chosen.bundle)
    study = open_for(config, trace, candidates)
    fitted = None
    if config.run.ray is not None:
        grid = grid_on_ray(config.run.ray, config, study.world, progress)
        study = replace(study, grid=grid)
        if depth is Depth.FULL:
            fitted = rivals_on_ray(config.run.ray, config, candidates.chosen.bundle, grid)
    judgement = judge(study, candidates.contenders, candidates.champion, resampling, progress, depth, fitted)
    version = candidates.chosen.version.version
    found = evidence(judgement, version, candidates.champion_version)
    folder = config.tracking.output / Path(trace.info.name).name
    pictures = save_pictures(judgement, folder)
    with registry.start_run(f"evaluate version {version}", _params(judgement), _tags(candidates)) as run:
        evaluated = Evaluated(version, judgement, found, folder, pictures, run.id)
        _log(run, evaluated)
    _write_json(evaluated.as_dict(), folder / JSON_FILE)
    _note(registry, evaluated)
    return evaluated


def open_for(config: TunerConfig, trace: Trace, candidates: Candidates) -> Study:
    """The study that the candidates are judged in. Raises Mismatch as `evaluate_and_record` does."""
    chosen = candidates.chosen
    world = World(problem_of(config, trace), max(config.run.workers, config.run.threads))
    study = study_for(world, split_of(config), chosen.bundle)
    for one in candidates.siblings:
        require_held_out(one.bundle.provenance, study, f"policy version {one.version.version}")
    return study


def _write_json(value: dict[str, Any], path: Path) -> None:
    with written_whole(path) as partial:
        partial.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def _params(judgement: Judgement) -> dict[str, object]:
    setting = judgement.evaluation.setting
    flat = {name: value for name, value in asdict(setting).items() if not isinstance(value, dict)}
    for section in ("best_static", "default", "prices", "constraints", "serving"):
        flat |= {f"{section}.{name}": value for name, value in getattr(setting, section).items()}
    return {**flat, "assumptions": " ".join(setting.assumptions)}


def _tags(candidates: Candidates) -> dict[str, str]:
    version = candidates.chosen.version
    tags = {"kind": "evaluation", "evaluated_version": str(version.version), TRAINING: version.tags.get(TRAINING, "")}
    if candidates.champion_version is not None:
        tags["champion_version"] = str(candidates.champion_version)
    return tags


def _log(run: Run, evaluated: Evaluated) -> None:
    evaluation = evaluated.evaluation
    run.log_metrics([MetricRow(0, _metrics(evaluation))])
    run.log_table("comparison", comparison(evaluation).by_column())
    run.log_table("behaviour", behaviour(evaluation).by_column())
    run.log_table("cost_by_cause", causes(evaluation).by_column())
    run.log_table("sentences", {"sentence": [*sentences(evaluation), *evaluation.notes]})
    for picture in evaluated.pictures:
        run.log_picture(picture)
    with TemporaryDirectory() as scratch:
        _write_json(evaluated.as_dict(), Path(scratch) / JSON_FILE)
        run.log_folder(Path(scratch), "evaluation")


def _metrics(evaluation: Evaluation) -> dict[str, float | None]:
    metrics: dict[str, float | None] = {}
    for policy in evaluation.policies:
        if policy.role != "learned":
            metrics[f"usd_per_1000/{policy.role if policy.role != 'baseline' else policy.name}"] = policy.usd_per_1000
    together = evaluation.learned
    if together is not None:
        captured = together.headroom_captured
        metrics["usd_per_1000/learned"] = together.usd_per_1000.mean
        metrics["headroom_captured"] = None if captured is None else captured.mean
        for over, found in (("time", together.saving.percent), ("seeds", together.saving_percent)):
            if found is not None:
                metrics["saving_percent"] = found.mean
                metrics[f"saving_percent_low_over_{over}"] = found.low
                metrics[f"saving_percent_high_over_{over}"] = found.high
    return metrics


def _note(registry: Registry, evaluated: Evaluated) -> None:
    """Every sibling's saving is shown with its version; only the chosen one gets evidence, so that nobody picks the
    luckiest of them on test traffic."""
    for policy in evaluated.evaluation.policies:
        percent = None if policy.saving is None else policy.saving.percent
        if policy.role != "champion" and policy.version is not None and percent is not None:
            registry.set_tag(policy.version, TEST_SAVING, repr(percent.mean))
    registry.set_tag(evaluated.version, EVALUATION_RUN, evaluated.run_id)
    record_evidence(registry, evaluated.evidence)
