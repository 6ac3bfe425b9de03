"""From what an interval was to the settings of the next, for one policy: step 7 of a tick, up to the limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.training_range import TrainingRange, range_of_bundle
from caches.errors import InputError
from caches.knobs import KnobSettings, KnobSpace
from caches.tiers.limits import within
from tuner.loop.policies import LivePolicy
from tuner.loop.sight import AVERAGES, Eyes, KeysSeen, averaged, whole

Array = NDArray[Any]


@dataclass(frozen=True)
class Moment:
    """The interval to come. index: its number. now_seconds: when it begins."""

    index: int
    now_seconds: float


@dataclass(frozen=True)
class ArmNow:
    """What a policy acts on. row: what the arm counted, shape (STATS,); None where nothing can be said of it. share: of
    the keys. settings: in force, for the whole cache. memory: `Proposal.memory` of the interval before; what another
    version remembered is forgotten."""

    row: Array | None
    share: float
    settings: KnobSettings
    memory: Mapping[str, Any]


@dataclass(frozen=True)
class Proposal:
    """What a policy wants. proposed: what it asked for, in its own range; None where it could not decide, and why not
    in `trouble`. limited: after largest steps and the operator's range; what is in force where nothing is proposed.
    observation, training: what a guardrail compares; None for a policy that does not observe. memory: of the policy,
    for the next interval."""

    limited: KnobSettings
    proposed: KnobSettings | None
    trouble: str | None
    observes: bool
    observation: NDArray[np.float32] | None
    training: TrainingRange | None
    memory: dict[str, Any]


def propose(policy: LivePolicy, arm: ArmNow, keys: KeysSeen, moment: Moment, knobs: KnobSpace) -> Proposal:
    """knobs: the operator's."""
    bundle = policy.bundle
    mine = arm.memory if arm.memory.get("version") == policy.version else {}
    averages = np.array(mine.get("averages", np.zeros(AVERAGES)), np.float64)
    if bundle.scale is not None:
        averages = averaged(averages, keys, bundle.scale)
    eyes = Eyes(bundle.knob_space, bundle.reference, bundle.scale, bundle.choices)
    stated = None if arm.row is None else whole(arm.row, arm.share)
    sight = eyes.sight(stated, arm.settings, keys, averages, (moment.index, moment.now_seconds))
    trouble, wish = None, None
    try:
        policy.policy.recall(mine["policy"]) if mine.get("policy") else policy.policy.reset(0)
        wish = np.clip(policy.policy.act(sight), -1.0, 1.0)
    except InputError as error:
        trouble = f"The policy could not decide: {error}."
    proposed, limited = None, arm.settings
    if wish is not None:
        home = bundle.knob_space.positions(bundle.reference)
        named = bundle.choices[policy.policy.choice].eviction if bundle.choices else None
        proposed = replace(bundle.knob_space.settings(np.clip(home + wish, 0.0, 1.0)), eviction_policy=named)
        decided = _whole_bytes(bundle.knob_space.decide(wish, bundle.reference, arm.settings), arm.settings)
        limited = replace(within(decided, knobs), eviction_policy=named)
    observes = bundle.kind == "ppo"
    return Proposal(
        limited,
        proposed,
        trouble,
        observes,
        sight.observation if observes else None,
        range_of_bundle(bundle) if observes else None,
        {"version": policy.version, "averages": averages.tolist(), "policy": policy.policy.memory()},
    )


def _whole_bytes(settings: KnobSettings, here: KnobSettings) -> KnobSettings:
    """As caches take them; rounded towards where they are, so that no step becomes larger than the largest."""
    size = settings.cache_size
    return replace(settings, cache_size=float(math.ceil(size) if size < here.cache_size else math.floor(size)))
