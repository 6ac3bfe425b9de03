"""Runs everything that a judgement compares over the same held-out intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from agents.baselines.simple import HillClimber, Random, Static
from agents.bundle import PolicyBundle
from agents.policy import ControlPolicy, Sight
from agents.rollout import roll_out
from agents.study import Split, Study, open_study
from caches.errors import Mismatch
from caches.knobs import KnobSettings
from envs.ghosts import GhostGrid, ghost_grid
from envs.interval import total_usd
from envs.observation import OBSERVATION_VERSION, SIZE
from envs.world import Progress, Reference, World

Array = NDArray[Any]
Role = Literal["default", "best static", "baseline", "learned", "champion", "bound"]


class BundlePolicy:
    """A bundle as a control policy, without torch: the actor of a trained one, no deviation for a static one."""

    def __init__(self, name: str, bundle: PolicyBundle) -> None:
        self.name = name
        self._actor = None if bundle.kind == "static" else bundle.actor()

    def reset(self, seed: int) -> None:
        """Nothing to forget."""

    def act(self, sight: Sight) -> NDArray[np.float64]:
        return np.zeros(3) if self._actor is None else self._actor.act(sight.observation)


@dataclass(frozen=True)
class Contender:
    """A learned policy to be judged. seed: of its training. version: in the registry."""

    policy: ControlPolicy
    seed: int | None = None
    version: int | None = None


@dataclass(frozen=True)
class Champion:
    """The policy to be beaten; judged around its own reference, with its own scale."""

    version: int
    bundle: PolicyBundle


@dataclass(frozen=True)
class Track:
    """What one policy did over the test intervals. rows: (intervals, STATS). settings: (intervals, 3), in force.

    before: the settings in force until the first interval. settings and before are None for the bound, which is no
    policy.
    """

    name: str
    role: Role
    rows: Array
    settings: Array | None
    before: KnobSettings | None
    seed: int | None = None
    version: int | None = None

    @property
    def usd(self) -> Array:
        """(intervals,)."""
        return total_usd(self.rows)


def study_for(world: World, split: Split, bundle: PolicyBundle) -> Study:
    """The study in which a bundle is judged: its reference, its scale. Raises Mismatch where it does not fit."""
    require_fit(bundle, world)
    return open_study(world, split, bundle.reference, horizon=1, starts=1, scale=bundle.scale)


def require_fit(bundle: PolicyBundle, world: World) -> None:
    """Raises Mismatch unless knobs, observation and length of interval are those of this world."""
    bundle.require(observation_version=OBSERVATION_VERSION, observation_size=SIZE, knob_space=world.problem.knobs)
    ours, theirs = world.problem.interval_seconds, bundle.scale and bundle.scale.interval_seconds
    if theirs is not None and theirs != ours:
        raise Mismatch(
            f"policy bundle {bundle.sha256[:12]} does not fit: it decides every {theirs:g} s, "
            f"trace.interval_seconds is {ours:g}"
        )


def run_tracks(
    study: Study,
    learned: Sequence[Contender],
    champion: Champion | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Track, ...]:
    """Default, best static, random, hill climber, the learned in their order, the champion, the bound.

    progress: called while the ghost grid is replayed, which takes most of the time where the study has none.
    """
    world, home = study.world, study.reference.settings
    knobs = world.problem.knobs
    baselines: list[ControlPolicy] = [Static("default", knobs.default(), home, knobs), Random(), HillClimber()]
    policies = [*baselines, *(contender.policy for contender in learned)]
    grid = ghost_grid(world, progress=progress) if study.grid is None else study.grid
    rolled = roll_out(study.reference, study.scale, policies, study.test, seed, grid)
    roles: list[Role] = ["default", "baseline", "baseline"]
    fixed = [
        Track(policy.name, role, rolled.rows[i], rolled.settings[i], home)
        for i, (policy, role) in enumerate(zip(baselines, roles, strict=True))
    ]
    ran = [
        Track(one.policy.name, "learned", rolled.rows[i], rolled.settings[i], home, one.seed, one.version)
        for i, one in enumerate(learned, len(baselines))
    ]
    still = np.tile(home.as_array(), (len(study.test), 1))
    best = Track("best static", "best static", rolled.reference_rows, still, home)
    rival = [] if champion is None else [_champion(study, champion)]
    return (fixed[0], best, *fixed[1:], *ran, *rival, _bound(study, grid))


def _champion(study: Study, champion: Champion) -> Track:
    """In the same world over the same intervals, from the state that its own reference left at their beginning."""
    bundle = champion.bundle
    require_fit(bundle, study.world)
    reference = Reference(study.world, bundle.reference, (study.test.start,))
    policy = BundlePolicy(f"champion, version {champion.version}", bundle)
    rolled = roll_out(reference, bundle.scale or study.scale, [policy], study.test)
    return Track(
        policy.name,
        "champion",
        rolled.rows[0],
        rolled.settings[0],
        bundle.reference,
        bundle.provenance.seed,
        champion.version,
    )


def _bound(study: Study, grid: GhostGrid) -> Track:
    """Each interval at its cheapest of the ghost grid's settings and the reference, in hindsight.

    Every setting is replayed from the trace's start. A policy that moves between settings can be cheaper still, so this
    bounds static settings, not policies.
    """
    cheapest = study.reference.rows[study.test.start : study.test.stop].copy()
    for other in grid.rows[:, study.test.start : study.test.stop]:
        better = total_usd(other) < total_usd(cheapest)
        cheapest[better] = other[better]
    return Track("per-interval bound", "bound", cheapest, None, None)
