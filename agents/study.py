"""A study: one problem, its traffic split in three, a reference, and where episodes run."""

from __future__ import annotations

from dataclasses import dataclass

from caches.knobs import KnobSettings
from envs.control import Episodes, LaneControl, observation_scale
from envs.ghosts import ChoiceGrid, GhostGrid
from envs.observation import ObservationScale
from envs.vector_env import ReplayVectorEnv
from envs.world import Reference, World


@dataclass(frozen=True)
class Split:
    """Shares of the intervals, in order of time; the rest is for testing."""

    train: float
    validation: float


@dataclass(frozen=True)
class Study:
    """training, validation and test are disjoint ranges of intervals, each later than the one before. grid: where the
    ghosts were replayed already. every: ghosts of all eviction policies, for who chooses one; None where nobody does.
    """

    reference: Reference
    scale: ObservationScale
    training: range
    validation: range
    test: range
    episodes: Episodes
    grid: GhostGrid | None = None
    every: ChoiceGrid | None = None

    @property
    def world(self) -> World:
        return self.reference.world

    def environment(self, lanes: int, seed: int) -> ReplayVectorEnv:
        """Over training traffic only."""
        return ReplayVectorEnv(self.reference, self.scale, self.episodes, lanes, seed)

    def control(self, lanes: int, horizon: int) -> LaneControl:
        return LaneControl(self.reference, self.scale, lanes, horizon)


def open_study(
    world: World,
    split: Split,
    reference: KnobSettings,
    horizon: int,
    starts: int,
    scale: ObservationScale | None = None,
    grid: GhostGrid | None = None,
) -> Study:
    """reference: the setting that everything is compared with, best static as a rule. scale: of the policy that is to
    be judged; by default from this world's training traffic."""
    training, validation, test = world.timeline.split(split.train, split.validation)
    episodes = Episodes.over(training, horizon, starts)
    trajectory = Reference(world, reference, (*episodes.starts, validation.start, test.start))
    if scale is None:
        scale = observation_scale(world, trajectory, training)
    return Study(trajectory, scale, training, validation, test, episodes, grid)
