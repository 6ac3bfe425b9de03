"""Plans: settings for each of the next intervals, replayed exactly from the state that a cache and its queue are in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.interval import STATS, total_usd
from envs.lanes import fork
from envs.prefix_lanes import PrefixScene
from envs.world import Checkpoint, World

Array = NDArray[Any]


class PlanLanes:
    """States that plans start from, numbered from 0 on, and lanes to try plans in.

    Twice the states and the trials take memory, each as much as one cache's table of keys. replayed: work done, see
    `work_before`.
    """

    def __init__(self, world: World, states: int, trials: int, warmup_room: int) -> None:
        self.world, self.states, self.trials = world, states, trials
        self.replayed = 0
        self._lanes = world.lanes(2 * states + trials, warmup_room)
        self._front, self._back = 0, states  # first lanes of the states in force and of those to come
        self._upto = work_before(world)

    def put(self, checkpoint: Checkpoint) -> None:
        """State 0 is that of the checkpoint; there is no other."""
        checkpoint.copy_to(self._lanes, self._front)

    def try_out(self, states: Sequence[int], first: int, settings: Array) -> Array:
        """What plans cost, USD (plans, intervals), each from its state; no state changes.

        states: one per plan. first: the interval in which all begin. settings: (plans, intervals, 3).
        """
        usd = np.empty(settings.shape[:2])
        for start in range(0, len(states), self.trials):
            part = slice(start, start + self.trials)
            usd[part] = total_usd(self._run(states[part], 2 * self.states, first, settings[part]))
        return usd

    def advance(self, states: Sequence[int], first: int, settings: Array) -> Array:
        """Afterwards state i is where plan i led to from its state, and others are gone. At most as many plans as there
        is room for states. Returns their statistics, (plans, intervals, STATS)."""
        rows = self._run(states, self._back, first, settings)
        self._front, self._back = self._back, self._front
        return rows

    def _run(self, states: Sequence[int], base: int, first: int, settings: Array) -> Array:
        """The plans in the lanes from `base` on."""
        world, lanes, play, count = self.world, self._lanes, self.world.play, len(states)
        span = settings.shape[1]
        rows, values = np.empty((span, base + count, STATS)), np.empty((span, base + count, 3))
        values[:, base:] = settings.transpose(1, 0, 2)
        index = np.repeat(np.arange(first, first + span)[:, None], base + count, axis=1)

        def work(part: tuple[int, int]) -> None:
            begin, end = base + part[0], base + part[1]
            for lane in range(begin, end):
                fork(play, lanes, self._front + states[lane - base], lane)
            for step in range(span):
                play.step_lanes(world.scene, lanes, (begin, end), index[step], values[step], rows[step])

        world.crew.share(work, count)
        self.replayed += count * int(self._upto[first + span] - self._upto[first])
        return rows[:, base:].transpose(1, 0, 2)


PROMPT_WORK = 50  # a prompt takes as long as so many requests of a cache of responses, and one more for each block


def work_before(world: World) -> Array:
    """What a kernel has to do before each interval, int64 (intervals + 1,), in pieces of about 75 ns: requests, or in a
    prefix cache prompts, PROMPT_WORK each, and their blocks."""
    edges = world.timeline.edges
    if isinstance(world.scene, PrefixScene):
        return np.asarray(PROMPT_WORK * edges + world.scene.chains.offsets[edges], np.int64)
    return edges
