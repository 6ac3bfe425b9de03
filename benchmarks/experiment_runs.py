"""Experiments on replayed traffic for benchmarks/experiments.py: a deployment, its arms, what would be recorded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.experiment_ghosts import arms_told, past_told
from benchmarks.workloads import Workload, problem_for
from caches.knobs import KnobSettings
from caches.target import Arm, Histogram, Split
from envs.interval import NAMES, total_usd
from envs.reward import CAUSES
from envs.world import World
from tuner.experiment import choose_salt
from tuner.judging.shadow_arms import BOUNDS, ArmRows, ShadowArm, key_costs, key_points, keys_of, sampled
from tuner.keys.past import PastTraffic
from tuner.records import IntervalRecord

Array = NDArray[Any]
Records = tuple[list[IntervalRecord], list[IntervalRecord]]
NO_MATTER = KnobSettings(1.0, 1.0, 0.0)  # settings in records are not read by the analysis


@dataclass(frozen=True)
class Noise:
    """What a live measurement adds, by interval. cost: relative standard deviation of an arm's cost, each its own.
    latency: of the backend's times, the same in both arms, as a logarithm."""

    cost: float = 0.01
    latency: float = 0.05


class Deployment:
    """Recorded traffic in front of a cache under fixed settings, the control's. past: intervals that were seen before
    any experiment, from which salts and the weight of keys are known. stop: where experiments end."""

    def __init__(self, workload: Workload, intervals: int | None = None, past_share: float = 0.2) -> None:
        self.world = World(problem_for(workload))
        self.control = self.world.problem.knobs.default()
        self.past = range(round(past_share * len(self.world)))
        self.stop = min(len(self.world), intervals or len(self.world))

    @cached_property
    def weights(self) -> Array:
        """Of the past, shape (keys, 2): requests and cost of each key."""
        problem = self.world.problem
        edge = self.world.timeline.edges[self.past.stop]
        requests = np.bincount(problem.trace.key[:edge], minlength=problem.trace.num_keys).astype(float)
        half = range(self.past.stop // 4, self.past.stop)  # the cache is empty at first
        return np.stack((requests, key_costs(self.world, self.control, half)), axis=1)

    @cached_property
    def known(self) -> PastTraffic:
        """What the daemon would know of single keys when the past is over."""
        return past_told(self.world, self.past.stop)

    def told(self, salt: str, share: float) -> tuple[Array, float]:
        """As benchmarks.experiment_ghosts.arms_told."""
        return arms_told(self.world, Split(salt, share), self.stop)

    def salt(self, seed: int, balanced: bool, candidates: int = 40) -> str:
        if not balanced:
            return f"random-{seed}"
        heavy = np.argsort(-self.weights.sum(axis=1))[:50_000]
        keys = self.world.problem.trace.num_keys
        return choose_salt(lambda salt: key_points(keys, salt)[heavy], self.weights[heavy], seed, candidates)[0]

    def arms(self, salt: str, share: float) -> tuple[ShadowArm, ShadowArm]:
        return self._arm(salt, share, False), self._arm(salt, share, True)

    def ghosts(self, salt: str, share: float, rate: float, seed: int) -> tuple[ShadowArm, ShadowArm]:
        """Of a sample of each arm's keys, in miniature."""
        points = key_points(self.world.problem.trace.num_keys, salt)
        found = []
        for treatment in (False, True):
            keys = sampled(self.world, keys_of(points, Split(salt, share), treatment), rate, seed)
            part = share if treatment else 1.0 - share
            found.append(ShadowArm(self.world, keys, part * rate))
        return found[0], found[1]

    def _arm(self, salt: str, share: float, treatment: bool) -> ShadowArm:
        points = key_points(self.world.problem.trace.num_keys, salt)
        keys = keys_of(points, Split(salt, share), treatment)
        return ShadowArm(self.world, keys, share if treatment else 1.0 - share)


@dataclass(frozen=True, eq=False)
class Run:
    """Both arms from the trace's beginning on. costs, reference_usd: (intervals, 2), USD; the latter what ghosts say,
    None without any."""

    arms: tuple[ArmRows, ArmRows]
    costs: Array
    reference_usd: Array | None = None
    share: float = 0.5

    def records(self, stretch: range, seed: int, noise: Noise = Noise(), saving: Array | None = None) -> Records:
        """As the ledger has them, measured with noise. saving: what is taken off the costs, (intervals, 2)."""
        factors = np.exp(np.random.default_rng(seed).normal(0.0, noise.cost, (len(stretch), 2)))
        found: tuple[list[IntervalRecord], list[IntervalRecord]] = ([], [])
        for at, index in enumerate(stretch):
            for arm, name in enumerate((Arm.CONTROL, Arm.TREATMENT)):
                times = float(factors[at, arm]) * (1.0 if saving is None else 1.0 - float(saving[index, arm]))
                found[arm].append(self._record(index, arm, name, times))
        return found

    def _record(self, index: int, arm: int, name: Arm, times: float) -> IntervalRecord:
        rows = self.arms[arm]
        values = zip(NAMES, rows.rows[index].tolist(), strict=True)
        window: dict[str, float | None] = {key: None if value != value else value for key, value in values}
        window |= {f"{cause}_usd": (window[f"{cause}_usd"] or 0.0) * times for cause in CAUSES}
        window["errors"] = 0.0
        return IntervalRecord(
            "replay",
            index,
            name,
            float(index),
            float(index + 1),
            NO_MATTER,
            self.share if name is Arm.TREATMENT else 1.0 - self.share,
            window,
            reference_usd=None if self.reference_usd is None else float(self.reference_usd[index, arm]),
            ttft_seconds=Histogram(BOUNDS, tuple(rows.ttft[index].tolist()), 0.0),
            latency_seconds=Histogram(BOUNDS, tuple(rows.latency[index].tolist()), 0.0),
        )


def run_of(arms: tuple[ArmRows, ArmRows]) -> Run:
    return Run(arms, np.stack([total_usd(arm.rows) for arm in arms], axis=1))


def slowdowns(intervals: int, seed: int, noise: Noise = Noise()) -> Array:
    """What the backend's times are multiplied by, (intervals,)."""
    return np.exp(np.random.default_rng(seed).normal(0.0, noise.latency, intervals))
