"""Control of many caches over one world, step by step: what the Gymnasium environments, SB3 and evaluation share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from caches.knobs import KNOB_NAMES, KnobSettings
from envs import traffic as traffic_columns
from envs.interval import STATS, total_usd
from envs.observation import DAY_SECONDS, SIZE, ObservationScale, clock, encode, measured, whatif_table
from envs.reward import REWARD_GAIN, reward
from envs.world import Checkpoint, Reference, World

Array = NDArray[Any]


@dataclass(frozen=True)
class Episodes:
    """Where episodes run: starts at any of `starts` (marked intervals of the reference), each `horizon` steps long."""

    starts: tuple[int, ...]
    horizon: int

    @staticmethod
    def over(part: range, horizon: int, count: int) -> Episodes:
        """At most `count` equally spaced starts such that every episode stays inside `part`."""
        horizon = min(horizon, len(part))
        last = part.stop - horizon
        starts = np.unique(np.linspace(part.start, last, min(count, last - part.start + 1)).astype(int))
        return Episodes(tuple(int(start) for start in starts), horizon)


def observation_scale(world: World, reference: Reference, training: range) -> ObservationScale:
    """Means over training traffic only. InputError when nothing was requested in it."""
    traffic = world.traffic[training.start : training.stop]
    requests = traffic[:, traffic_columns.REQUESTS]
    if not requests.sum():
        raise InputError("training traffic: got no requests, expected some")

    def mean(name: int) -> float:
        return float(np.nanmean(traffic[:, name]))

    seconds = world.problem.interval_seconds
    return ObservationScale(
        interval_seconds=seconds,
        requests_per_second=float(requests.mean()) / seconds,
        entropy_bits=mean(traffic_columns.ENTROPY),
        prompt_tokens=mean(traffic_columns.PROMPT),
        output_tokens=mean(traffic_columns.OUTPUT),
        interval_usd=float(reference_usd(reference, training).mean()),
        p99_ttft_seconds=world.problem.constraints.p99_ttft_seconds,
        stale_ratio=world.problem.constraints.stale_ratio,
        daily=len(training) * seconds >= 2 * DAY_SECONDS,
        weekly=len(training) * seconds >= 14 * DAY_SECONDS,
    )


def reference_usd(reference: Reference, part: range) -> Array:
    """Cost of the reference in each interval of a part, shape (len(part),)."""
    return total_usd(reference.rows[part.start : part.stop])


class LaneControl:
    """Lanes that each live in their own interval. The caller resets a lane before stepping it.

    An action is an offset of position from the reference (caches.knobs.KnobSpace.decide), float in [-1, 1]. choice:
    int64 (lanes,), the eviction policy that each is under, as one of the world's choices; 0 in a world without.
    """

    def __init__(self, reference: Reference, scale: ObservationScale, lanes: int, horizon: int) -> None:
        world = reference.world
        self.world, self.reference, self.scale, self.count = world, reference, scale, lanes
        listed = max(checkpoint.listed for checkpoint in reference.checkpoints)
        room = listed + horizon * world.problem.warmup_candidates
        self.lanes = world.lanes(lanes, room)
        self.index = np.zeros(lanes, np.int64)
        self._horizon, self._until = horizon, np.zeros(lanes, np.int64)
        self.rows = np.full((lanes, STATS), np.nan)
        knobs = world.problem.knobs
        self._home = knobs.positions(reference.settings)
        self._home_values = reference.settings.as_array()
        self.positions = np.tile(self._home, (lanes, 1))
        self.settings = np.tile(self._home_values, (lanes, 1))
        self.choice = np.zeros(lanes, np.int64)
        self._whatif = whatif_table(reference.ghost_usd, reference.usd, scale)
        self._reference_usd = reference.usd

    def reset(self, lane: int, checkpoint: Checkpoint) -> None:
        """The lane goes on from where the reference was when that interval began."""
        checkpoint.copy_to(self.lanes, lane)
        self.index[lane] = checkpoint.index
        self._until[lane] = min(checkpoint.index + self._horizon, len(self.world))
        self.positions[lane], self.settings[lane], self.choice[lane] = self._home, self._home_values, 0
        before = checkpoint.index - 1
        self.rows[lane] = self.reference.rows[before] if before >= 0 else np.nan

    def step(self, actions: Array, choice: Array | None = None) -> Array:
        """Every lane through its interval; returns the rewards, shape (lanes,). Lanes end up one interval later.

        choice: (lanes,), the eviction policies from now on; None: as they are.

        InputError where a lane was never reset, or has come to its horizon or to the end of the trace.
        """
        over = np.flatnonzero(self.index >= self._until)
        if over.size:  # the kernels check no bounds
            index, until = self.index[over[0]], self._until[over[0]]
            raise InputError(f"lane {over[0]}: got interval {index}, expected one before {until}; reset it first")
        self.positions = self.world.problem.knobs.move(self._home, self.positions, actions)
        self.settings = self._values(self.positions)
        self.choice = self.choice if choice is None else np.asarray(choice, np.int64)
        wanted = np.column_stack((self.settings, self.choice)) if self.world.choices else self.settings
        self.world.crew.share(
            lambda part: self.world.play.step_lanes(self.world.scene, self.lanes, part, self.index, wanted, self.rows),
            self.count,
        )
        saved = reward(self._reference_usd[self.index], total_usd(self.rows), self.scale.interval_usd / REWARD_GAIN)
        self.index += 1
        return saved

    def observe(self) -> NDArray[np.float32]:
        """What each lane sees when its next interval begins, float32 (lanes, SIZE)."""
        before = np.maximum(self.index - 1, 0)
        signals = measured(self.rows, self.world.traffic[before], self._reference_usd[before], self.scale)
        signals[self.index == 0] = np.nan
        phases = clock(self.now_seconds(), self.scale)
        return encode(signals, self.positions - self._home, phases, self._whatif[self.index])

    def now_seconds(self) -> Array:
        """When each lane's next interval begins, shape (lanes,), on a clock whose zero is a midnight."""
        start = self.world.problem.trace.info.start_unix_seconds or 0.0
        begins = self.world.timeline.start_seconds + self.index * self.world.problem.interval_seconds
        return np.asarray(start + begins)

    def settings_of(self, lane: int) -> KnobSettings:
        """Settings that were in force in the lane's last interval."""
        named = self.world.choices[self.choice[lane]].eviction if self.world.choices else None
        return replace(KnobSettings.from_array(self.settings[lane]), eviction_policy=named)

    def _values(self, positions: Array) -> Array:
        """KnobSpace.settings for all lanes at once; the reference's own position gives its exact values back."""
        values = self.world.problem.knobs.values(positions)
        return np.where(positions == self._home, self._home_values, values)


OBSERVATION_SHAPE = (SIZE,)
ACTION_SHAPE = (len(KNOB_NAMES),)
