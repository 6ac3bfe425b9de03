"""The what-if controller: goes where a ghost cache was cheapest lately, if that pays for the way there.

Ghosts are caches at fixed settings that are replayed on the same traffic, so what each would have cost is known exactly
up to the interval before. The controller expects the next intervals to cost what the last did on an exponentially
weighted average, and weighs each ghost against staying where it wants to be already.

Where there are several eviction policies to choose between, there are ghosts under each of them, and a change of the
policy counts as a move over the full range of a knob.

A ghost has always been where it is, its cache full of what that setting keeps. A cache that is moved there has yet to
become like that, so a ghost promises more than a move brings. Hence the charge, and `reach`, which goes only part of
the way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policy import Ghosts, Sight
from caches.errors import InputError
from caches.policies.pair import CachePolicy

Array = NDArray[Any]
FloatArray = NDArray[np.float64]

FORGOTTEN = 1e-6  # a weight below this share of the newest one is left out
ROUNDING = 1e-9  # of a step
SIZE_AND_TTL = slice(0, 2)  # the knobs that, when raised, leave room that has yet to fill


@dataclass(frozen=True)
class WhatIf:
    """memory, unsafe_memory: weight of the past in the averages of cost and of broken constraints, per interval, in
    [0, 1). margin: share of the cost of staying that a move must save, per interval; infinite: never moves. charge:
    what a move costs once, in intervals' cost per full range by which size and TTL are raised, and for a change of the
    eviction policy. reach: how far to go from the reference towards a ghost, in (0, 1]; cost in between is taken as
    linear. horizon: intervals in which a move has to pay for itself."""

    memory: float = 0.9
    margin: float = 0.01
    charge: float = 0.5
    reach: float = 1.0
    horizon: int = 12
    unsafe_memory: float = 0.99

    def __post_init__(self) -> None:
        for name in ("memory", "unsafe_memory"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise InputError(f"{name}: got {getattr(self, name)}, expected in [0, 1)")
        for name in ("margin", "charge"):
            if not getattr(self, name) >= 0.0:
                raise InputError(f"{name}: got {getattr(self, name)}, expected at least 0")
        if not 0.0 < self.reach <= 1.0:
            raise InputError(f"reach: got {self.reach}, expected in (0, 1]")
        if self.horizon < 1:
            raise InputError(f"horizon: got {self.horizon}, expected at least 1 interval")


class WhatIfController:
    """home: (3,), positions of the reference, where it begins. max_steps: (3,), largest change of position per
    interval. allowed: share of intervals that may break a constraint.

    choices: eviction policies to choose between, the first of them that of the reference; none: it stays under that.

    A ghost at the reference's own position (`envs.ghosts.joined` adds it) stands for staying there; without one the
    nearest ghost does.
    """

    name = "what-if controller"

    def __init__(
        self,
        home: FloatArray,
        max_steps: FloatArray,
        allowed: float,
        options: WhatIf = WhatIf(),
        choices: tuple[CachePolicy, ...] = (),
    ) -> None:
        self.home, self.max_steps, self.allowed, self.options = home, max_steps, allowed, options
        self.choices = choices
        self.reset(0)

    def reset(self, seed: int) -> None:
        self._target, self.choice = self.home.copy(), 0
        self._decided: int | None = None

    @property
    def target(self) -> FloatArray:
        """Where it wants to be, as last decided, shape (3,), and behind it the choice where there is one, (4,): all
        that it remembers from one interval to the next."""
        return np.append(self._target, [float(self.choice)] if self.choices else [])

    def recall(self, target: FloatArray) -> None:
        """Goes on from a `target` of before, as after a restart. InputError for another shape, or no choice."""
        size = self.home.size + bool(self.choices)
        if np.shape(target) != (size,) or not np.isfinite(target).all():
            raise InputError(f"target: got {target!r}, expected {size} finite numbers")
        if self.choices and target[-1] not in range(len(self.choices)):
            raise InputError(f"target: got choice {target[-1]:g}, expected 0 to {len(self.choices) - 1}")
        self._target, self._decided = np.array(target[: self.home.size], np.float64), None
        self.choice = int(target[-1]) if self.choices else 0

    def act(self, sight: Sight) -> FloatArray:
        return self.propose(sight) - self.home

    def propose(self, sight: Sight) -> FloatArray:
        """Wished positions, shape (3,) in [0, 1]. Decides once per interval; asked again in it, it says the same.

        InputError where nothing replays ghosts.
        """
        if sight.ghosts is None:
            raise InputError("what-if controller: got no ghosts, expected a grid of them beside the traffic")
        if sight.interval != self._decided:
            self._decided = sight.interval
            if sight.ghosts.usd.shape[1]:
                self._decide(sight.ghosts, sight.positions, sight.choice)
        return self._target.copy()

    def _decide(self, ghosts: Ghosts, here: FloatArray, choice: int | None) -> None:
        options, policy = self.options, _policy_of(ghosts)
        usd = _toward(weighted_mean(ghosts.usd, options.memory), ghosts.positions, policy, self.home, options.reach)
        positions = self.home + options.reach * (ghosts.positions - self.home)
        stay = nearest(positions, self._target, policy == self.choice)
        risk = weighted_mean(ghosts.unsafe, options.unsafe_memory)
        open_to = (policy == self.choice) | bool(self.choices)
        safe = open_to & (risk <= max(self.allowed, float(risk[open_to].min())))
        changes = np.ones(len(policy)) if choice is None else policy != choice
        relative = usd / usd[stay] if usd[stay] > 0.0 else np.ones(len(usd))
        net = np.where(safe, self.net_saving(relative, positions - here, changes), -np.inf)
        best = int(np.argmax(net))
        if not safe[stay] or net[best] > options.margin:
            self._target, self.choice = np.asarray(positions[best]).copy(), int(policy[best])

    def net_saving(self, relative_usd: Array, way: Array, changes: Array | float = 0.0) -> FloatArray:
        """What going there saves per interval of the horizon, as a share of the cost of staying, the charge for the way
        taken off. relative_usd: (ghosts,), 1 for staying. way: (ghosts, 3), from the positions in force. changes:
        (ghosts,), whether the eviction policy is another."""
        steps = np.ceil(np.abs(way) / self.max_steps - ROUNDING).max(axis=1)
        raised = np.maximum(way[:, SIZE_AND_TTL], 0.0).sum(axis=1) + changes
        saved = (1.0 - relative_usd) * intervals_there(steps, self.options.horizon)
        return np.asarray((saved - self.options.charge * raised) / self.options.horizon)


def nearest(positions: Array, wanted: FloatArray, among: Array | bool = True) -> int:
    """Index of the position with the smallest sum of distances over the knobs; of equals the first. among:
    (positions,), those that count."""
    return int(np.argmin(np.where(among, np.abs(positions - wanted).sum(axis=1), np.inf)))


def _policy_of(ghosts: Ghosts) -> NDArray[np.int64]:
    return np.zeros(len(ghosts.positions), np.int64) if ghosts.policy is None else ghosts.policy


def _toward(usd: Array, positions: Array, policy: Array, home: FloatArray, reach: float) -> FloatArray:
    """What it costs part of the way from home to each, under its own policy, where cost in between is linear."""
    usd_home = np.empty(len(usd))
    for one in np.unique(policy):
        mine = policy == one
        usd_home[mine] = usd[nearest(positions, home, mine)]
    return np.asarray(usd_home + reach * (usd - usd_home))


def weighted_mean(values: Array, memory: float) -> FloatArray:
    """Mean over the last axis (not empty, oldest first), each entry weighing `memory` times as much as the next."""
    span = 1 if memory == 0.0 else math.ceil(math.log(FORGOTTEN) / math.log(memory))
    recent = values[..., -span:]
    if not recent.any():  # quick, and as a rule so for broken constraints
        return np.zeros(recent.shape[:-1])
    weight = memory ** np.arange(recent.shape[-1] - 1, -1, -1.0)
    return np.asarray(recent @ (weight / weight.sum()))


def intervals_there(steps: Array, horizon: int) -> FloatArray:
    """How many of the next `horizon` intervals a move of that many steps is worth, when the way there brings saving
    in proportion: step k of n brings k / n of it, what is left of the horizon all."""
    n = np.maximum(steps, 1.0)
    return np.where(n <= horizon, horizon - (n - 1.0) / 2.0, horizon * (horizon + 1.0) / (2.0 * n))
