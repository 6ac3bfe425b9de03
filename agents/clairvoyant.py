"""The clairvoyant bound: the cheapest way through the test traffic that a search finds which knows all of it.

A beam search over states of the shadow cache. Time goes in strides. At each the beam holds a few ways so far, each with
the state that it led to (cache, queue, positions of the knobs) and a plan for the rest. From every state its plan and
many changes of it are replayed exactly: each knob higher or lower for a while, as the cheapest ghosts of the intervals
to come, as best static or a policy went. Knobs move by at most their largest steps. The cheapest plans are kept, the
best of each neighbourhood of settings first. Sweeps of several strides and steps improve the cheapest way so far, the
first that of the cheapest policy, again and again until a round of them gains nothing or the work allowed is done. No
constraint is imposed.

Every way is one that can be gone, so what it costs is an upper bound of the optimum's cost: nobody needs to pay more
who knows the future, and who searches longer may pay less. How much less is estimated by how far a second search, half
as wide and begun from best static alone, ends apart.

Judging a change by its whole remaining cost under a plan is the rollout of D. P. Bertsekas, J. N. Tsitsiklis, C. Wu,
Rollout algorithms for combinatorial optimization, Journal of Heuristics 3 (1997); a cost so far alone misleads, because
what is in the cache, and how old it is, is paid or earned hours later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.plans import PlanLanes, work_before
from agents.study import Study
from caches.errors import InputError
from caches.knobs import KnobSettings
from envs.ghosts import GhostGrid
from envs.interval import total_usd

Array = NDArray[Any]
Report = Callable[[float], None]  # share of the work allowed that is done

CELL = 0.5  # of a knob's largest step: settings in one cell of this width are neighbours
SAME = 6  # decimals of a position; what differs less is one plan
SETTLED = 1e-4  # of the cost: a round of sweeps that gains less is the last


@dataclass(frozen=True)
class Sweep:
    """One pass over the traffic. stride: intervals between decisions. steps: how far, in largest steps, a knob is tried
    higher and lower. spans: for how many strides a change is tried to last; None: to the end."""

    stride: int
    steps: float
    spans: tuple[int | None, ...]


@dataclass(frozen=True)
class Search:
    """How thorough. width: ways that the beam keeps. window: intervals over which a change is weighed; shorter than a
    few lifetimes of an entry, it takes for saved what is only paid later. ghosts, policies: how many of each are
    tried. work: a sweep that seems to need more than is left of it (agents.plans.work_before) is left out, except the
    first. trials: lanes side by side."""

    width: int = 2
    window: int = 144
    ghosts: int = 3
    policies: int = 2
    work: int = 1_200_000_000
    trials: int = 16
    sweeps: tuple[Sweep, ...] = (
        Sweep(6, 1.0, (1, 2, 4, None)),
        Sweep(2, 0.5, (1, 3, 9)),
        Sweep(1, 1.0, (1, 2, 4, None)),
        Sweep(1, 0.5, (1, 2, 4)),
        Sweep(1, 0.25, (1, 2, 4)),
    )

    def __post_init__(self) -> None:
        for name in ("width", "window", "work", "trials"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: got {getattr(self, name)}, expected at least 1")
        if not self.sweeps:
            raise InputError("sweeps: got none, expected at least one")

    @property
    def half(self) -> Search:
        """Half as wide, with half the work, and without policies."""
        return replace(self, width=max(self.width // 2, 1), work=max(self.work // 2, 1), policies=0)


@dataclass(frozen=True)
class Way:
    """Settings in force in each test interval, (intervals, 3), and what came of it, (intervals, STATS)."""

    settings: Array
    rows: Array

    @property
    def usd(self) -> float:
        return float(total_usd(self.rows).sum())


@dataclass(frozen=True)
class Clairvoyant:
    """way: the cheapest of all. full_usd, half_usd: what the search found, and the one of half the width. sweeps: that
    the search made. settled: it ended because more of them gained nothing, not for want of work allowed."""

    way: Way
    full_usd: float
    half_usd: float
    sweeps: int
    settled: bool

    @property
    def resolution(self) -> float:
        """How far the two searches end apart, as a share of the bound; 0 where the bound costs nothing."""
        return abs(self.half_usd - self.full_usd) / self.way.usd if self.way.usd > 0 else 0.0


def clairvoyant(
    study: Study, ways: Sequence[Way], grid: GhostGrid, search: Search = Search(), report: Report | None = None
) -> Clairvoyant:
    """ways: of policies over study.test, best static among them as a rule; the bound is no dearer than any. The search
    begins in the state that study.reference left. grid: over the whole trace."""
    part, home = study.test, study.reference.settings
    still = Way(np.tile(home.as_array(), (len(part), 1)), study.reference.rows[part.start : part.stop])
    tell = report or _ignore
    narrow = _Beam(study, grid, search.half, lambda share: tell(share / 3.0))
    half = narrow.search([still])
    wide = _Beam(study, grid, search, lambda share: tell((1.0 + 2.0 * share) / 3.0))
    full = wide.search([still, *sorted(ways, key=lambda way: way.usd)])
    best = min((full, half, *ways), key=lambda way: way.usd)
    return Clairvoyant(best, full.usd, half.usd, wide.swept, wide.settled)


def _ignore(share: float) -> None:
    """No progress is shown."""


@dataclass(frozen=True)
class _Past:
    before: _Past | None
    settings: Array
    rows: Array


@dataclass(frozen=True)
class _Path:
    """A way so far and its plan for the rest, positions of shape (intervals to come, 3). here: positions in force.
    usd: spent. above: USD that it costs in all above the plan that the sweep began with, as far as windows reach."""

    here: Array
    plan: Array
    usd: float = 0.0
    above: float = 0.0
    past: _Past | None = None


@dataclass(frozen=True)
class _Choice:
    """Plans that may be gone on with. states: where each starts. plans: (plans, intervals to come, 3). above: as of a
    path."""

    states: Array
    plans: Array
    settings: Array
    above: Array


@dataclass
class _Beam:
    study: Study
    grid: GhostGrid
    how: Search
    report: Report
    swept: int = 0
    settled: bool = False
    guides: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        world, part = self.study.world, self.study.test
        self._checkpoint = self.study.reference.checkpoint(part.start)
        room = self._checkpoint.listed + len(part) * world.problem.warmup_candidates
        self._lanes = PlanLanes(world, self.how.width, self.how.trials, room)
        self._knobs = world.problem.knobs
        self._home = self._knobs.positions(self.study.reference.settings)
        self._steps = self._knobs.max_steps

    def search(self, ways: Sequence[Way]) -> Way:
        """The cheapest found. ways: best static and then policies, cheapest first, some of which are tried for a while
        at every turn; the cheapest of all is where the search begins."""
        best = min(ways, key=lambda way: way.usd)
        self.guides = [self._positions(way) for way in ways[: 1 + self.how.policies]]
        gained, share = math.inf, 1.0  # of what a sweep takes at most, which the one before took
        while gained > SETTLED * best.usd:
            before, swept = best.usd, self.swept
            for sweep in self.how.sweeps:
                most, done = self._most(sweep), self._lanes.replayed
                if not self.swept or done + share * most <= self.how.work:
                    best = min(best, self._sweep(sweep, self._positions(best)), key=lambda way: way.usd)
                    self.swept += 1
                    share = (self._lanes.replayed - done) / most
            gained = before - best.usd
            self.settled = self.swept - swept == len(self.how.sweeps)
        self.report(1.0)
        return best

    def _sweep(self, sweep: Sweep, plan: Array) -> Way:
        self._lanes.put(self._checkpoint)
        paths = [_Path(self._home, self._reach(self._home[None], plan[None])[0])]
        for begin in range(0, len(plan), sweep.stride):
            paths = self._stage(sweep, paths, begin)
            self.report(min(self._lanes.replayed / self.how.work, 1.0))
        return _unfold(min(paths, key=lambda path: path.usd))

    def _stage(self, sweep: Sweep, paths: list[_Path], begin: int) -> list[_Path]:
        """The paths one stride later. begin: of the stride, counted from the first test interval."""
        choice = self._weigh(paths, [self._wishes(sweep, path, begin) for path in paths], begin)
        span = min(sweep.stride, choice.plans.shape[1])
        kept = _diverse(choice, span, self.how.width, CELL * self._steps)
        states = [int(choice.states[j]) for j in kept]
        settings = choice.settings[kept, :span]
        rows = self._lanes.advance(states, self.study.test.start + begin, settings)
        later = []
        for i, j in enumerate(kept):
            before, plan = paths[states[i]], choice.plans[j]
            past = _Past(before.past, settings[i], rows[i])
            usd = before.usd + float(total_usd(rows[i]).sum())
            later.append(_Path(plan[span - 1], plan[span:], usd, float(choice.above[j]), past))
        return later

    def _weigh(self, paths: list[_Path], wishes: list[Array], begin: int) -> _Choice:
        """Replays every wish over the window. The first of a path is its own plan."""
        states = np.repeat(np.arange(len(paths)), [len(wish) for wish in wishes])
        plans = self._reach(np.array([paths[state].here for state in states]), np.concatenate(wishes))
        window = plans[:, : self.how.window]
        once = _first_of_each(states, window)
        states, plans, settings = states[once], plans[once], self._settings(window[once])
        usd = self._lanes.try_out(list(map(int, states)), self.study.test.start + begin, settings).sum(axis=1)
        own = usd[np.searchsorted(states, np.arange(len(paths)))]
        above = np.array([path.above for path in paths])[states] + usd - own[states]
        return _Choice(states, plans, settings, above)

    def _wishes(self, sweep: Sweep, path: _Path, begin: int) -> Array:
        """The path's plan and changes of it, before limits, (plans, intervals to come, 3)."""
        plan, left = path.plan, len(path.plan)
        lengths = dict.fromkeys(left if span is None else min(span * sweep.stride, left) for span in sweep.spans)
        wishes = [plan]
        for length in lengths:
            now = slice(begin, begin + length)
            first = self.study.test.start + begin
            ahead = self.grid.usd[:, first : first + length].sum(axis=1)
            ghosts = self.grid.positions[np.argsort(ahead, kind="stable")[: self.how.ghosts]]
            offsets = np.concatenate((np.eye(3), -np.eye(3))) * sweep.steps * self._steps
            heads = [*(plan[:length] + offset for offset in offsets), *ghosts, *(guide[now] for guide in self.guides)]
            for head in heads:
                wish = plan.copy()
                wish[:length] = head
                wishes.append(wish)
        return np.array(wishes)

    def _reach(self, here: Array, wishes: Array) -> Array:
        """Positions that follow wishes as fast as the limits allow. here: (plans, 3). wishes: (plans, intervals, 3)."""
        reached = np.clip(wishes, 0.0, 1.0)
        for step in range(wishes.shape[1]):
            here = np.clip(reached[:, step], here - self._steps, here + self._steps)
            reached[:, step] = here
        return reached

    def _settings(self, positions: Array) -> Array:
        """The reference's own position gives its exact values back."""
        values = self._knobs.values(positions)
        return np.where(positions == self._home, self.study.reference.settings.as_array(), values)

    def _positions(self, way: Way) -> Array:
        return np.array([self._knobs.positions(KnobSettings.from_array(row)) for row in way.settings])

    def _most(self, sweep: Sweep) -> int:
        """Work that a sweep takes at most."""
        upto, part = work_before(self.study.world), self.study.test
        tried = 1 + len(sweep.spans) * (6 + self.how.ghosts + len(self.guides))
        begins = np.arange(part.start, part.stop, sweep.stride)
        seen = upto[np.minimum(begins + max(self.how.window, sweep.stride), part.stop)] - upto[begins]
        return int(seen.sum()) * self.how.width * tried


def _first_of_each(states: Array, window: Array) -> list[int]:
    """Of plans that are the same from the same state, the first."""
    found: dict[bytes, int] = {}
    for j, plan in enumerate(np.round(window, SAME)):
        found.setdefault(bytes([0]) + int(states[j]).to_bytes(4, "little") + plan.tobytes(), j)
    return list(found.values())


def _diverse(choice: _Choice, span: int, width: int, cell: Array) -> list[int]:
    """The cheapest plan of each cell that they lead to by the end of the stride, then the next; at most `width`.
    Plans that differ only after the stride lead to one state: the cheapest stands for them."""
    best: dict[tuple[int, bytes], int] = {}
    for j in np.argsort(choice.above, kind="stable"):
        head = np.round(choice.plans[j, :span], SAME)
        best.setdefault((int(choice.states[j]), head.tobytes()), int(j))
    cells: dict[bytes, int] = {}
    for j in best.values():
        cells.setdefault(np.round(choice.plans[j, span - 1] / cell).tobytes(), j)
    firsts = list(cells.values())
    return [*firsts, *(j for j in best.values() if j not in set(firsts))][:width]


def _unfold(path: _Path) -> Way:
    settings, rows, past = [], [], path.past
    while past is not None:
        settings.append(past.settings)
        rows.append(past.rows)
        past = past.before
    return Way(np.concatenate(settings[::-1]), np.concatenate(rows[::-1]))
