"""Values about the keys of a live cache: what ghosts go by, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from caches.knobs import KnobSettings, KnobSpace
from caches.target import Arm
from envs.ghost_lanes import Terms
from envs.ghosts import grid_settings
from envs.journal import Batch
from envs.reward import Constraints
from envs.world import ghost_settings

Array = NDArray[Any]


@dataclass(frozen=True)
class Viewpoint:
    """What a policy wants to know: its own ranges, its reference, and the eviction policies that it chooses between, as
    its bundle has them; the cache's own is the first of these."""

    knobs: KnobSpace
    reference: KnobSettings
    choices: tuple[str, ...] = ()

    def neighbours(self) -> list[KnobSettings]:
        return ghost_settings(self.knobs, self.reference)

    def grid(self) -> list[KnobSettings]:
        """The reference as one more, the last, unless it is among them; under each of the choices in turn, where the
        own one goes without saying."""
        every = list(dict.fromkeys((*grid_settings(self.knobs), self.reference)))
        return every + [replace(one, eviction_policy=name) for name in self.choices[1:] for one in every]

    def grid_choices(self) -> NDArray[np.int64] | None:
        """Which of the choices each of the grid is under; None where there is nothing to choose."""
        size = max(len(self.choices), 1)
        return np.repeat(np.arange(size), len(self.grid()) // size) if self.choices else None

    def settings(self) -> list[KnobSettings]:
        """All of them, each once."""
        return list(dict.fromkeys((self.reference, *self.neighbours(), *self.grid())))


@dataclass(frozen=True)
class GhostRules:
    """entry_overhead_bytes: what an entry takes beside its answer. prompt_tokens, bytes_per_token: what to assume while
    no answer states its tokens (traces/tokens.py). rate: share of the keys that the grid is to follow at first.
    most_keys, most_requests: of these at a time, and of their requests in an interval; most_arm_keys,
    most_arm_requests: the same of the ghosts of arms, which follow all keys at first. horizon_seconds: when a key that
    nobody asks for and nothing holds is forgotten."""

    terms: Terms
    constraints: Constraints
    entry_overhead_bytes: int
    prompt_tokens: int
    bytes_per_token: float
    rate: float = 1.0
    most_keys: int = 100_000
    most_requests: int = 25_000
    horizon_seconds: float = 604_800.0
    most_arm_keys: int = 1_000_000
    most_arm_requests: int = 250_000

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise InputError(f"rate: got {self.rate}, expected a share above 0, at most 1")
        for name in ("most_keys", "most_requests", "most_arm_keys", "most_arm_requests", "horizon_seconds"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name}: got {getattr(self, name)}, expected above 0")


@dataclass
class Totals:
    """Of all keys. requests: by arm (control, treatment), int64 of shape (2,)."""

    requests: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    prompt_tokens: int = 0
    output_tokens: int = 0

    def add(self, batch: Batch) -> None:
        self.requests += np.bincount(batch.treatment, minlength=2)
        self.prompt_tokens += int(batch.prompt.sum(dtype=np.int64))
        self.output_tokens += int(batch.output.sum(dtype=np.int64))

    def sums(self) -> tuple[float, float, float]:
        """Of both arms: requests, prompt tokens, output tokens."""
        return float(self.requests.sum()), float(self.prompt_tokens), float(self.output_tokens)


@dataclass(frozen=True)
class Estimate:
    """usd: stated for all keys, or for all of an arm's. error: its standard error."""

    usd: float
    error: float


@dataclass(frozen=True)
class KeyInterval:
    """What the key stream said of an interval. Of the sample that the grid follows: rate, share of all keys; keys, how
    many these are; sampled, their requests. arm_rate, arm_keys: the same of the ghosts of arms. late: requests in it
    that came before it. traffic, traffic_error: (7,), of all keys; NaN where not known. arms: what the control settings
    would have cost on each arm's own requests. drafts: what other settings would have, by the names that they were
    given. notes: sentences."""

    began_seconds: float
    ended_seconds: float
    rate: float
    keys: int
    sampled: int
    arm_rate: float
    arm_keys: int
    late: int
    traffic: Array
    traffic_error: Array
    arms: Mapping[Arm, Estimate] = field(default_factory=dict)
    drafts: Mapping[str, Estimate] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SeenErrors:
    """Standard errors of a KeysSeen. saving: (NUM_GHOSTS,), of the differences between neighbours and reference: these
    share their keys, so they are known better than either."""

    reference_usd: float
    ghost_usd: Array
    saving_usd: Array
