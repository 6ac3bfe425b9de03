"""What a policy sees of a live cache: the same observation as in training, out of counted and measured numbers.

An arm with a share of the keys behaves like the whole cache on average (docs/experiments.md), so what it counted is
stated for the whole before a policy sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policy import Ghosts, Sight
from caches.knobs import KnobSettings, KnobSpace
from caches.policies.pair import CachePolicy
from envs.interval import COLUMN, COSTS, STATS
from envs.observation import (
    NUM_GHOSTS,
    WHATIF_MEMORY,
    ObservationScale,
    clock,
    encode,
    measured,
)
from envs.reward import REWARD_GAIN
from envs.traffic import FEATURES

Array = NDArray[Any]

EXTENSIVE = ("requests", "hits", "stale_answers", "warmups", "expirations", "evictions", "used_bytes", "slow_requests")
AVERAGES = len(WHATIF_MEMORY) * NUM_GHOSTS


@dataclass(frozen=True)
class KeysSeen:
    """What the key stream says of an interval, stated for the whole cache. traffic: (7,), order of
    envs.traffic.FEATURES. reference_usd: what the reference setting cost. ghost_usd: (NUM_GHOSTS,), its neighbours. All
    NaN where not known. ghosts: the grid, with the intervals before, this one included; None where nothing follows the
    keys."""

    traffic: Array
    reference_usd: float
    ghost_usd: Array
    ghosts: Ghosts | None

    @staticmethod
    def nothing() -> KeysSeen:
        return KeysSeen(np.full(len(FEATURES), np.nan), np.nan, np.full(NUM_GHOSTS, np.nan), None)


def whole(row: Array, share: float) -> Array:
    """Statistics of an arm (STATS,) as those of a cache for all keys would be: what counts things, over the share."""
    stated = row.copy()
    stated[[COLUMN[name] for name in EXTENSIVE]] /= share
    stated[COSTS] /= share
    return stated


def averaged(before: Array, keys: KeysSeen, scale: ObservationScale) -> Array:
    """The two averages of what ghosts would have saved after one more interval (envs.observation.whatif_table), shape
    (AVERAGES,). Where the interval's ghosts are not known, they stay."""
    saved = REWARD_GAIN * (keys.reference_usd - keys.ghost_usd) / scale.interval_usd
    if not np.isfinite(saved).all():
        return before.copy()
    memory = np.repeat(WHATIF_MEMORY, NUM_GHOSTS)
    return np.asarray(memory * before + (1.0 - memory) * np.tile(saved, len(WHATIF_MEMORY)))


@dataclass(frozen=True)
class Eyes:
    """How a policy looks at a cache: its own ranges, reference and scale. scale: None for one that observes nothing.
    choices: eviction policies that it chooses between, the cache's own first; none for most."""

    knobs: KnobSpace
    reference: KnobSettings
    scale: ObservationScale | None
    choices: tuple[CachePolicy, ...] = ()

    def sight(
        self,
        row: Array | None,
        settings: KnobSettings,
        keys: KeysSeen,
        averages: Array,
        moment: tuple[int, float],
    ) -> Sight:
        """row: of the arm's last interval, stated for the whole; None where nothing is known of it. settings: in force.
        averages: as `averaged` returns them. moment: number and beginning (Unix seconds) of the interval to come."""
        index, now = moment
        seen = np.full(STATS, np.nan) if row is None else row
        positions, home = self.knobs.positions(settings), self.knobs.positions(self.reference)
        observation = self._observation(seen, positions - home, keys, averages, now)
        return Sight(observation, index, now, seen, positions, keys.ghosts, self._choice(settings))

    def _choice(self, settings: KnobSettings) -> int | None:
        """The policy that is in force, as one of the choices; None for another."""
        names = [policy.eviction for policy in self.choices]
        if settings.eviction_policy is None or not names:
            return 0
        return names.index(settings.eviction_policy) if settings.eviction_policy in names else None

    def _observation(
        self, row: Array, offsets: Array, keys: KeysSeen, averages: Array, now: float
    ) -> NDArray[np.float32]:
        if self.scale is None:
            return np.zeros(0, np.float32)
        signals = measured(row[None], keys.traffic[None], np.array([keys.reference_usd]), self.scale)
        phases = clock(np.array([now]), self.scale)
        return np.asarray(encode(signals, offsets[None], phases, averages[None])[0])
