"""What a what-if says, whatever kind of cache it was asked about: axes, surfaces over them, settings with prices."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.results import Savings
from agents.units import readable
from caches.knobs import KnobSettings

Array = NDArray[Any]

ENTRIES = "entries"  # unit of a capacity where every response counts 1


@dataclass(frozen=True, eq=False)
class Axis:
    """A knob and the values that were tried, ascending. unit: as `amount` knows it."""

    name: str
    unit: str
    values: Array

    def nearest(self, value: float) -> int:
        """Index of the value whose ratio to this one is nearest to 1."""
        return int(np.argmin(np.abs(np.log(self.values / value))))

    def at_end(self, value: float, enough: float) -> bool:
        """Whether a value is the smallest or the largest that was tried, while another would change something, as it
        does below `enough`."""
        return bool(value in (self.values[0], self.values[-1]) and value < enough)


@dataclass(frozen=True, eq=False)
class Surface:
    """One number for every combination of the axes, in their order. error: half the width of its 95 % interval where it
    is estimated from samples, None where it is exact."""

    name: str
    unit: str
    values: Array
    error: Array | None = None

    @property
    def largest_error(self) -> float | None:
        return None if self.error is None else float(self.error.max())


@dataclass(frozen=True, eq=False)
class HitBound:
    """The hit ratio that no cache of the same capacity and lifetime can exceed, over the axes. method: a sentence."""

    values: Array
    method: str


@dataclass(frozen=True)
class Knee:
    """Where the hit ratio's curve over the first axis bends most, at the best setting's place on the other axis."""

    value: float
    hit_ratio: float


@dataclass(frozen=True)
class Priced:
    """A setting replayed with everything that it causes. Costs are USD per 1,000 requests. None: no data.

    violated_intervals: by constraint. unsafe_per_1000: intervals in 1,000 that broke any. safe: as few as the
    constraints allow. policy: of the cache, by name.
    """

    settings: KnobSettings
    usd_per_1000: float
    usd_per_day: float
    usd_by_cause_per_1000: dict[str, float]
    hit_ratio: float
    stale_ratio: float | None
    median_p99_ttft_seconds: float | None
    violated_intervals: dict[str, int]
    unsafe_per_1000: float
    safe: bool
    policy: str = "lru"


@dataclass(frozen=True)
class Saving:
    """What moving from one setting to another saves on the same requests; negative where it costs.

    percent: of the first one's cost, None where that is zero. over_time: the same with 95 % intervals, None where the
    trace holds too little for them.
    """

    usd_per_1000: float
    percent: float | None
    usd_per_day: float
    over_time: Savings | None


@dataclass(frozen=True)
class HeldOut:
    """The same question asked of the first half of the trace, and its answer tried on the second half."""

    settings: KnobSettings
    safe: bool
    saving: Saving
    policy: str = "lru"


@dataclass(frozen=True, eq=False)
class UnderPolicy:
    """What one policy of the cache would do: its surfaces, as of WhatIf, the best setting under it, and what moving
    there from what runs now saves."""

    policy: str
    hit_ratio: Surface
    usd_per_1000: Surface
    knee: Knee | None
    best: Priced
    saving: Saving
    proven: bool


@dataclass(frozen=True)
class Sampled:
    """samples of different keys, each a share of all."""

    samples: int
    share: float


@dataclass(frozen=True)
class Subject:
    """What was asked about. current_given: whether the current setting was named, rather than taken from the defaults.
    footprint_bytes: of all distinct entries. remarks: on how the question was understood. kind: of cache, as the
    configuration names it. keys_read: share of the keys whose requests were run; figures are scaled up from them."""

    trace: str
    source: str
    composed: bool
    assumptions: tuple[str, ...]
    requests: int
    intervals: int
    interval_seconds: float
    span_seconds: float
    footprint_bytes: float
    current_given: bool
    remarks: tuple[str, ...]
    prices: dict[str, Any]
    constraints: dict[str, Any]
    serving: dict[str, Any]
    kind: str = "response"
    keys_read: float = 1.0

    @property
    def hits(self) -> str:
        """What a hit ratio is a share of."""
        return "requests" if self.kind == "response" else "prompts"

    @property
    def finds(self) -> str:
        """What a cache of this kind does with them."""
        return "answer" if self.kind == "response" else "find"


@dataclass(frozen=True, eq=False)
class WhatIf:
    """axes: (cache_size, ttl_seconds). hit_ratio, usd_per_1000: the latter without slow requests. priced: how many
    settings were priced in full; proven: whether that shows `best` to be the cheapest safe one of the grid. policies:
    each that was asked about; the surfaces and the knee are those of the one that `best` has, or of the first."""

    subject: Subject
    axes: tuple[Axis, Axis]
    hit_ratio: Surface
    usd_per_1000: Surface
    bound: HitBound | None
    knee: Knee | None
    current: Priced
    best: Priced
    saving: Saving
    held_out: HeldOut | None
    priced: int
    proven: bool
    sampled: Sampled | None
    notes: tuple[str, ...]
    policies: tuple[UnderPolicy, ...]

    @property
    def names_policies(self) -> bool:
        """Whether a reader has to be told which policy is spoken of."""
        return len(self.policies) > 1 or {self.shown, self.current.policy, self.best.policy} != {"lru"}

    @property
    def shown(self) -> str:
        """Whose the surfaces are."""
        names = [one.policy for one in self.policies]
        return self.best.policy if self.best.policy in names else names[0]

    @property
    def size_unit(self) -> str:
        return self.axes[0].unit

    @property
    def stays(self) -> bool:
        """Whether nothing better than the current setting was found."""
        return (self.best.policy, self.best.settings) == (self.current.policy, self.current.settings)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def amount(value: float, unit: str) -> str:
    """As people read it. unit: of agents.units.readable, or ENTRIES."""
    if unit != ENTRIES:
        return readable(value, unit)
    return f"{value:,.0f} {ENTRIES}" if value >= 10 else f"{value:.3g} {ENTRIES}"


def knee_of(x: Array, y: Array, least: float = 0.0) -> int | None:
    """Index of the point farthest above the straight line from the first to the last, after both axes are scaled to
    [0, 1]; None where no point is more than `least` above it. There a further unit of x brings what it brings on
    average; behind it, less.

    V. Satopää, J. Albrecht, D. Irwin, B. Raghavan, Finding a "kneedle" in a haystack, ICDCS workshops 2011.
    """
    rise, run = float(y[-1] - y[0]), float(x[-1] - x[0])
    if not (rise > 0 and run > 0):
        return None
    above = (y - y[0]) / rise - (x - x[0]) / run
    best = int(np.argmax(above))
    return best if above[best] > least else None
