"""What the benchmark of techniques says: differences to all off with their intervals, and what follows from them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from benchmarks.harness import Cell, Goal, Table, at_most
from benchmarks.technique_catalog import ALL, OFF, SHIPPED, TOGETHER, Technique
from benchmarks.technique_runs import Outcome

Runs = Mapping[str, Mapping[str, Sequence[Outcome]]]  # by workload, then technique; one for each seed
Value = Callable[[Outcome], float]
COLUMNS: Mapping[str, Value] = {
    "hits, %": lambda one: 100.0 * one.hit_ratio,
    "wrong, %": lambda one: 100.0 * one.wrong,
    "stale, %": lambda one: 100.0 * one.stale,
    "failed, %": lambda one: 100.0 * one.failed,
    "instead, %": lambda one: 100.0 * one.instead,
    "P99, s": lambda one: one.p99_seconds,
    "USD per 1,000": lambda one: one.usd,
    "of it GPU": lambda one: one.gpu_usd,
    "CPU, µs": lambda one: one.cpu_micros,
}
SAME = 1e-9
WRONG_BUDGET, FAILED_SHARE, CPU_TIMES = 0.02, 0.5, 1.5


@dataclass(frozen=True)
class Difference:
    """Of pairs of runs of one seed: the mean, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Difference:
        mean, spread = float(np.mean(values)), float(np.std(values, ddof=1)) / len(values) ** 0.5
        reach = float(student.ppf(0.975, len(values) - 1)) * spread
        return cls(mean, mean - reach, mean + reach)

    @property
    def is_below(self) -> bool:
        return self.high < -SAME

    @property
    def is_above(self) -> bool:
        return self.low > SAME

    @property
    def shown(self) -> str:
        if max(abs(self.low), abs(self.high)) <= SAME:
            return "0"
        return f"{self.mean:+.3g} [{self.low:.3g}, {self.high:.3g}]"


def difference(runs: Runs, workload: str, technique: str, value: Value) -> Difference:
    pairs = zip(runs[workload][technique], runs[workload][OFF], strict=True)
    return Difference.of([value(one) - value(off) for one, off in pairs])


def cost_percent(runs: Runs, workload: str, technique: str) -> list[float]:
    """Of each seed, by how much it costs more than all off."""
    pairs = zip(runs[workload][technique], runs[workload][OFF], strict=True)
    return [100.0 * (one.usd / off.usd - 1.0) for one, off in pairs]


def ran_on(runs: Runs, technique: str) -> list[str]:
    return [workload for workload, by in runs.items() if technique in by]


def pooled_cost(runs: Runs, technique: str) -> Difference:
    """The mean over the workloads that it ran on, each with the same weight."""
    every = [cost_percent(runs, workload, technique) for workload in ran_on(runs, technique)]
    return Difference.of([statistics.mean(of_seed) for of_seed in zip(*every, strict=True)])


def signs(runs: Runs, technique: str, value: Value) -> tuple[list[str], list[str]]:
    """Workloads in which the interval lies below 0, and above."""
    found = {workload: difference(runs, workload, technique, value) for workload in ran_on(runs, technique)}
    return [name for name, one in found.items() if one.is_below], [name for name, one in found.items() if one.is_above]


def pays(runs: Runs, technique: str) -> bool:
    """Cheaper than all off in one workload at least, and dearer in none."""
    cheaper, dearer = signs(runs, technique, lambda one: one.usd)
    return bool(cheaper) and not dearer


def picked(runs: Runs, every: Sequence[Technique]) -> list[Technique]:
    """Of each family the one that saves most of those that pay, also where its members do different things: what is
    together shall not be chosen piece by piece."""
    best: dict[str, Technique] = {}
    for one in every:
        if one.family == TOGETHER or not pays(runs, one.name):
            continue
        known = best.get(one.family)
        if known is None or pooled_cost(runs, one.name).mean < pooled_cost(runs, known.name).mean:
            best[one.family] = one
    return list(best.values())


# Tables


def workload_table(runs: Runs, workload: str, title: str) -> Table:
    rows: list[list[Cell]] = []
    for technique, outcomes in runs[workload].items():
        if technique == OFF:
            rows.append([OFF, *(statistics.mean(map(value, outcomes)) for value in COLUMNS.values())])
        else:
            rows.append([technique, *(difference(runs, workload, technique, one).shown for one in COLUMNS.values())])
    note = "First row: means. All others: differences to it, with the 95 % interval of the pairs of one seed."
    return Table(title, ("technique", *COLUMNS), rows, note)


def verdict_table(runs: Runs, every: Sequence[Technique]) -> Table:
    rows = [_verdict(runs, one.name) for one in every if one.name != OFF]
    note = (
        "Cheaper, dearer, less, more: workloads in which the 95 % interval of the difference to all off lies on that "
        "side of 0. Pays: cheaper in one at least and dearer in none. Cost: mean over the workloads that it ran on, "
        "with the same weight each. Nothing is corrected for the number of comparisons: of 20 that differ in nothing "
        "one seems to."
    )
    header = ("technique", "cost, %", "cheaper", "dearer", "wrong + stale", "failed", "P99", "CPU, µs", "verdict")
    return Table("What follows", header, rows, note)


def _verdict(runs: Runs, technique: str) -> list[Cell]:
    cheaper, dearer = signs(runs, technique, lambda one: one.usd)
    cpu = [
        [one.cpu_micros - off.cpu_micros for one, off in zip(by[technique], by[OFF], strict=True)]
        for by in runs.values()
        if technique in by
    ]
    said = {(True, False): "pays", (False, True): "costs", (True, True): "depends", (False, False): "no difference"}
    return [
        technique,
        pooled_cost(runs, technique).shown,
        ", ".join(cheaper) or "-",
        ", ".join(dearer) or "-",
        _moves(runs, technique, lambda one: one.wrong + one.stale),
        _moves(runs, technique, lambda one: one.failed),
        _moves(runs, technique, lambda one: one.p99_seconds),
        Difference.of([statistics.mean(of_seed) for of_seed in zip(*cpu, strict=True)]).shown,
        said[bool(cheaper), bool(dearer)],
    ]


def _moves(runs: Runs, technique: str, value: Value) -> str:
    less, more = signs(runs, technique, value)
    parts = [f"less: {', '.join(less)}"] * bool(less) + [f"more: {', '.join(more)}"] * bool(more)
    return "; ".join(parts) or "-"


# Goals


def goals(runs: Runs) -> list[Goal]:
    made = []
    for workload in runs:
        cost = Difference.of(cost_percent(runs, workload, ALL))
        made.append(Goal(f"{workload}, {ALL}: costs at most as much as {OFF}", f"{cost.shown} %", cost.mean <= 0.0))
    wrong = max(statistics.mean(one.wrong for one in by[ALL]) for by in runs.values())
    made.append(at_most(f"{ALL}: wrong answers, where most", 100.0 * WRONG_BUDGET, 100.0 * wrong, "%"))
    shipped = max(statistics.mean(one.wrong for one in by[SHIPPED]) for by in runs.values())
    made.append(at_most(f"{SHIPPED}: wrong answers, where most", 100.0 * WRONG_BUDGET, 100.0 * shipped, "%"))
    failed = {name: statistics.mean(one.failed for one in runs["troubled"][name]) for name in (ALL, OFF)}
    share = failed[ALL] / failed[OFF] if failed[OFF] else float("inf")
    made.append(at_most(f"troubled, {ALL}: failed requests", FAILED_SHARE, share, f"of those of {OFF}"))
    pairs = zip(runs["crowded"][ALL], runs["crowded"][OFF], strict=True)
    times = statistics.mean(one.cpu_micros / off.cpu_micros for one, off in pairs)
    made.append(at_most(f"crowded, {ALL}: processor time", CPU_TIMES, times, f"of that of {OFF}"))
    return made
