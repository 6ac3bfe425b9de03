"""What a control tick waits for: the grid's ghost caches on 100,000 sampled keys and those of an experiment's arms on
all 200,000, closed and looked at.

Requests are fed as they come between ticks; what is left for the tick are those of the last seconds, and the interval's
accounts. Clearing is work between ticks too, and shown beside.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Benchmark, Cell, Report, Table, at_most, main, say
from caches.shadow.sampling import mixed
from caches.target import Plan, Split
from envs.ghost_lanes import Terms
from envs.journal import Batch
from envs.reward import Constraints, Prices, tariff_of
from envs.serving import Serving, backend_of, load_profile
from tuner.config import TunerConfig
from tuner.keys.ghosts import LiveGhosts
from tuner.keys.stream import Pending
from tuner.keys.view import GhostRules, Viewpoint

Array = NDArray[Any]

INTERVAL_SECONDS, SETTLE_SECONDS, RATE = 300.0, 20.0, 0.5
GOAL_MS = 200.0


@dataclass(frozen=True)
class Load:
    """keys: that the grid follows. requests: of these in an interval. The arms follow as many times more as the rate
    says."""

    keys: int
    requests: int


LOADS = (Load(25_000, 10_000), Load(100_000, 10_000), Load(100_000, 25_000))
QUICK = (Load(2_000, 1_000),)


class Traffic:
    """Popularity falls as the 0.8th power of the rank. Half of the keys are the treatment arm's."""

    def __init__(self, load: Load) -> None:
        self._rng, keys = np.random.default_rng(0), round(load.keys / RATE)
        weight = np.arange(1, keys + 1) ** -0.8
        self._below = np.cumsum(weight / weight.sum())
        self._ids = mixed(np.arange(keys, dtype=np.uint64), 1)
        self._treatment = self._ids % np.uint64(2) == 1
        self.sizes = self._rng.integers(500, 8_000, keys).astype(np.int32)

    def interval(self, index: int, requests: int) -> Batch:
        rank = np.searchsorted(self._below, self._rng.random(requests)).clip(0, len(self._ids) - 1)
        return self._of(rank, INTERVAL_SECONDS * index)

    def all_keys(self, index: int) -> Batch:
        """Each key once."""
        return self._of(self._rng.permutation(len(self._ids)), INTERVAL_SECONDS * index)

    def _of(self, rank: Array, begins: float) -> Batch:
        count = len(rank)
        return Batch(
            self._ids[rank],
            begins + np.sort(self._rng.random(count)) * INTERVAL_SECONDS,
            self.sizes[rank],
            np.full(count, np.nan, np.float32),
            self._rng.integers(100, 2_000, count).astype(np.int32),
            self._rng.integers(10, 400, count).astype(np.int32),
            self._treatment[rank],
        )


def viewpoint_of(footprint_bytes: float) -> Viewpoint:
    """Default ranges; the reference is the default."""
    knobs = TunerConfig().knobs.space(footprint_bytes)
    return Viewpoint(knobs, knobs.default())


def ghosts_of(view: Viewpoint) -> LiveGhosts:
    backend = backend_of(load_profile("qwen2.5-7b-a100"), Serving(replicas=4))
    terms = Terms(backend, tariff_of(Prices()), 2.0, 1_500.0, False, 128, 0.7)
    return LiveGhosts(
        GhostRules(terms, Constraints(), 0, 1_020, 4.0, RATE, 10**9, 10**9, most_arm_requests=10**9), [view]
    )


@dataclass(frozen=True)
class Turn:
    """One interval in parts, each (ms on the clock, ms of the processor): what was fed while nobody waited, what was
    cleared then, and what the tick waited for: the rest and the accounts, and looking at them."""

    fed: Array
    cleared: Array
    closed: Array
    looked: Array

    @property
    def tick(self) -> Array:
        return np.asarray(self.closed + self.looked)


def turn(ghosts: LiveGhosts, view: Viewpoint, batch: Batch, index: int) -> Turn:
    pending, begins, ends = Pending(), INTERVAL_SECONDS * index, INTERVAL_SECONDS * (index + 1)
    pending.add(batch)
    plan = Plan(Split("salt", 0.5), view.reference, view.reference)
    early, late = pending.take(ends - SETTLE_SECONDS), pending.take(ends)
    marks = [clocks()]
    ghosts.begin(begins, INTERVAL_SECONDS)
    ghosts.feed(early)
    marks.append(clocks())
    ghosts.tend(ends)
    marks.append(clocks())
    ghosts.feed(late)
    ghosts.close(plan, dict.fromkeys(("champion", "challenger"), view.reference))
    marks.append(clocks())
    ghosts.seen(view)
    ghosts.errors(view)
    marks.append(clocks())
    return Turn(*(1e3 * np.diff(marks, axis=0)))


def clocks() -> tuple[float, float]:
    return time.perf_counter(), time.thread_time()


def measured(load: Load, turns: int) -> tuple[LiveGhosts, list[Turn], int]:
    """After every key was seen once and intervals enough to fill the caches; ghosts' memory in MiB as the third."""
    before = getrusage(RUSAGE_SELF).ru_maxrss
    traffic = Traffic(load)
    view = viewpoint_of(2.0 * float(traffic.sizes.sum()))
    ghosts = ghosts_of(view)
    turn(ghosts, view, traffic.all_keys(0), 0)
    for index in range(1, 6):
        turn(ghosts, view, traffic.interval(index, round(load.requests / RATE)), index)
    found = [
        turn(ghosts, view, traffic.interval(index, round(load.requests / RATE)), index) for index in range(6, 6 + turns)
    ]
    return ghosts, found, (getrusage(RUSAGE_SELF).ru_maxrss - before) // 1024


def measure(quick: bool) -> Report:
    rows: list[list[Cell]] = []
    goals = []
    for load in QUICK if quick else LOADS:
        say(f"{load.keys:,} keys")
        ghosts, turns, mib = measured(load, 3 if quick else 100)
        tick = np.percentile([one.tick for one in turns], (50, 99), axis=0)
        assert ghosts.last is not None
        fed, looked = (float(np.median([getattr(one, part)[1] for one in turns])) for part in ("fed", "looked"))
        rows.append(
            [
                ghosts.last.keys,
                ghosts.last.arm_keys,
                load.requests,
                *map(float, tick.T.ravel()),
                looked,
                fed,
                max(float(one.cleared[1]) for one in turns),
                mib,
            ]
        )
        goals.append(at_most(f"{load.keys:,} keys, {load.requests:,} requests: p99", GOAL_MS, float(tick[1, 0]), "ms"))
    facts = [
        f"{len(viewpoint_of(1e9).settings())} fixed settings (reference, 12 neighbours, the whole grid) follow "
        f"{RATE:.0%} of the keys; both arms of an experiment, and what its two policies wanted, follow all, and are "
        f"told their settings at the tick. One thread; intervals of {INTERVAL_SECONDS:g} s, of which the last "
        f"{SETTLE_SECONDS:g} s are left for the tick.",
        "Popularity falls as the 0.8th power of the rank; answers of 500 to 8,000 bytes; default settings and prices, "
        "four replicas. CPU: milliseconds of the processor, which depend less on what else the machine does. "
        "MiB: by how much the process grew, in the order of the rows.",
    ]
    header = (
        *("keys of the grid", "of the arms", "requests of the grid", "tick p50", "tick p99", "its CPU p50"),
        *("its CPU p99", "of which looking", "fed before, CPU", "longest clearing, CPU", "MiB"),
    )
    return Report(facts, [Table("Ghosts at a tick, ms", header, rows)], goals)


BENCHMARK = Benchmark("ticks", "Ticks", ("numpy", "numba"), measure)

if __name__ == "__main__":
    main(BENCHMARK)
