"""Continued training: a policy that is there learns on from the latest traffic, and stays what it was if that is no
better.

The last good policy is frozen. Its copy goes on learning on the newest training intervals, seen with the scale that it
was trained with and paid against the reference that it deviates from; its first look at validation traffic is the last
good policy's own, so the best look is never worse. The copy is adopted only where its saving over the last good policy
on validation traffic is above zero with confidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agents.actor import Actor
from agents.imitation import value_of
from agents.learning import Start
from agents.ppo import ActorPolicy, Trained, train
from agents.ppo_checkpoint import holds_checkpoint
from agents.ppo_config import PPOConfig
from agents.rollout import roll_out
from agents.study import Split, Study
from agents.uncertainty import Estimate, Resampling, block_length, ratio_estimate
from caches.errors import InputError
from caches.knobs import KnobSettings
from envs.control import Episodes
from envs.observation import ObservationScale
from envs.world import Reference, World


@dataclass(frozen=True)
class LastGood:
    """The policy to go on from. settings: what its action zero means. scale: what its observations are scaled by."""

    actor: Actor
    settings: KnobSettings
    scale: ObservationScale


@dataclass(frozen=True)
class Recent:
    """A policy, and how many of the latest intervals of training traffic it learns on from."""

    policy: LastGood
    intervals: int


@dataclass(frozen=True)
class Continued:
    """trained: what learning on gave. saving: of it over the last good policy on validation traffic, as a share of what
    that one costs. actor: the one to use, the last good one unless `adopted`."""

    trained: Trained
    saving: Estimate
    actor: Actor
    adopted: bool


def latest(training: range, intervals: int) -> range:
    """The last so many intervals of training traffic. InputError where there are not so many."""
    if not 0 < intervals <= len(training):
        raise InputError(f"window: got {intervals} intervals, expected 1 to the {len(training)} of training traffic")
    return range(training.stop - intervals, training.stop)


def open_recent(world: World, split: Split, recent: Recent, config: PPOConfig) -> Study:
    """A study whose training traffic is the latest of what there is, in the last good policy's terms."""
    training, validation, test = world.timeline.split(split.train, split.validation)
    newest = latest(training, recent.intervals)
    episodes = Episodes.over(newest, config.horizon, config.starts)
    reference = Reference(world, recent.policy.settings, (*episodes.starts, validation.start, test.start))
    return Study(reference, recent.policy.scale, newest, validation, test, episodes)


def continue_training(
    study: Study,
    last_good: LastGood,
    config: PPOConfig,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
    checkpoint: Path | None = None,
) -> Trained:
    """`config.total_steps` steps from the last good policy on the study's training traffic (`open_recent`). Equal seeds
    give equal policies. InputError where the config's networks are not of the last good policy's shape."""
    widths = tuple(len(bias) for _, bias in last_good.actor.weights[:-1])
    if widths != config.hidden:
        raise InputError(f"ppo.hidden: got {config.hidden}, expected {widths} as in the policy to go on from")
    start = None
    if checkpoint is None or not holds_checkpoint(checkpoint):
        start = Start(last_good.actor, value_of(study, last_good.actor, config, seed))
    environment = study.environment(config.lanes, seed)
    return train(
        *(study.reference, study.scale, environment, study.validation, config, seed), progress, checkpoint, start
    )


def judge_continued(study: Study, last_good: Actor, trained: Trained) -> Continued:
    """Both side by side on validation traffic."""
    policies = [ActorPolicy("last good", last_good), ActorPolicy("continued", trained.actor)]
    before, after = roll_out(study.reference, study.scale, policies, study.validation).usd
    saved = before - after
    saving = ratio_estimate(saved, before, block_length(saved), Resampling())
    adopted = saving.low > 0.0
    return Continued(trained, saving, trained.actor if adopted else last_good, adopted)
