"""A whole training: from settings to registered policy versions, one per seed, the best of them the challenger.

All versions of one training carry the tags `training` (the id of the MLflow run), `training_key` (what it depends on)
and `seed`. Nothing is written to the registry before every seed is trained; until then there are only checkpoints.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from agents.baselines.best_static import StaticFit, fit_best_static
from agents.bundle import PolicyBundle
from agents.ppo import Trained
from agents.provenance import Provenance, TracePart, git_commit, package_versions
from agents.registry import MetricRow, PolicyVersion, Registry, Run
from agents.study import Study, open_study
from agents.training import TrainingPlan, train_seeds
from agents.version_tags import TRAINING, VALIDATION_SAVING
from caches.errors import NotFound
from envs.observation import OBSERVATION_VERSION, SIZE
from envs.world import Progress, World
from traces.store import trace_sha256
from traces.trace import Trace
from tuner.config import TunerConfig
from tuner.problem import make_problem, problem_of, split_of

TRAINING_KEY, SEED = "training_key", "seed"
# Sections of the settings that change what is learned; `trace` counts without its path, the digest stands for it.
LEARNED_FROM = ("trace", "cache", "knobs", "prices", "constraints", "serving", "ppo")


@dataclass(frozen=True)
class TrainedSeed:
    """A registered policy. saving: share of the best static setting's cost on validation traffic. best_steps: after how
    many steps it did best."""

    seed: int
    version: int
    saving: float
    best_steps: int
    steps: int
    stopped_early: bool


@dataclass(frozen=True)
class Training:
    """seeds: in the order asked for. reused: everything was there already and nothing was trained."""

    run_id: str
    key: str
    seeds: tuple[TrainedSeed, ...]
    reused: bool = False

    @property
    def best(self) -> TrainedSeed:
        """The challenger: of equals the first."""
        return max(self.seeds, key=lambda one: one.saving)


@dataclass(frozen=True)
class Watcher:
    """Who wants to know how far it is. fit: (settings priced, in all). train: (seed, steps done, steps in all)."""

    fit: Progress | None = None
    fitted: Callable[[StaticFit], None] | None = None
    train: Callable[[int, int, int], None] | None = None


@dataclass(frozen=True)
class _Result:
    """What training gave, before it is registered."""

    config: TunerConfig
    key: str
    fit: StaticFit
    study: Study
    trained: tuple[Trained, ...]

    @property
    def trace(self) -> Trace:
        return self.study.world.problem.trace


def training_key(config: TunerConfig, trace: Trace) -> str:
    """Equal for equal traffic, settings and observations: 12 hex digits. The seeds are not in it."""
    settings = config.model_dump(mode="json", include=set(LEARNED_FROM))
    del settings["trace"]["path"]
    body = {"trace": trace.sha256 or trace_sha256(trace), "observation": OBSERVATION_VERSION, "settings": settings}
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]


def find_training(registry: Registry, key: str, seeds: tuple[int, ...]) -> Training | None:
    """The newest training of this key with exactly these seeds, if it was registered whole."""
    try:
        versions = [version for version in registry.versions() if version.tags.get(TRAINING_KEY) == key]
    except NotFound:
        return None
    for run_id in dict.fromkeys(version.tags[TRAINING] for version in versions):
        found = {int(version.tags[SEED]): version for version in versions if version.tags[TRAINING] == run_id}
        if set(found) == set(seeds):
            return Training(run_id, key, tuple(_of_version(found[seed]) for seed in seeds), reused=True)
    return None


def train_and_register(
    config: TunerConfig, trace: Trace, registry: Registry, checkpoints: Path, watcher: Watcher = Watcher()
) -> Training:
    """Fits the best static setting, trains every seed of `config.run.seeds`, registers all, sets the challenger.

    config.trace.path must lead to `trace`: workers open it themselves. Training goes on from what an interrupted one
    left in `checkpoints`. Raises InputError where settings and trace do not go together.
    """
    result = _train(config, trace, checkpoints, watcher)
    folder = config.tracking.output / "policies" / result.key
    with registry.start_run(f"train {result.trace.info.name}", _params(result), _run_tags(result)) as run:
        _log(run, result)
        seeds = tuple(
            _register(registry, run, result, seed, trained, folder / f"seed-{seed}")
            for seed, trained in zip(config.run.seeds, result.trained, strict=True)
        )
        training = Training(run.id, result.key, seeds)
    nominate(registry, training)
    return training


def nominate(registry: Registry, training: Training) -> None:
    """Makes its best version the challenger, unless that is the champion already."""
    if registry.champion() != training.best.version:
        registry.set_challenger(training.best.version)


def forget_training(checkpoints: Path, key: str, seeds: tuple[int, ...]) -> None:
    """Removes the checkpoints of these seeds, so that they start anew."""
    for seed in seeds:
        shutil.rmtree(checkpoints / key / f"seed-{seed}", ignore_errors=True)


def _train(config: TunerConfig, trace: Trace, checkpoints: Path, watcher: Watcher) -> _Result:
    split, key = split_of(config), training_key(config, trace)
    world = World(problem_of(config, trace), max(config.run.workers, config.run.threads))
    training, _, _ = world.timeline.split(split.train, split.validation)
    fit = fit_best_static(world, training, watcher.fit)
    if watcher.fitted is not None:
        watcher.fitted(fit)
    study = open_study(world, split, fit.settings, config.ppo.horizon, config.ppo.starts)
    plan = TrainingPlan(partial(make_problem, config), split, fit.settings, config.ppo, checkpoints / key)
    trained = train_seeds(plan, config.run.seeds, config.run.workers, watcher.train)
    return _Result(config, key, fit, study, tuple(trained))


def _register(registry: Registry, run: Run, result: _Result, seed: int, trained: Trained, folder: Path) -> TrainedSeed:
    one = TrainedSeed(seed, 0, trained.best.saving, trained.best.steps, trained.looks[-1].steps, trained.stopped_early)
    metrics = _metrics(one)
    _bundle(result, seed, trained, metrics).save(folder)
    version = registry.register(folder, run, metrics)
    for name, value in ((SEED, str(seed)), (TRAINING, run.id), (TRAINING_KEY, result.key)):  # found by the last
        registry.set_tag(version, name, value)
    return replace(one, version=version)


def _bundle(result: _Result, seed: int, trained: Trained, metrics: Mapping[str, float]) -> PolicyBundle:
    weights: dict[str, Any] = {}
    for index, (weight, bias) in enumerate(trained.actor.weights):
        weights |= {f"actor.{index}.weight": weight, f"actor.{index}.bias": bias}
    provenance = Provenance(
        traffic=_traffic(result),
        seed=seed,
        git_commit=git_commit(Path(__file__).parent),
        versions=package_versions(),
        metrics=metrics,
        config=result.config.model_dump(mode="json"),
    )
    return PolicyBundle(
        kind="ppo",
        knob_space=result.study.world.problem.knobs,
        reference=result.fit.settings,
        provenance=provenance,
        observation_version=OBSERVATION_VERSION,
        observation_size=SIZE,
        scale=result.study.scale,
        weights=weights,
    )


def _traffic(result: _Result) -> tuple[TracePart, ...]:
    trace, study = result.trace, result.study
    sha256 = trace.sha256 or trace_sha256(trace)
    return (
        TracePart(trace.info.name, sha256, "train", study.training.start, study.training.stop),
        TracePart(trace.info.name, sha256, "validation", study.validation.start, study.validation.stop),
        TracePart(trace.info.name, sha256, "test", study.test.start, study.test.stop),
    )


def _metrics(one: TrainedSeed) -> dict[str, float]:
    return {
        VALIDATION_SAVING: one.saving,
        "best_steps": one.best_steps,
        "steps": one.steps,
        "stopped_early": float(one.stopped_early),
    }


def _of_version(found: PolicyVersion) -> TrainedSeed:
    metrics = found.metrics
    return TrainedSeed(
        int(found.tags[SEED]),
        found.version,
        metrics[VALIDATION_SAVING],
        int(metrics["best_steps"]),
        int(metrics["steps"]),
        bool(metrics["stopped_early"]),
    )


def _params(result: _Result) -> dict[str, object]:
    """The settings by their dotted keys, and what the fit and the trace say."""
    trace = result.trace
    return {
        **_flat(result.config.model_dump(mode="json")),
        "training_key": result.key,
        "trace.name": trace.info.name,
        "trace.sha256": trace.sha256,
        "trace.composed": trace.info.composed,
        **{f"best_static.{name}": value for name, value in asdict(result.fit.settings).items()},
        "best_static.feasible": result.fit.feasible,
    }


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    leaves: dict[str, object] = {}
    for name, value in tree.items():
        leaves.update(_flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return leaves


def _run_tags(result: _Result) -> dict[str, str]:
    return {"kind": "training", TRAINING_KEY: result.key, "assumptions": " ".join(result.trace.info.assumptions)}


def _log(run: Run, result: _Result) -> None:
    """Curves of every seed, and everything that the static fit tried."""
    for seed, trained in zip(result.config.run.seeds, result.trained, strict=True):
        run.log_metrics(
            MetricRow(
                look.steps,
                {
                    f"seed_{seed}/{VALIDATION_SAVING}": look.saving,
                    f"seed_{seed}/reward": look.reward,
                    f"seed_{seed}/exploration": look.exploration,
                },
            )
            for look in trained.looks
        )
    best = max(trained.best.saving for trained in result.trained)
    run.log_metrics([MetricRow(0, {f"best_{VALIDATION_SAVING}": best, "best_static_usd": result.fit.usd})])
    tried = sorted(result.fit.tried, key=lambda one: one[1])
    names = list(asdict(result.fit.settings))
    run.log_table(
        "static_fit",
        {name: [getattr(settings, name) for settings, _, _ in tried] for name in names}
        | {"training_usd": [usd for _, usd, _ in tried], "unsafe_per_1000": [share for _, _, share in tried]},
    )
