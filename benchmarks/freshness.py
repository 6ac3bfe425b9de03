"""Lifetimes by schedule where answers change at known times: stale answers and cost, beside fixed lifetimes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t as student

from benchmarks.freshness_traffic import (
    HOUR,
    MEAN_SECONDS,
    PROCESSES,
    PROFILE,
    Array,
    Draw,
    Traffic,
    drawn_changes,
    drawn_traffic,
)
from benchmarks.harness import Benchmark, Goal, Report, Table, main, say
from caches.freshness.change_rate import safe_age_seconds
from caches.freshness.freshness import Freshness, Rule
from caches.freshness.lifetime import Bounded, Bounds, Context, EntryFacts, Schedule
from caches.freshness.load_meter import LoadMeter
from caches.freshness.replay import Asking, Changes, Replayed, Rules, replayed
from caches.freshness.schedules import (
    FIXED,
    NAMES,
    ByHazard,
    ByLoad,
    Fixed,
    schedule_of,
)
from caches.keys.by_name import ByName
from caches.keys.request_key import Partition, RequestKey
from caches.tiers.tier import Answer, Found
from envs.reward import Prices
from traces.catalog import load_trace
from traces.shipped import shipped_traces
from traces.trace import Trace

SHIPPED = "servegen-twitter-14d"
FIXED_HOURS = (0.02, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 336.0)
BUDGETS = (0.02, 0.05, 0.1)
BOUNDS = Bounds(0.01, 10.0)
ASKING = Asking(0.01, 0.1)
SEEDS, QUICK_SEEDS = (0, 1, 2, 3, 4), (0, 1)
QUICK_REQUESTS = 30_000
ENDLESS_BYTES = 1e15
BUDGET_OF_GOAL, BETTER = 0.05, 0.75


@dataclass(frozen=True)
class Known:
    """As `ByHazard`, by the true rate: what measuring could reach at best, without its caution."""

    rate: float
    stale_budget: float

    def lifetime(self, entry: EntryFacts, context: Context) -> float:
        return safe_age_seconds(self.rate, self.stale_budget)


@dataclass(frozen=True)
class Outcome:
    """Of the counted requests. stale: of hits. asked_again: calls beside misses, for each 1,000 requests."""

    hit_ratio: float
    stale: float
    usd: float
    asked_again: float


def measure(quick: bool) -> Report:
    trace = load_trace(shipped_traces()[SHIPPED])
    count = QUICK_REQUESTS if quick else len(trace)
    seeds = QUICK_SEEDS if quick else SEEDS
    tables, goals = [], list[Goal]()
    for name, draw in PROCESSES.items():
        every = [_one(trace, count, draw, seed) for seed in seeds]
        say(f"{name}: {len(seeds)} seeds")
        tables.append(_table(name, every))
        goals += _goals(name, every)
    tables.append(_lookup_table(2_000 if quick else 100_000))
    return Report(_workload(count, seeds), tables, goals)


def _one(trace: Trace, count: int, draw: Draw, seed: int) -> dict[str, tuple[Outcome, float]]:
    """By schedule: what came out, and the stale share of a fixed lifetime with as many hits."""
    rng = np.random.default_rng(seed)
    traffic = drawn_traffic(trace, count, rng)
    changes = drawn_changes(traffic.arrived, draw, rng)
    fixed = {hours: _fixed(traffic, changes, hours * HOUR) for hours in FIXED_HOURS}
    early = replace(traffic, late=~traffic.late)
    best = min(FIXED_HOURS, key=lambda hours: _outcome(early, fixed[hours]).usd)
    curve = [_outcome(traffic, one) for one in fixed.values()]
    found = {f"fixed, {hours:g} h": one for hours, one in zip(FIXED_HOURS, curve, strict=True)}
    found["fixed, cheapest in the first half"] = found[f"fixed, {best:g} h"]
    for name, (schedules, share, asking) in _schedules(traffic).items():
        rules = Rules(best * HOUR, [Bounded(one, BOUNDS) for one in schedules], HOUR, asking, seed)
        arrived = replace(traffic.arrived, share=share)
        found[name] = _outcome(traffic, replayed(arrived, changes, ENDLESS_BYTES, rules))
    return {name: (one, _stale_at(curve, one.hit_ratio)) for name, one in found.items()}


def _schedules(traffic: Traffic) -> dict[str, tuple[Sequence[Schedule], Array | None, Asking]]:
    every, nothing = len(MEAN_SECONDS), Asking()
    made: dict[str, tuple[Sequence[Schedule], Array | None, Asking]] = {
        "load": ([ByLoad()] * every, None, nothing),
        "quality": ([Fixed()] * every, traffic.quality, nothing),
        "sampling": ([Fixed()] * every, traffic.sampling, nothing),
    }
    for budget in BUDGETS:
        made[f"hazard, budget {budget:g}"] = ([ByHazard(budget)] * every, None, ASKING)
    for budget in BUDGETS:
        known = [Known(0.0 if mean is None else 1.0 / mean, budget) for mean in MEAN_SECONDS]
        made[f"true rates, budget {budget:g}"] = (known, None, nothing)
    return made


def _fixed(traffic: Traffic, changes: Changes, ttl_seconds: float) -> Replayed:
    rules = Rules(ttl_seconds, [Bounded(Fixed(), Bounds(1.0, 1.0))] * len(MEAN_SECONDS), 1e9)
    return replayed(traffic.arrived, changes, ENDLESS_BYTES, rules)


def _outcome(traffic: Traffic, found: Replayed) -> Outcome:
    prices, late, requests = Prices(), traffic.late, int(traffic.late.sum())
    again = late & found.asked_again
    seconds = float(traffic.gpu_seconds[late & ~found.hit].sum() + traffic.gpu_seconds[again].sum())
    hits, stale = int((late & found.hit).sum()), int((late & found.stale).sum())
    usd = seconds * prices.gpu_usd_per_hour / HOUR + stale * prices.stale_answer_usd
    return Outcome(
        hits / requests, stale / max(hits, 1), 1_000.0 * usd / requests, 1_000.0 * int(again.sum()) / requests
    )


def _stale_at(curve: Sequence[Outcome], hit_ratio: float) -> float:
    """Of a fixed lifetime with this hit ratio, between those that were replayed; NaN outside."""
    ratios = [one.hit_ratio for one in curve]
    return float(np.interp(hit_ratio, ratios, [one.stale for one in curve], np.nan, np.nan))


# A lookup


def _lookup_table(lookups: int) -> Table:
    """What a stack pays for asking how long its hit may be served, in the best of five rounds."""
    rules = {name: Rule(name, Bounded(schedule_of(name), BOUNDS)) for name in NAMES}
    freshness = Freshness(ByName(rules, rules[FIXED]), LoadMeter())
    digest, body = bytes(32), b'{"choices": [{"logprobs": null}]}'
    found, rows = Found(Answer(body, 1e9)), list[list[str | float]]()
    for name in NAMES:
        key = RequestKey(Partition("a", name), digest, digest)
        freshness.asked(key, 0.5, 0.9, 1e9)
        best = min(_seconds(lambda key=key: freshness.lifetime(key, found, HOUR, 1e9), lookups) for _ in range(5))
        rows.append([name, best * 1e6])
    return Table("Microseconds for each hit", ("schedule", "us"), rows)


def _seconds(work: Callable[[], object], times: int) -> float:
    """Processor time of one call."""
    began = time.thread_time()
    for _ in range(times):
        work()
    return (time.thread_time() - began) / times


# Text


def _table(name: str, every: Sequence[dict[str, tuple[Outcome, float]]]) -> Table:
    header = (
        "schedule",
        "hit ratio",
        "stale of hits",
        "fixed with as many hits",
        "ratio",
        "USD per 1,000",
        "asked again",
    )
    rows = []
    for schedule in every[0]:
        outcomes = [one[schedule][0] for one in every]
        fixed = [one[schedule][1] for one in every]
        rows.append(
            [
                schedule,
                statistics.mean(one.hit_ratio for one in outcomes),
                _shown([one.stale for one in outcomes]),
                statistics.mean(fixed),
                _shown(_ratios(every, schedule)),
                _shown([one.usd for one in outcomes]),
                statistics.mean(one.asked_again for one in outcomes),
            ]
        )
    note = "With 95 % intervals over the seeds. asked again: calls for each 1,000 requests, which the cost includes."
    return Table(f"{name[0].upper()}{name[1:]}", header, rows, note)


def _ratios(every: Sequence[dict[str, tuple[Outcome, float]]], schedule: str) -> list[float]:
    """Stale answers beside those of a fixed lifetime with as many hits."""
    return [one[schedule][0].stale / one[schedule][1] if one[schedule][1] else np.nan for one in every]


def _goals(name: str, every: Sequence[dict[str, tuple[Outcome, float]]]) -> list[Goal]:
    schedule = f"hazard, budget {BUDGET_OF_GOAL:g}"
    stale = [one[schedule][0].stale for one in every]
    ratio, usd = _ratios(every, schedule), [one[schedule][0].usd for one in every]
    best = [one["fixed, cheapest in the first half"][0].usd for one in every]
    saved = [1.0 - one / other for one, other in zip(usd, best, strict=True)]
    return [
        Goal(
            f"{name}: measured hazard keeps a budget of {BUDGET_OF_GOAL:g}",
            _shown(stale) or "not known",
            max(stale) <= BUDGET_OF_GOAL,
        ),
        Goal(
            f"{name}: it has at most {BETTER:g} of the stale answers of a fixed lifetime with as many hits",
            _shown(ratio) or "not known",
            None if np.isnan(ratio).any() else max(ratio) <= BETTER,
        ),
        Goal(
            f"{name}: it is cheaper than the cheapest fixed lifetime, calls included",
            f"{_shown([100.0 * one for one in saved])} % saved",
            _interval(saved)[0] > 0.0,
        ),
    ]


def _shown(values: Sequence[float]) -> str | None:
    """None where a value is not known."""
    if np.isnan(values).any():
        return None
    low, high = _interval(values)
    return f"{statistics.mean(values):.4g} [{low:.4g}, {high:.4g}]"


def _interval(values: Sequence[float]) -> tuple[float, float]:
    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1)) / len(values) ** 0.5
    reach = float(student.ppf(0.975, len(values) - 1)) * spread
    return mean - reach, mean + reach


def _workload(count: int, seeds: Sequence[int]) -> list[str]:
    means = ", ".join("never" if mean is None else f"every {mean / HOUR:g} h" for mean in MEAN_SECONDS)
    prices = Prices()
    return [
        f"The shipped trace {SHIPPED} (ServeGen rates × Twitter keys), {count:,} requests; each key in one of "
        f"{len(MEAN_SECONDS)} namespaces by lot, whose answers change {means} on average. The second half of the time "
        "counts. No entry leaves for space, so lifetimes alone decide.",
        f"A miss and a call that asks again cost GPU seconds of {PROFILE} at USD {prices.gpu_usd_per_hour:g} an hour, "
        f"a stale answer USD {prices.stale_answer_usd:g}; memory is left out.",
        "Base of the schedules: the fixed lifetime that was cheapest in the first half, which is what a what-if of it "
        f"says; bounds {BOUNDS.shortest_share:g} and {BOUNDS.longest_share:g} times that. Asked again: a share of "
        f"{ASKING.share:g} of hits, {ASKING.per_second:g} a second at most; in a replay that renews nothing. Load is "
        "counted over an hour; in 2 % of the hours half of the calls fail.",
        "Entropy (0 to 4 bits), log-probability (mean -0.5) and temperature (0.7 for three keys in ten, else 0) are "
        "drawn by key, and say nothing of when an answer changes: no public trace has them beside changes.",
        f"Seeds {seeds[0]} to {seeds[-1]}: of namespaces, changes and draws.",
    ]


if __name__ == "__main__":
    main(Benchmark("freshness", "Freshness: lifetimes by schedule", ("setpoint", "numpy", "scipy"), measure))
