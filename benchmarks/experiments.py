"""Experiments on replayed traffic: how far arms differ by luck, how often an experiment is wrong, how soon it is right.

One salt of one workload is one task; two processes do them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeVar

import numpy as np

from benchmarks.experiment_parts import (
    CHEAPER,
    DAEMON,
    GHOSTS,
    LEAD_IN,
    NOTHING,
    SHAPES,
    SLOWER,
    TREATED,
    Called,
    Foretold,
    Spreads,
    Truth,
    calls,
    foretold,
    spreads,
)
from benchmarks.experiment_runs import Deployment, Noise
from benchmarks.harness import Benchmark, Goal, Report, Table, at_least, at_most, main, say, shown
from benchmarks.workloads import COMPOSED, EVENTS, TWITTER_ALONE, WORKERS, Workload
from caches.knobs import KnobSettings
from tuner.records import Outcome

# Salts by workload: for spreads; for false calls; of these, with rivals; for power; and runs foretold.
FULL = {"twitter": (8, 64, 16, 16, 100), "servegen-twitter": (8, 68, 10, 10, 100)}
QUICK_INTERVALS = 680
QUICK = {"events": (1, 1, 1, 1, 2)}
CHANGES = ((2.0, 1.0), (0.5, 1.0), (1.0, 0.5), (0.5, 0.5), (1.0, 0.25))  # times the control's size and lifetime
METHODS = (
    "as designed",
    "ghosts see 10 % of the keys",
    "no ghosts",
    "no ghosts, swap every 6",
    "cost, t-test at the end",
    "cost, t-test at every look",
    "cost, threshold rule",
    "P99, t-test at the end",
    "P99, t-test at every look",
    "P99, threshold rule, 5 % tolerated",
    "P99, sequential, requests taken as independent",
)
DEPLOYMENTS: dict[str, Deployment] = {}  # inherited by the processes, which are forked

Result = TypeVar("Result")
Calls = dict[str, list[Called]]


def _spreads(name: str, seed: int) -> Spreads:
    return spreads(DEPLOYMENTS[name], seed)


def _calls(truth: Truth, every: int, whole: int, name: str, seed: int) -> Calls:
    return calls(DEPLOYMENTS[name], seed, truth, every, seed < whole)


def _foretold(name: str, seed: int) -> Foretold:
    deployment = DEPLOYMENTS[name]
    first, last = deployment.past.stop, deployment.stop - LEAD_IN - TREATED
    size, lifetime = CHANGES[seed % len(CHANGES)]
    control = deployment.control
    treatment = KnobSettings(control.cache_size * size, control.ttl_seconds * lifetime, control.warmup_ratio)
    return foretold(deployment, seed, first + (7919 * seed) % (last - first + 1), treatment)


def _shared(work: Callable[[str, int], Result], tasks: Sequence[tuple[str, int]]) -> list[Result]:
    with ProcessPoolExecutor(WORKERS, get_context("fork")) as pool:
        return list(pool.map(work, *zip(*tasks, strict=True)))


def _gathered(found: Sequence[dict[Any, list[Any]]]) -> dict[Any, list[Any]]:
    together: dict[Any, list[Any]] = {}
    for one in found:
        for name, values in one.items():
            together.setdefault(name, []).extend(values)
    return together


def _luck(found: Sequence[Spreads]) -> Spreads:
    together = _gathered([one.values for one in found])
    return Spreads(together, max(one.off for one in found), min(one.followed for one in found))


def _followed(name: str, found: Spreads) -> str:
    return (
        f"{name}: the daemon's ghosts of arms followed {found.followed:.0%} of the keys, and were off from what the "
        f"arms cost by {found.off:.1g} of it at most."
    )


def _tasks(name: str, count: int) -> list[tuple[str, int]]:
    return [(name, seed) for seed in range(count)]


def measure(quick: bool) -> Report:
    workloads: tuple[Workload, ...] = (EVENTS,) if quick else (TWITTER_ALONE, COMPOSED)
    missing = [name for workload in workloads for name in workload.missing]
    if missing:
        return Report([f"Not measured: {', '.join(missing)} are not beside the repository."], [], [])
    sizes = QUICK if quick else FULL
    for workload in workloads:
        say(f"making {workload.name} ready")
        DEPLOYMENTS[workload.name] = deployment = Deployment(workload, QUICK_INTERVALS if quick else None)
        assert deployment.weights.size  # once, before the processes are forked
        assert deployment.known
    names, tables, goals = list(DEPLOYMENTS), [], []
    say("how far arms differ by luck")
    luck = {name: _luck(_shared(_spreads, _tasks(name, sizes[name][0]))) for name in names}
    tables.append(spread_table(luck))
    goals += [spread_goal(name, luck[name]) for name in names]
    say("false calls")
    nothing = {
        name: _gathered(_shared(partial(_calls, NOTHING, 1, sizes[name][2]), _tasks(name, sizes[name][1])))
        for name in names
    }
    tables.append(calls_table("False calls of arms that are alike", nothing, SETTLED))
    goals.append(false_goal(nothing))
    for truth, right in ((CHEAPER, Outcome.BETTER), (SLOWER, Outcome.WORSE)):
        say(f"calls of a treatment that is {truth.name}")
        found = {
            name: _gathered(_shared(partial(_calls, truth, 3, sizes[name][3]), _tasks(name, sizes[name][3])))
            for name in names
        }
        tables.append(
            calls_table(f"A treatment that is {truth.name}: called {right} within {TREATED} intervals", found, (right,))
        )
    say("what was foretold")
    came = {name: _shared(_foretold, _tasks(name, sizes[name][4])) for name in names}
    tables.append(foretold_table(came))
    inside = [_inside(one, one.predicted) for runs in came.values() for one in runs]
    goals.append(at_least("predicted saving inside the realised interval", 90.0, 100.0 * float(np.mean(inside)), "%"))
    return Report([*facts(workloads, sizes), *map(_followed, names, luck.values())], tables, goals)


SETTLED = (Outcome.BETTER, Outcome.WORSE)


def facts(workloads: Sequence[Workload], sizes: Mapping[str, Sequence[int]]) -> list[str]:
    noise = Noise()
    return [
        *(fact for workload in workloads for fact in workload.facts),
        "The first fifth of each trace is the past: salts are balanced on it (best of 40). Both arms have half of the "
        "keys, the cache and the backend's slots; the control's settings are the configured defaults.",
        f"Costs of an interval are measured with an error of {100 * noise.cost:g} % (each arm its own), the backend's "
        f"times vary by {100 * noise.latency:g} % from interval to interval (both arms alike).",
        f"A lead-in of {LEAD_IN} intervals, {TREATED} of treatment, a look after each of them for `as designed` (every "
        "third under a true difference) and after every sixth for the others; no washout, as nothing is carried over: "
        "settings are the same, and a true difference is put on the challenged arm's records.",
        "As designed: balanced salt, lead-in, ghosts that see all keys, concentration and luck as the daemon takes "
        "them from the past. Alpha 5 %, a fifth of it for guard metrics; "
        "latencies are those of whole answers. The threshold rule: ten checks passed before five have failed.",
        "Foretold: the challenger's settings are "
        + ", ".join(f"{size:g} x size and {life:g} x lifetime" for size, life in CHANGES)
        + "; the prediction is a replay of the whole traffic that changes settings when the experiment does. Six "
        "intervals after the change are washed out.",
        "Salts: "
        + "; ".join(f"{name} {', '.join(map(str, counts))}" for name, counts in sizes.items())
        + " (for spreads; for false calls; of these with rivals; for power; runs foretold).",
    ]


def spread_table(luck: dict[str, Spreads]) -> Table:
    rows = []
    for ghosts in GHOSTS:
        for balanced in (False, True):
            for shape in SHAPES:
                cells = [100.0 * float(np.std(found.values[balanced, ghosts, shape])) for found in luck.values()]
                rows.append(("balanced" if balanced else "random", ghosts, shape, *cells))
    return Table(
        "A/A standard deviation of the estimated cost difference after 30 intervals, % of cost",
        ("salt", "ghosts", "design", *luck),
        rows,
        "Plain: the mean of 30 intervals; lead-in: less that of the 30 before; swap: half the difference of the "
        f"halves. The coefficient of the ghosts is fitted on the 30 before. {DAEMON.capitalize()}: those of the arms "
        "follow all keys beside a grid that samples one in a hundred; the noise of measuring is all that is left.",
    )


def spread_goal(name: str, found: Spreads) -> Goal:
    value = 100.0 * float(np.std(found.values[True, DAEMON, "lead-in"]))
    return at_most(f"{name}: A/A standard deviation, balanced, lead-in, the daemon's ghosts", 1.0, value, "%")


def calls_table(title: str, found: dict[str, Calls], counted: Sequence[Outcome]) -> Table:
    rows: list[list[str | int | float | None]] = []
    for method in METHODS:
        row: list[str | int | float | None] = [method]
        for one in found.values():
            called = one.get(method, [])
            hit = [call.intervals for call in called if call.outcome in counted and call.intervals is not None]
            row += [len(called), 100.0 * len(hit) / len(called) if called else None]
            # of all: those never called count as later than any
            row.append(float(statistics.median(hit)) if 2 * len(hit) > len(called) else None)
        rows.append(row)
    columns = [f"{name}: {what}" for name in found for what in ("experiments", "called %", "median intervals")]
    return Table(
        title, ("method", *columns), rows, "The median is over all experiments; none where half were not called."
    )


def false_goal(found: dict[str, Calls]) -> Goal:
    called = [call for one in found.values() for call in one["as designed"]]
    wrong = sum(call.outcome is not Outcome.PENDING for call in called)
    text = f"false BETTER, WORSE or ERROR in {len(called):,} A/A experiments, a look after every interval"
    return at_most(text, 5.0, 100.0 * wrong / len(called), "%")


def _inside(one: Foretold, value: float) -> bool:
    return one.low is not None and one.high is not None and one.low <= value <= one.high


def foretold_table(came: dict[str, list[Foretold]]) -> Table:
    rows = []
    for name, runs in came.items():
        for change, (size, lifetime) in enumerate(CHANGES):
            ours = runs[change :: len(CHANGES)]
            widths = [one.high - one.low for one in ours if one.low is not None and one.high is not None]
            realised = [one.realised for one in ours if one.realised is not None]
            if not (ours and widths and realised):
                continue
            rows.append(
                (
                    name,
                    f"{size:g} x size, {lifetime:g} x lifetime",
                    len(ours),
                    f"{statistics.median(one.predicted for one in ours):.2f}",
                    f"{statistics.median(realised):.2f}",
                    f"{statistics.median(widths) / 2.0:.2f}",
                    shown(100.0 * float(np.mean([_inside(one, one.predicted) for one in ours]))),
                    shown(100.0 * float(np.mean([_inside(one, one.own) for one in ours]))),
                )
            )
    return Table(
        "Predicted and realised saving, % of the control's cost (medians)",
        (
            "traffic",
            "challenger",
            "runs",
            "predicted",
            "realised",
            "half width",
            "inside %",
            "of its own keys inside %",
        ),
        rows,
        "The realised saving is of the treatment arm's keys; inside: the prediction for the whole traffic is in its "
        "confidence sequence.",
    )


BENCHMARK = Benchmark(
    "experiments", "Experiments: luck, false calls, power, predictions", ("setpoint", "numba", "numpy"), measure
)

if __name__ == "__main__":
    main(BENCHMARK)
