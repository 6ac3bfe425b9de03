"""From a surface that leaves out waiting to the cheapest safe setting: settings are priced in full, cheapest first.

The surface's cost leaves out slow requests, which only add to it, so it is a lower bound. Settings are replayed with
everything that they cause in the order of that bound, and once the next one's bound is no less than the best full price
found, no setting of the grid can be cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.knobs import KnobSettings
from envs.interval import COSTS, column, total_usd, unsafe, violations
from envs.reward import CAUSES
from envs.world import STATIC_BATCH, Progress, World
from tuner.whatif_result import Priced
from tuner.whatif_sample import adjusted, expected_reads

Array = NDArray[Any]

EXACT_REQUEST_REPLAYS = 200_000_000  # requests x settings that are priced in full, at most
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, eq=False)
class Grid:
    """settings: of a grid, n of them. usd: a lower bound on what each costs in each interval, (n, intervals). stale:
    which intervals break the limit of outdated answers, (n, intervals). compute: GPU seconds of misses, (n, intervals).
    exact: whether all this is known rather than estimated."""

    settings: tuple[KnobSettings, ...]
    usd: Array
    stale: Array
    compute: Array
    exact: bool


@dataclass(frozen=True)
class Choice:
    """settings: the cheapest safe ones, or, where none was found to be safe, the ones that break the constraints least
    often (`safe` False). proven: whether nothing of the grid can be cheaper and safe."""

    settings: KnobSettings
    safe: bool
    proven: bool


@dataclass
class Pricer:
    """Prices settings in full on one world, each once."""

    world: World
    progress: Progress | None = None
    rows: dict[KnobSettings, Array] = field(default_factory=dict)

    def price(self, settings: Sequence[KnobSettings]) -> None:
        new = [one for one in dict.fromkeys(settings) if one not in self.rows]
        if new:
            found = self.world.replay_static(new, len(self.world))
            self.rows |= zip(new, adjusted(found, expected_reads(self.world)), strict=True)
            if self.progress is not None:
                self.progress(len(self.rows), self.most)

    @property
    def most(self) -> int:
        """How many settings may be priced."""
        return max(EXACT_REQUEST_REPLAYS // len(self.world.problem.trace), 3 * STATIC_BATCH)

    @property
    def exhausted(self) -> bool:
        return len(self.rows) >= self.most

    def cost(self, settings: KnobSettings, span: slice) -> float:
        return float(total_usd(self.rows[settings][span]).sum())

    def unsafe_per_1000(self, settings: KnobSettings, span: slice) -> float:
        return 1000.0 * float(unsafe(self.rows[settings][span], self.world.problem.constraints).mean())

    def safe(self, settings: KnobSettings, span: slice) -> bool:
        return self.unsafe_per_1000(settings, span) <= self.world.problem.constraints.max_unsafe_per_1000

    def priced(self, settings: KnobSettings) -> Priced:
        """A setting that was priced, over the whole trace."""
        rows, whole, problem = self.rows[settings], slice(None), self.world.problem
        requests, hits = column(rows, "requests").sum(), column(rows, "hits").sum()
        late = column(rows, "p99_ttft_seconds")
        causes = 1000.0 * rows[:, COSTS].sum(axis=0) / requests
        usd = self.cost(settings, whole)
        return Priced(
            settings=settings,
            usd_per_1000=1000.0 * usd / float(requests),
            usd_per_day=usd / (len(rows) * problem.interval_seconds) * DAY_SECONDS,
            usd_by_cause_per_1000=dict(zip(CAUSES, causes.tolist(), strict=True)),
            hit_ratio=float(hits / requests),
            stale_ratio=float(column(rows, "stale_answers").sum() / hits) if hits else None,
            median_p99_ttft_seconds=float(np.nanmedian(late)) if np.isfinite(late).any() else None,
            violated_intervals={name: int(w.sum()) for name, w in violations(rows, problem.constraints).items()},
            unsafe_per_1000=self.unsafe_per_1000(settings, whole),
            safe=self.safe(settings, whole),
            policy=str(problem.policy),
        )


def cheapest(pricer: Pricer, grid: Grid, current: KnobSettings, span: slice) -> Choice:
    """The cheapest safe setting of the grid or the current one, over the intervals of `span`.

    Prices at most `pricer.most` settings in all. Where none of them is safe, those with the least work for the backend
    are tried as well.
    """
    bound, limit = grid.usd[:, span].sum(axis=1), pricer.world.problem.constraints.max_unsafe_per_1000
    hopeless = 1000.0 * grid.stale[:, span].mean(axis=1) > limit
    far = [_distance(one, current) for one in grid.settings]
    order = [int(index) for index in np.lexsort((far, bound)) if not hopeless[index]]
    pricer.price([current])
    proven = False
    for start in range(0, len(order), STATIC_BATCH):
        batch = order[start : start + STATIC_BATCH]
        found = _cheapest_safe(pricer, current, span)
        if found is not None and bound[batch[0]] >= pricer.cost(found, span):
            proven = True
            break
        if pricer.exhausted:
            break
        pricer.price([grid.settings[index] for index in batch])
    else:
        proven = True  # every one that may be safe was priced
    found = _cheapest_safe(pricer, current, span)
    if found is None:
        lightest = sorted(order or range(len(grid.settings)), key=lambda index: float(grid.compute[index, span].sum()))
        pricer.price([grid.settings[index] for index in lightest[:STATIC_BATCH]])
        found = _cheapest_safe(pricer, current, span)
    if found is not None:
        return Choice(found, True, proven and grid.exact)
    least = min(pricer.rows, key=lambda one: (pricer.unsafe_per_1000(one, span), pricer.cost(one, span)))
    return Choice(least, False, proven and grid.exact)


def _cheapest_safe(pricer: Pricer, current: KnobSettings, span: slice) -> KnobSettings | None:
    """Of equals the one nearest to what runs now."""
    safe = [one for one in pricer.rows if pricer.safe(one, span)]
    return min(safe, key=lambda one: (pricer.cost(one, span), _distance(one, current))) if safe else None


def _distance(one: KnobSettings, other: KnobSettings) -> float:
    """How far apart two settings are, as ratios."""
    sizes, ttls = one.cache_size / other.cache_size, one.ttl_seconds / other.ttl_seconds
    return abs(math.log(sizes)) + abs(math.log(ttls))
