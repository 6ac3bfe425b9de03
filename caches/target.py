"""The seam of a live cache that is tuned. tests/contracts/live_cache_contract.py is what every one has to pass.

A cache has two arms, control and treatment. Each key belongs to one of them, each arm has a share of the capacity that
is its share of the keys, and neither sees entries of the other. Without an experiment all keys are the control arm's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from caches.errors import InputError, SetpointError
from caches.knobs import KnobSettings, KnobSpace


class CacheUnavailable(SetpointError):
    """The cache cannot be reached, answers too late, or answers nonsense. What it does with a plan is then unknown."""


class Fenced(SetpointError):
    """Somebody with a higher fence has acted on the cache since: the caller is not the active daemon any more."""


class Arm(StrEnum):
    CONTROL = "control"
    TREATMENT = "treatment"


@dataclass(frozen=True)
class Split:
    """Which keys are whose. salt: of the experiment. treatment: the treatment arm's share of the keys, in [0, 1]."""

    salt: str = ""
    treatment: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.treatment <= 1.0:
            raise InputError(f"treatment: got {self.treatment}, expected a share in [0, 1]")

    def share(self, arm: Arm) -> float:
        return self.treatment if arm is Arm.TREATMENT else 1.0 - self.treatment


@dataclass(frozen=True)
class Plan:
    """What a cache is to do. control, treatment: settings stated for the whole cache; an arm with a share s of the keys
    is given s times that cache_size. Each names its eviction policy, or none for that which the cache was made with."""

    split: Split
    control: KnobSettings
    treatment: KnobSettings

    def settings(self, arm: Arm) -> KnobSettings:
        return self.treatment if arm is Arm.TREATMENT else self.control


@dataclass(frozen=True)
class Standing:
    """What a cache says of itself. plan: what it aims at. binding: what binds now, by arm, stated for the whole cache;
    it differs from the plan while a smaller capacity or another eviction policy is reached step by step; an arm without
    a share is left out.
    fence: the highest that it has seen. began_seconds: when it started, Unix time: after another start nothing that was
    applied holds."""

    plan: Plan
    binding: Mapping[Arm, KnobSettings]
    fence: int
    began_seconds: float


@dataclass(frozen=True)
class Histogram:
    """How often a value was seen, by bucket. bounds: upper ends, increasing. counts: one more than bounds, not
    cumulative; the last is of what is above all bounds. total: sum of the values."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.bounds) + 1:
            raise InputError(f"histogram: got {len(self.counts)} counts, expected {len(self.bounds) + 1}")

    @property
    def number(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True)
class ArmCounters:
    """What an arm has counted since the cache began; all but `entries` and `used_bytes` only grow.

    requests: answered or not. errors: those of them that got no answer for a reason other than the client's.
    verified_hits, wrong_hits: hits by meaning that the backend was asked about too, and those of them that were wrong;
    counted when that is known, for the arm that the key belonged to when it hit.
    miss_prompt_tokens, miss_output_tokens, warmup_prompt_tokens, warmup_output_tokens: of answers that the backend had
    to give. hit_tokens, tokens: prompt and output of what was answered from the cache, and of everything.
    ttft_seconds, latency_seconds: of all requests. hit_age_seconds: how long before each hit its answer was written.
    """

    requests: int
    hits: int
    errors: int
    verified_hits: int
    wrong_hits: int
    hit_bytes: int
    miss_bytes: int
    hit_tokens: int
    tokens: int
    miss_prompt_tokens: int
    miss_output_tokens: int
    warmups: int
    warmup_prompt_tokens: int
    warmup_output_tokens: int
    expirations: int
    evictions: int
    entries: int
    used_bytes: int
    ttft_seconds: Histogram
    latency_seconds: Histogram
    hit_age_seconds: Histogram


@dataclass(frozen=True)
class Counted:
    """began_seconds, at_seconds: of the cache's clock, Unix time. arms: both, whatever their shares."""

    began_seconds: float
    at_seconds: float
    arms: Mapping[Arm, ArmCounters]


@dataclass(frozen=True)
class BalancedSalt:
    """salt: of those that were tried, the one under which past traffic splits best. imbalance: how far off it is under
    it, in standard deviations over salts. keys: how many of the heaviest were looked at."""

    salt: str
    imbalance: float
    keys: int


class LiveCache(Protocol):
    """A cache that serves traffic and is tuned. Every method raises CacheUnavailable where the cache cannot be reached
    or does not answer in time, and has then perhaps been obeyed."""

    @property
    def name(self) -> str:
        """Stable over restarts; what the ledger and the metrics call it."""

    def knob_space(self) -> KnobSpace:
        """Ranges that the operator gives, with the operator's own static settings as defaults. Of the whole cache."""

    def eviction_policies(self) -> tuple[str, ...]:
        """Names of those that it can be brought under while it runs, the one that it was made with first; none where it
        does not tell. Changes nothing."""

    def standing(self) -> Standing:
        """Changes nothing."""

    def apply(self, plan: Plan, fence: int) -> Standing:
        """Aims at a plan and returns what was taken, inside the ranges. Applying the same plan again changes nothing.
        Raises Fenced, having changed nothing, where `fence` is below the highest seen; of an eviction policy that it
        does not offer InputError or, as of all that a gateway refuses, CacheUnavailable."""

    def counters(self) -> Counted:
        """Changes nothing."""

    def balanced_salt(self, seed: int, shares: Sequence[float]) -> BalancedSalt | None:
        """For an experiment to come, whose treatment arm is to have one of these shares after the other, each in
        (0, 1). The same seed tries the same salts. Changes nothing. None where it knows nothing of past traffic."""
