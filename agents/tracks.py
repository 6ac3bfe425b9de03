"""Runs everything that a judgement compares over the same held-out intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from agents.baselines.catalog import Rivals, rivals
from agents.baselines.simple import HillClimber, Random, Static
from agents.bundle import PolicyBundle
from agents.bundle_policy import BundlePolicy
from agents.clairvoyant import Clairvoyant, Search, Way, clairvoyant
from agents.policy import ControlPolicy, choices_of
from agents.rollout import roll_out
from agents.study import Split, Study, open_study
from caches.errors import Mismatch
from caches.knobs import KnobSettings
from caches.policies.pair import CachePolicy
from envs.ghosts import GhostGrid, choice_grid, ghost_grid, grid_settings
from envs.interval import total_usd
from envs.observation import OBSERVATION_VERSION, SIZE
from envs.world import Progress, Reference, World

Array = NDArray[Any]
Role = Literal["default", "best static", "baseline", "learned", "champion", "bound", "ghost bound"]
SEARCH_STEPS = 100  # of progress, for the clairvoyant bound
RUNNABLE: tuple[Role, ...] = ("default", "best static", "baseline", "learned", "champion")  # the rest knows the future


class Depth(Enum):
    """How much a judgement compares. QUICK leaves out the fitted rivals and the clairvoyant bound, which take most of
    the time."""

    FULL = "full"
    QUICK = "quick"


@dataclass(frozen=True)
class Contender:
    """A policy to be judged. seed: of its training. version: in the registry. role: "learned", or "baseline" for one of
    another kind than those that are judged. learned_within: intervals of training until it was near what it
    became (agents.learning_curve), None where nothing was learned."""

    policy: ControlPolicy
    seed: int | None = None
    version: int | None = None
    role: Role = "learned"
    learned_within: int | None = None


@dataclass(frozen=True)
class Champion:
    """The policy to be beaten; judged around its own reference, with its own scale."""

    version: int
    bundle: PolicyBundle


@dataclass(frozen=True)
class Track:
    """What one policy did over the test intervals. rows: (intervals, STATS). settings: (intervals, 3), in force.

    before: the settings in force until the first interval. settings and before are None for the ghost bound, which
    nothing could follow. learned_within: as of the contender. choice: (intervals,), the eviction policy in force, as
    one of `choices`; None for what stays under the cache's own.
    """

    name: str
    role: Role
    rows: Array
    settings: Array | None
    before: KnobSettings | None
    seed: int | None = None
    version: int | None = None
    learned_within: int | None = None
    choice: Array | None = None
    choices: tuple[CachePolicy, ...] = ()

    @property
    def changes_policy(self) -> bool:
        """Whether it was under another eviction policy than the cache's own at any time."""
        return self.choice is not None and bool(self.choice.any())

    @property
    def usd(self) -> Array:
        """(intervals,)."""
        return total_usd(self.rows)


@dataclass(frozen=True)
class Compared:
    """Everything side by side. notes: what the rivals have to say. bound: None where it was not searched for."""

    tracks: tuple[Track, ...]
    notes: tuple[str, ...] = ()
    bound: Clairvoyant | None = None


def study_for(world: World, split: Split, bundle: PolicyBundle) -> Study:
    """The study in which a bundle is judged: its reference, its scale. Raises Mismatch where it does not fit."""
    require_fit(bundle, world)
    return open_study(world, split, bundle.reference, horizon=1, starts=1, scale=bundle.scale)


def require_fit(bundle: PolicyBundle, world: World) -> None:
    """Raises Mismatch unless knobs, observation, length of interval and the cache's policy are those of this world."""
    bundle.require(
        observation_version=OBSERVATION_VERSION,
        observation_size=SIZE,
        knob_space=world.problem.knobs,
        policy=world.problem.policy,
    )
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
    depth: Depth = Depth.FULL,
    fitted: Rivals | None = None,
) -> Compared:
    """Default, best static, random, hill climber, the rivals, the learned in their order, the champion, the bounds.

    fitted: the rivals, where that was done elsewhere. progress: called while ghosts are replayed and the clairvoyant
    bound is searched for, with steps done, of how many.
    """
    knobs, full = study.world.problem.knobs, depth is Depth.FULL
    watch = _Watch(progress, 0 if study.grid else len(grid_settings(knobs)), SEARCH_STEPS if full else 0)
    grid = ghost_grid(study.world, progress=watch.ghosts) if study.grid is None else study.grid
    others = Rivals((), ())
    if full:
        others = rivals(study, grid) if fitted is None else fitted
    policies = _side_by_side(study, learned, others)
    study = _with_choices(study, [one.policy for one in policies])
    tracks = _roll_out(study, policies, grid, seed)
    if champion is not None:
        tracks.append(_champion(study, champion, grid))
    bound = None
    if full:
        ways = [Way(one.settings, one.rows) for one in tracks if one.settings is not None and not _apart(one)]
        bound = clairvoyant(study, ways, grid, Search(), watch.search)
        best = _bound(study, bound, tracks)
        tracks.append(best)
        bound = replace(bound, way=Way(np.asarray(best.settings), best.rows))
    return Compared((*tracks, _ghost_bound(study, grid)), others.notes, bound)


def _with_choices(study: Study, policies: Sequence[ControlPolicy]) -> Study:
    """With ghosts under every eviction policy that one of them chooses between, where any does."""
    choices = next((choices_of(policy) for policy in policies if choices_of(policy)), ())
    if not choices or study.every is not None:
        return study
    return replace(study, every=choice_grid(study.world, choices, study.reference.settings))


def _apart(track: Track) -> bool:
    """Whether its caches are not those that the bound is searched with."""
    return track.role == "champion" or track.changes_policy


@dataclass(frozen=True)
class _Watch:
    """Two stretches of work as one."""

    progress: Progress | None
    settings: int
    steps: int

    def ghosts(self, done: int, _: int) -> None:
        if self.progress is not None:
            self.progress(done, self.settings + self.steps)

    def search(self, share: float) -> None:
        self.ghosts(self.settings + round(share * self.steps), 0)


def _side_by_side(study: Study, learned: Sequence[Contender], others: Rivals) -> list[Contender]:
    """In the order of the tables. A rival makes way for a contender of its name, which was fitted in training."""
    knobs, home = study.world.problem.knobs, study.reference.settings
    default = Contender(Static("default", knobs.default(), home, knobs), role="default")
    known: list[ControlPolicy] = [Random(), HillClimber(), *others.policies]
    names = {one.policy.name for one in learned}
    baselines = [Contender(policy, role="baseline") for policy in known if policy.name not in names]
    return [default, *baselines, *sorted(learned, key=lambda one: one.role == "learned")]


def _roll_out(study: Study, policies: Sequence[Contender], grid: GhostGrid, seed: int) -> list[Track]:
    home = study.reference.settings
    every = [one.policy for one in policies]
    rolled = roll_out(study.reference, study.scale, every, study.test, seed, grid, study.every)
    tracks = [
        Track(
            one.policy.name,
            one.role,
            rolled.rows[i],
            rolled.settings[i],
            home,
            one.seed,
            one.version,
            one.learned_within,
            rolled.choice[i] if choices_of(one.policy) else None,
            choices_of(one.policy),
        )
        for i, one in enumerate(policies)
    ]
    still = np.tile(home.as_array(), (len(study.test), 1))
    tracks.insert(1, Track("best static", "best static", rolled.reference_rows, still, home))
    return tracks


def _champion(study: Study, champion: Champion, grid: GhostGrid) -> Track:
    """In the same world over the same intervals, from the state that its own reference left at their beginning, and
    under the policy of the cache that it was made for."""
    bundle = champion.bundle
    world = study.world.under(bundle.policy)
    require_fit(bundle, world)
    grid = grid if world is study.world else ghost_grid(world)
    reference = Reference(world, bundle.reference, (study.test.start,))
    policy = BundlePolicy(f"champion, version {champion.version}", bundle)
    every = choice_grid(world, bundle.choices, bundle.reference) if bundle.choices else None
    rolled = roll_out(reference, bundle.scale or study.scale, [policy], study.test, grid=grid, every=every)
    return Track(
        policy.name,
        "champion",
        rolled.rows[0],
        rolled.settings[0],
        bundle.reference,
        bundle.provenance.seed,
        champion.version,
        choice=rolled.choice[0] if bundle.choices else None,
        choices=bundle.choices,
    )


def _bound(study: Study, found: Clairvoyant, tracks: Sequence[Track]) -> Track:
    """The way that was found. A champion starts from what its own reference left, and who changes the eviction policy
    has other caches; should that make it cheaper still, the bound is its way."""
    mine = Track("clairvoyant bound", "bound", found.way.rows, found.way.settings, study.reference.settings)
    cheaper = [one for one in tracks if _apart(one) and one.usd.sum() < mine.usd.sum()]
    cheapest = min(cheaper, key=lambda one: float(one.usd.sum()), default=mine)
    return replace(cheapest, name=mine.name, role=mine.role, seed=None, version=None)


def _ghost_bound(study: Study, grid: GhostGrid) -> Track:
    """Each interval at its cheapest of the ghost grid's settings and the reference, in hindsight.

    Every setting is replayed from the trace's start. No cache goes that way: what another setting left in it is paid
    for later. It bounds static settings, not policies.
    """
    cheapest = study.reference.rows[study.test.start : study.test.stop].copy()
    for other in grid.rows[:, study.test.start : study.test.stop]:
        better = total_usd(other) < total_usd(cheapest)
        cheapest[better] = other[better]
    return Track("per-interval static bound", "ghost bound", cheapest, None, None)
