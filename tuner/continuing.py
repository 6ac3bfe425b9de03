"""Continued training of a registered policy on newer traffic: what is better becomes a version of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agents.bundle import PolicyBundle
from agents.continual import Continued, LastGood, Recent, judge_continued, open_recent
from agents.provenance import TracePart
from agents.registry import MetricRow, Registry, Run
from agents.study import Study
from agents.tracks import require_fit
from agents.training import TrainingPlan, train_seeds
from agents.uncertainty import Estimate
from agents.version_tags import TRAINING, VALIDATION_SAVING
from caches.errors import InputError
from envs.observation import OBSERVATION_VERSION, SIZE
from envs.world import World
from traces.trace import Trace
from tuner.config import TunerConfig
from tuner.origin import provenance_of, traffic_of
from tuner.problem import make_problem, problem_of, split_of, under_bundle
from tuner.training import SEED, ranged_arrays

CONTINUED_FROM = "continued_from"  # tag: the version that training went on from
SAVING_OVER_LAST_GOOD = "validation_saving_over_last_good_ratio"  # metric
RECENT_SHARE = 3  # by default the last third of training traffic is learnt from


@dataclass(frozen=True)
class ContinuedSeed:
    """saving: over the last good policy on validation traffic, as a share of its cost. version: None where that is not
    above zero with confidence; then the last good policy stays."""

    seed: int
    saving: Estimate
    version: int | None


@dataclass(frozen=True)
class Continuation:
    """last_good: the version gone on from. first_interval, end_interval: the training traffic that was learnt from."""

    last_good: int
    run_id: str
    first_interval: int
    end_interval: int
    seeds: tuple[ContinuedSeed, ...]

    @property
    def best(self) -> ContinuedSeed | None:
        """Of those adopted; None where the last good policy stays."""
        adopted = [one for one in self.seeds if one.version is not None]
        return max(adopted, key=lambda one: one.saving.mean, default=None)


@dataclass(frozen=True)
class _Ground:
    config: TunerConfig
    last_good: int
    bundle: PolicyBundle
    study: Study


def continue_and_register(
    config: TunerConfig,
    trace: Trace,
    registry: Registry,
    reference: int | str,
    window: int | None = None,
    progress: Callable[[int, int, int], None] | None = None,
) -> Continuation:
    """Trains `config.ppo.total_steps` more steps, once per seed, on the last `window` intervals of training traffic.

    What saves over the last good version on validation traffic, with confidence, is registered; the best of it becomes
    the challenger. config.trace.path must lead to `trace`. Raises InputError for a static policy, a window longer than
    training traffic or networks of another shape, and Mismatch where policy and settings do not fit.
    """
    last_good = registry.version(reference).version
    bundle = registry.load(last_good)
    if bundle.kind != "ppo" or bundle.scale is None:
        raise InputError(f"version {last_good}: got a {bundle.kind} policy, expected a trained one to go on from")
    config = under_bundle(config, bundle)
    world = World(problem_of(config, trace), max(config.run.workers, config.run.threads))
    require_fit(bundle, world)
    split = split_of(config)
    training, _, _ = world.timeline.split(split.train, split.validation)
    policy = LastGood(bundle.actor(), bundle.reference, bundle.scale)
    recent = Recent(policy, max(len(training) // RECENT_SHARE, 1) if window is None else window)
    study = open_recent(world, split, recent, config.ppo)
    plan = TrainingPlan(partial(make_problem, config), split, bundle.reference, config.ppo, recent=recent)
    trained = train_seeds(plan, config.run.seeds, config.run.workers, progress)
    judged = [judge_continued(study, policy.actor, one) for one in trained]
    return _register(_Ground(config, last_good, bundle, study), registry, judged)


def _register(ground: _Ground, registry: Registry, judged: list[Continued]) -> Continuation:
    config, training = ground.config, ground.study.training
    params: dict[str, object] = {
        CONTINUED_FROM: ground.last_good,
        "trace.name": ground.study.world.problem.trace.info.name,
        "training.first_interval": training.start,
        "training.end_interval": training.stop,
        **{f"ppo.{name}": value for name, value in config.ppo.model_dump(mode="json").items()},
    }
    tags = {"kind": "continued training", CONTINUED_FROM: str(ground.last_good)}
    with registry.start_run(f"continue version {ground.last_good}", params, tags) as run:
        seeds = tuple(
            ContinuedSeed(seed, one.saving, _version(ground, registry, run, seed, one))
            for seed, one in zip(config.run.seeds, judged, strict=True)
        )
        done = Continuation(ground.last_good, run.id, training.start, training.stop, seeds)
    if done.best is not None and done.best.version is not None:
        registry.set_challenger(done.best.version)
    return done


def _version(ground: _Ground, registry: Registry, run: Run, seed: int, one: Continued) -> int | None:
    run.log_metrics(
        MetricRow(look.steps, {f"seed_{seed}/{VALIDATION_SAVING}": look.saving, f"seed_{seed}/reward": look.reward})
        for look in one.trained.looks
    )
    run.log_metrics([MetricRow(0, {f"seed_{seed}/{SAVING_OVER_LAST_GOOD}": one.saving.mean})])
    if not one.adopted:
        return None
    metrics = {
        VALIDATION_SAVING: one.trained.best.saving,
        SAVING_OVER_LAST_GOOD: one.saving.mean,
        "best_steps": float(one.trained.best.steps),
        "steps": float(one.trained.looks[-1].steps),
        "stopped_early": float(one.trained.stopped_early),
    }
    folder = ground.config.tracking.output / "policies" / f"continued-{ground.last_good}-{run.id}" / f"seed-{seed}"
    _bundle(ground, seed, one, metrics).save(folder)
    version = registry.register(folder, run, metrics)
    for name, value in ((SEED, str(seed)), (CONTINUED_FROM, str(ground.last_good)), (TRAINING, run.id)):
        registry.set_tag(version, name, value)
    return version


def _bundle(ground: _Ground, seed: int, one: Continued, metrics: dict[str, float]) -> PolicyBundle:
    old = ground.bundle
    return PolicyBundle(
        kind="ppo",
        knob_space=old.knob_space,
        reference=old.reference,
        provenance=provenance_of(_traffic(ground), ground.config, metrics, seed),
        observation_version=OBSERVATION_VERSION,
        observation_size=SIZE,
        scale=old.scale,
        weights=ranged_arrays(one.actor, ground.study),
        scaler=old.scaler,
        policy=old.policy,
    )


def _traffic(ground: _Ground) -> tuple[TracePart, ...]:
    """What the last good policy learnt from counts as learnt from."""
    before = [part for part in ground.bundle.provenance.traffic if part.use != "test"]
    return tuple(dict.fromkeys((*before, *traffic_of(ground.study))))
