"""The results of an evaluation, as they are printed, drawn, logged and written to JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from agents.tracks import Role
from agents.uncertainty import Estimate, Spread


@dataclass(frozen=True)
class Savings:
    """What a policy saves against another on the same requests, with 95 % intervals over time.

    percent: of the other's cost; None where that is zero. block_intervals: length of the bootstrap's blocks.
    """

    usd_per_1000: Estimate
    percent: Estimate | None
    block_intervals: int


@dataclass(frozen=True)
class Changes:
    """Intervals in which any knob moved by more than 1 % of its range."""

    intervals: int
    per_1000_intervals: float
    per_day: float


@dataclass(frozen=True)
class PolicyResult:
    """One policy on the test intervals. Costs are USD per 1,000 requests. None: no data, or not applicable.

    saving: against best static; None for best static itself. headroom_captured: see agents.evaluation.headroom.
    token_hit_ratio: each interval's, weighted by the tokens requested in it. violated_intervals: by constraint;
    unsafe_intervals: those that broke any. learned_within: intervals of training until it was near what it became
    (agents.learning_curve). seed: of its training. version: in the registry.
    """

    name: str
    role: Role
    seed: int | None
    version: int | None
    usd_per_1000: float
    usd_by_cause_per_1000: dict[str, float]
    saving: Savings | None
    headroom_captured: float | None
    changes: Changes | None
    violated_intervals: dict[str, int]
    violations_per_1000_intervals: dict[str, float]
    hit_ratio: float
    token_hit_ratio: float | None
    median_p99_ttft_seconds: float | None
    unsafe_intervals: int
    unsafe_per_1000_intervals: float
    learned_within: int | None = None


@dataclass(frozen=True)
class SeedsResult:
    """The learned policies together. saving: of their mean cost in each interval, so its interval is over time only;
    the spreads are over seeds."""

    seeds: tuple[int | None, ...]
    usd_per_1000: Spread
    saving_usd_per_1000: Spread
    saving_percent: Spread | None
    headroom_captured: Spread | None
    saving: Savings


@dataclass(frozen=True)
class Setting:
    """What was judged: the traffic and how it was cut. Intervals are [first, end) of the trace. cache_policy: what the
    cache does per request, by name."""

    trace: str
    trace_sha256: str
    source: str
    composed: bool
    assumptions: tuple[str, ...]
    interval_seconds: float
    training: tuple[int, int]
    validation: tuple[int, int]
    test: tuple[int, int]
    best_static: dict[str, float]
    default: dict[str, float]
    prices: dict[str, Any]
    constraints: dict[str, Any]
    serving: dict[str, Any]
    resamples: int
    seed: int
    cache_policy: str = "lru"


@dataclass(frozen=True)
class BoundSearch:
    """How well the clairvoyant bound is known. Costs are USD per 1,000 requests. full_width_usd_per_1000: what the
    search found. half_width_usd_per_1000: what a second one found, half as wide and begun from best static alone; the
    bound is the cheaper of them. resolution_percent: how far they are apart, of the bound's cost. sweeps, settled: as
    of agents.clairvoyant.Clairvoyant."""

    usd_per_1000: float
    full_width_usd_per_1000: float
    half_width_usd_per_1000: float
    resolution_percent: float
    sweeps: int
    settled: bool


@dataclass(frozen=True)
class Evaluation:
    """A judgement as numbers. notes: sentences that every report shows; warnings: what weakens this one. bound: None
    where the clairvoyant bound was not searched for."""

    setting: Setting
    requests: int
    intervals: int
    policies: tuple[PolicyResult, ...]
    learned: SeedsResult | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    bound: BoundSearch | None = None

    def one(self, role: Role) -> PolicyResult | None:
        """The first policy in a role."""
        return next((policy for policy in self.policies if policy.role == role), None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
