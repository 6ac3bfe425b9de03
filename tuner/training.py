"""A whole training: from settings to registered policy versions, the best of them the challenger.

There is a version for each seed of PPO and one for each rule that was fitted beside it (agents.rules). All of one
training carry the tags `training` (the id of the MLflow run) and `training_key` (what it depends on), those of PPO also
`seed`. Nothing is written to the registry before every seed is trained; until then there are only checkpoints.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from numpy.typing import NDArray

from agents.actor import Actor
from agents.baselines.best_policy import PolicyFit, fit_best_policy
from agents.baselines.best_static import StaticFit
from agents.baselines.fitting import Choice, choose
from agents.baselines.schedule_fit import fit_schedule
from agents.baselines.whatif_fit import fit_choosing, fit_whatif
from agents.bundle import PolicyBundle
from agents.learning_curve import steps_until_within
from agents.ppo import ActorPolicy, Trained
from agents.registry import MetricRow, PolicyVersion, Registry, Run
from agents.rules import RULES, Rule, RuleKind, arrays_of
from agents.study import Study, open_study
from agents.training import TrainingPlan, train_seeds, train_seeds_on_ray
from agents.training_range import observed, range_of, ranged
from agents.version_tags import LEARNED_WITHIN, TRAINING, VALIDATION_EXCESS, VALIDATION_SAVING
from agents.whatif import WhatIfController
from caches.errors import NotFound
from caches.policies.pair import PLAIN
from envs.ghosts import choice_grid
from envs.observation import OBSERVATION_VERSION, SIZE
from envs.world import Progress, World
from traces.store import trace_sha256
from traces.trace import Trace
from tuner.config import TunerConfig
from tuner.origin import provenance_of, traffic_of
from tuner.problem import make_problem, problem_of, split_of, under

TRAINING_KEY, SEED = "training_key", "seed"
# Sections of the settings that change what is learned; `trace` counts without its path, the digest stands for it.
LEARNED_FROM = ("trace", "cache", "prefix", "knobs", "prices", "constraints", "serving", "ppo")


@dataclass(frozen=True)
class TrainedSeed:
    """A registered policy. saving: share of the best static setting's cost on validation traffic. best_steps: after how
    many steps it did best. learned_within: see agents.learning_curve. excess: share of validation intervals that broke
    a constraint, above what is tolerated."""

    seed: int
    version: int
    saving: float
    best_steps: int
    steps: int
    stopped_early: bool
    learned_within: int
    excess: float


@dataclass(frozen=True)
class FittedRule:
    """A registered policy without a network. saving, excess: as of a trained seed."""

    kind: RuleKind
    version: int
    saving: float
    excess: float


@dataclass(frozen=True)
class Training:
    """seeds: in the order asked for. rules: one of each kind. reused: everything was there already and nothing was
    trained."""

    run_id: str
    key: str
    seeds: tuple[TrainedSeed, ...]
    rules: tuple[FittedRule, ...]
    reused: bool = False

    @property
    def best(self) -> TrainedSeed | FittedRule:
        """The challenger: on validation traffic the least unsafe where that is more than tolerated, then the cheapest,
        of equals the first."""
        every: list[TrainedSeed | FittedRule] = [*self.seeds, *self.rules]
        return min(every, key=lambda one: (one.excess, -one.saving))


@dataclass(frozen=True)
class Watcher:
    """Who wants to know how far it is. fit: (settings priced, in all). train: (seed, steps done, steps in all)."""

    fit: Progress | None = None
    fitted: Callable[[PolicyFit], None] | None = None
    train: Callable[[int, int, int], None] | None = None


@dataclass(frozen=True)
class _Result:
    """What training gave, before it is registered."""

    config: TunerConfig
    key: str
    fitted: PolicyFit
    study: Study
    trained: tuple[Trained, ...]
    rules: tuple[tuple[RuleKind, Rule], ...]
    choice: Choice  # seeds, then rules

    @property
    def fit(self) -> StaticFit:
        return self.fitted.fit

    @property
    def trace(self) -> Trace:
        return self.study.world.problem.trace

    def excess(self, place: int) -> float:
        """Of a policy by its place in `choice`."""
        return max(self.choice.unsafe[place] - self.choice.allowed, 0.0)


def training_key(config: TunerConfig, trace: Trace) -> str:
    """Equal for equal traffic, settings and observations: 12 hex digits. The seeds are not in it."""
    settings = config.model_dump(mode="json", include=set(LEARNED_FROM))
    del settings["trace"]["path"]
    for name in ("eviction_policy", "admission"):  # as they were before there were others: its trainings are found
        if config.cache.policies == (PLAIN,):
            del settings["cache"][name]
    body = {"trace": trace.sha256 or trace_sha256(trace), "observation": OBSERVATION_VERSION, "settings": settings}
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]


def find_training(registry: Registry, key: str, seeds: tuple[int, ...]) -> Training | None:
    """The newest training of this key with exactly these seeds, if it was registered whole."""
    try:
        versions = [version for version in registry.versions() if version.tags.get(TRAINING_KEY) == key]
    except NotFound:
        return None
    for run_id in dict.fromkeys(version.tags[TRAINING] for version in versions):
        mine = [version for version in versions if version.tags[TRAINING] == run_id]
        found = {int(version.tags[SEED]): version for version in mine if SEED in version.tags}
        rules = tuple(_rule_of(version, kind) for kind in RULES for version in mine if version.kind == kind)
        if set(found) == set(seeds) and len(rules) == len(RULES):
            return Training(run_id, key, tuple(_seed_of(found[seed]) for seed in seeds), rules, reused=True)
    return None


def train_and_register(
    config: TunerConfig, trace: Trace, registry: Registry, checkpoints: Path, watcher: Watcher = Watcher()
) -> Training:
    """Fits the best static setting, trains every seed of `config.run.seeds`, fits the rules, registers all, sets the
    challenger.

    config.trace.path must lead to `trace`: workers open it themselves. Training goes on from what an interrupted one
    left in `checkpoints`. Raises InputError where settings and trace do not go together.
    """
    result = _train(config, trace, checkpoints, watcher)
    folder = config.tracking.output / "policies" / result.key
    with registry.start_run(f"train {result.trace.info.name}", _params(result), _run_tags(result)) as run:
        _log(run, result)
        seeds = tuple(
            _register_seed(registry, run, result, index, folder / f"seed-{seed}")
            for index, seed in enumerate(config.run.seeds)
        )
        rules = tuple(
            _register_rule(registry, run, result, index, folder / kind) for index, (kind, _) in enumerate(result.rules)
        )
        training = Training(run.id, result.key, seeds, rules)
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
    split, key, policies = split_of(config), training_key(config, trace), config.cache.policies
    world = World(problem_of(under(config, policies[0]), trace), max(config.run.workers, config.run.threads))
    training, _, _ = world.timeline.split(split.train, split.validation)
    fitted = fit_best_policy(world, policies, training, watcher.fit)
    if watcher.fitted is not None:
        watcher.fitted(fitted)
    config, world, fit, grid = under(config, fitted.policy), fitted.world, fitted.fit, fitted.grid
    study = open_study(world, split, fit.settings, config.ppo.horizon, config.ppo.starts, grid=grid)
    shown = grid if config.ppo.imitation else None
    plan = TrainingPlan(partial(make_problem, config), split, fit.settings, config.ppo, checkpoints / key, shown)
    if config.run.ray is None:
        trained = train_seeds(plan, config.run.seeds, config.run.workers, watcher.train)
    else:
        trained = train_seeds_on_ray(config.run.ray, plan, config.run.seeds, watcher.train)
    if len(policies) > 1 and world.problem.prefix is None:
        study = replace(study, every=choice_grid(world, policies, fit.settings, fitted.costs))
    controller = fit_choosing(study, grid, fit_whatif(study, grid))
    rules: list[tuple[RuleKind, Rule]] = [("whatif", controller), ("schedule", fit_schedule(study, grid))]
    actors = [ActorPolicy(f"seed {seed}", one.actor) for seed, one in zip(config.run.seeds, trained, strict=True)]
    choice = choose(study, grid, [*actors, *(rule for _, rule in rules)])
    return _Result(config, key, fitted, study, tuple(trained), tuple(rules), choice)


def _register_seed(registry: Registry, run: Run, result: _Result, index: int, folder: Path) -> TrainedSeed:
    trained, seed = result.trained[index], result.config.run.seeds[index]
    one = TrainedSeed(
        seed,
        0,
        trained.best.saving,
        trained.best.steps,
        trained.looks[-1].steps,
        trained.stopped_early,
        steps_until_within(trained.looks),
        result.excess(index),
    )
    bundle = PolicyBundle(
        kind="ppo",
        knob_space=result.study.world.problem.knobs,
        reference=result.fit.settings,
        provenance=provenance_of(traffic_of(result.study), result.config, _metrics(one), seed),
        observation_version=OBSERVATION_VERSION,
        observation_size=SIZE,
        scale=result.study.scale,
        weights=ranged_arrays(trained.actor, result.study),
        policy=result.fitted.policy,
    )
    return replace(one, version=_register(registry, run, bundle, folder, {SEED: str(seed), **_tags(run, result)}))


def ranged_arrays(actor: Actor, study: Study) -> dict[str, NDArray[Any]]:
    """The actor's arrays with the range of what it saw in training traffic, by which a daemon tells when it is out of
    its depth."""
    return ranged(actor, range_of(observed(study, ActorPolicy("trained", actor), study.training)))


def _register_rule(registry: Registry, run: Run, result: _Result, index: int, folder: Path) -> FittedRule:
    kind, rule = result.rules[index]
    place = len(result.trained) + index
    one = FittedRule(kind, 0, result.choice.saving[place], result.excess(place))
    metrics = {VALIDATION_SAVING: one.saving, VALIDATION_EXCESS: one.excess}
    bundle = PolicyBundle(
        kind=kind,
        knob_space=result.study.world.problem.knobs,
        reference=result.fit.settings,
        provenance=provenance_of(traffic_of(result.study), result.config, metrics, None),
        scale=result.study.scale,
        weights=arrays_of(rule),
        policy=result.fitted.policy,
        choices=rule.choices if isinstance(rule, WhatIfController) else (),
    )
    return replace(one, version=_register(registry, run, bundle, folder, _tags(run, result)))


def _register(registry: Registry, run: Run, bundle: PolicyBundle, folder: Path, tags: Mapping[str, str]) -> int:
    bundle.save(folder)
    version = registry.register(folder, run, bundle.provenance.metrics)
    for name, value in tags.items():
        registry.set_tag(version, name, value)
    return version


def _tags(run: Run, result: _Result) -> dict[str, str]:
    return {TRAINING: run.id, TRAINING_KEY: result.key}  # found by the last


def _metrics(one: TrainedSeed) -> dict[str, float]:
    return {
        VALIDATION_SAVING: one.saving,
        "best_steps": one.best_steps,
        "steps": one.steps,
        "stopped_early": float(one.stopped_early),
        LEARNED_WITHIN: one.learned_within,
        VALIDATION_EXCESS: one.excess,
    }


def _rule_of(found: PolicyVersion, kind: RuleKind) -> FittedRule:
    return FittedRule(kind, found.version, found.metrics[VALIDATION_SAVING], found.metrics[VALIDATION_EXCESS])


def _seed_of(found: PolicyVersion) -> TrainedSeed:
    metrics = found.metrics
    return TrainedSeed(
        int(found.tags[SEED]),
        found.version,
        metrics[VALIDATION_SAVING],
        int(metrics["best_steps"]),
        int(metrics["steps"]),
        bool(metrics["stopped_early"]),
        int(metrics[LEARNED_WITHIN]),
        metrics[VALIDATION_EXCESS],
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
        **{f"best_static.{name}": value for name, value in result.fit.settings.numbers().items()},
        "best_static.feasible": result.fit.feasible,
        "best_static.cache_policy": str(result.fitted.policy),
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
    each = [(policy, *one) for policy, fit in result.fitted.each for one in fit.tried]
    tried = sorted(each, key=lambda one: one[2])
    names = list(result.fit.settings.numbers())
    run.log_table(
        "static_fit",
        {name: [getattr(settings, name) for _, settings, _, _ in tried] for name in names}
        | {"training_usd": [usd for *_, usd, _ in tried], "unsafe_per_1000": [share for *_, share in tried]}
        | {"cache_policy": [str(policy) for policy, *_ in tried]},
    )
