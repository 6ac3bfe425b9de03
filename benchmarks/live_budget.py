"""Tuners that learn on live traffic within a budget of intervals, and what they then cost on traffic they never saw."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.baselines.bandit import ContextualBandit
from agents.policy import ControlPolicy
from agents.ppo import ActorPolicy, train
from agents.ppo_config import PPOConfig
from agents.rollout import look_around, roll_out
from agents.study import Study
from benchmarks.peers import LiveTuner, live_tuners
from envs.control import Episodes, LaneControl, observation_scale
from envs.interval import total_usd, unsafe
from envs.vector_env import ReplayVectorEnv
from envs.world import Reference

Array = NDArray[Any]
VALIDATION_SHARE = 0.25  # of a budget that PPO learns from


@dataclass(frozen=True)
class LiveResult:
    """One tuner, all seeds. regret: what the budget cost beyond the reference, share of the reference's cost, per seed;
    None for one that learns by replay. unsafe_per_1000: while learning. saving: on the test traffic, percent, per seed.
    usd_per_1000: there, mean over seeds."""

    name: str
    budget: int
    regret_percent: tuple[float, ...] | None
    learning_unsafe_per_1000: float | None
    saving_percent: tuple[float, ...]
    usd_per_1000: float
    unsafe_per_1000: float


def live(study: Study, budget: int, seeds: Sequence[int]) -> list[LiveResult]:
    """Every peer and seed in a lane of its own: `budget` intervals of the latest training traffic, gone through again
    from its beginning where it is shorter, then the test."""
    parts = _passes(study.training, budget)
    reference = _marked(study, (parts[0].start, study.test.start))
    bandits = [ContextualBandit() for _ in seeds]
    tuners = [live_tuners(seed, budget) for seed in seeds]
    policies: list[ControlPolicy] = [*bandits, *itertools.chain.from_iterable(tuners)]
    for policy, seed in zip(bandits, seeds, strict=True):
        policy.reset(seed)
    rows = _learn(study, reference, policies, parts)
    spent = np.concatenate([total_usd(reference.rows[part.start : part.stop]) for part in parts])
    regret = 100.0 * (total_usd(rows) - spent).sum(axis=1) / spent.sum()
    broken = 1000.0 * unsafe(rows, study.world.problem.constraints).mean(axis=1)
    ready = [_ready(policy) for policy in policies]
    rolled = roll_out(reference, study.scale, ready, study.test)
    names = ["Vowpal Wabbit", *(tuner.name for tuner in tuners[0])]
    places = [range(len(seeds)), *(range(len(seeds) + i, len(policies), len(names) - 1) for i in range(len(names) - 1))]
    return [
        _result(study, name, budget, rolled.rows[list(of)], (regret[list(of)], broken[list(of)]))
        for name, of in zip(names, places, strict=True)
    ]


def by_replay(study: Study, budget: int, seeds: Sequence[int], config: PPOConfig) -> LiveResult:
    """PPO that saw the same intervals and no others, and learned from them by replay alone."""
    part = _passes(study.training, budget)[0]
    held = max(int(VALIDATION_SHARE * len(part)), 1)
    training, validation = range(part.start, part.stop - held), range(part.stop - held, part.stop)
    episodes = Episodes.over(training, config.horizon, config.starts)
    reference = _marked(study, (*episodes.starts, validation.start, study.test.start))
    scale = observation_scale(study.world, reference, training)
    policies = []
    for seed in seeds:
        environment = ReplayVectorEnv(reference, scale, episodes, config.lanes, seed)
        policies.append(ActorPolicy("PPO", train(reference, scale, environment, validation, config, seed).actor))
    rolled = roll_out(reference, scale, policies, study.test)
    return _result(study, "Setpoint PPO, by replay", budget, rolled.rows, None)


def joined(by_seed: Sequence[Sequence[LiveResult]]) -> list[LiveResult]:
    """The same tuners and budgets in the same order, seed by seed, as results of all seeds."""
    return [_together(same) for same in zip(*by_seed, strict=True)]


def _together(same: Sequence[LiveResult]) -> LiveResult:
    first = same[0]
    regret = [one.regret_percent for one in same if one.regret_percent is not None]
    unsafe_then = [one.learning_unsafe_per_1000 for one in same if one.learning_unsafe_per_1000 is not None]
    return LiveResult(
        first.name,
        first.budget,
        tuple(itertools.chain.from_iterable(regret)) if regret else None,
        float(np.mean(unsafe_then)) if unsafe_then else None,
        tuple(itertools.chain.from_iterable(one.saving_percent for one in same)),
        float(np.mean([one.usd_per_1000 for one in same])),
        float(np.mean([one.unsafe_per_1000 for one in same])),
    )


def _passes(training: range, budget: int) -> list[range]:
    """The last `budget` intervals of the training traffic; all of it, again and again, where it is shorter."""
    if budget <= len(training):
        return [range(training.stop - budget, training.stop)]
    whole, rest = divmod(budget, len(training))
    passes = [training] * whole
    return [*passes, range(training.start, training.start + rest)] if rest else passes


def _marked(study: Study, marks: Sequence[int]) -> Reference:
    return Reference(study.world, study.reference.settings, marks)


def _learn(study: Study, reference: Reference, policies: Sequence[ControlPolicy], parts: Sequence[range]) -> Array:
    """Statistics of every policy in every interval of the budget."""
    control = LaneControl(reference, study.scale, len(policies), max(len(part) for part in parts))
    seen = []
    for part in parts:
        for lane in range(len(policies)):
            control.reset(lane, reference.checkpoint(part.start))
        for _ in part:
            sights = look_around(control, None)
            wishes = [policy.act(sight) for policy, sight in zip(policies, sights, strict=True)]
            control.step(np.clip(np.stack(wishes), -1.0, 1.0))
            seen.append(control.rows.copy())
    return np.stack(seen, axis=1)


def _ready(policy: ControlPolicy) -> ControlPolicy:
    """A search keeps its best; a bandit goes on with what it knows."""
    if isinstance(policy, LiveTuner):
        policy.learning = False
        return policy
    assert isinstance(policy, ContextualBandit)
    return ContextualBandit(policy.options, policy.lived)


def _result(study: Study, name: str, budget: int, rows: Array, learning: tuple[Array, Array] | None) -> LiveResult:
    test = study.reference.rows[study.test.start : study.test.stop]
    usd, base = total_usd(rows).sum(axis=1), float(total_usd(test).sum())
    return LiveResult(
        name,
        budget,
        None if learning is None else tuple(learning[0].tolist()),
        None if learning is None else float(learning[1].mean()),
        tuple((100.0 * (1.0 - usd / base)).tolist()),
        float(1000.0 * usd.mean() / test[:, 0].sum()),
        float(1000.0 * unsafe(rows, study.world.problem.constraints).mean()),
    )
