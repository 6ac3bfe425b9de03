"""Every technique of the gateway alone, beside all off and all on, in four workloads: what each is worth."""

from __future__ import annotations

import gc
import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.harness import Benchmark, Report, main, say
from benchmarks.technique_catalog import NOTHING, WHERE, Technique, techniques, together
from benchmarks.technique_facts import TITLES, facts
from benchmarks.technique_runs import Outcome, run
from benchmarks.technique_tables import goals, picked, verdict_table, workload_table
from benchmarks.technique_workloads import WORKLOADS

SEEDS, QUICK_SEEDS = (0, 1, 2, 3, 4), (0, 1)
REQUESTS = {"wordings": 2_000, "changing": 6_000, "crowded": 6_000, "troubled": 2_500}
QUICK_REQUESTS = dict.fromkeys(REQUESTS, 100)
Found = dict[str, dict[str, list[Outcome]]]


def measure(quick: bool) -> Report:
    logging.getLogger("api.gateway").setLevel(logging.ERROR)  # answers that drift are counted here, not told
    gc.freeze()  # what was imported is not gone through at each collection
    seeds, requests = (QUICK_SEEDS, QUICK_REQUESTS) if quick else (SEEDS, REQUESTS)
    with tempfile.TemporaryDirectory() as folder:
        every = techniques(Path(folder), quick)
        runs: Found = {workload: {} for workload in WORKLOADS}
        _measured(runs, every, seeds, requests)
        chosen = picked(runs, every)
        _measured(runs, [together(chosen)], seeds, requests)
    tables = [workload_table(runs, workload, TITLES[workload]) for workload in WORKLOADS]
    said = ", ".join(one.name for one in chosen) or "none"
    more = (
        f"Those that pay, together: of each family that one which saves most, chosen on the same seeds: {said}. It ran "
        "after all others, so its processor time is the least certain."
    )
    return Report(
        [*facts(requests, seeds), more], [*tables, verdict_table(runs, [*every, together(chosen)])], goals(runs)
    )


def _measured(runs: Found, every: Sequence[Technique], seeds: Sequence[int], requests: Mapping[str, int]) -> None:
    """Techniques take turns on the same traffic, and each seed begins with another. Added to `runs`."""
    for number, seed in enumerate(seeds):
        first = number * len(every) // len(seeds)
        for workload, make in WORKLOADS.items():
            traffic = make(requests[workload], seed)
            say(f"{workload}, seed {seed}")
            run(traffic, NOTHING)  # what only a first run pays for
            for one in (*every[first:], *every[:first]):
                if workload in WHERE[one.family]:
                    runs[workload].setdefault(one.name, []).append(run(traffic, one.settings))


if __name__ == "__main__":
    packages = ("setpoint", "fastapi", "httpx", "fow-cache", "wordllama", "numpy", "scipy")
    main(Benchmark("techniques", "Techniques of the gateway, each alone", packages, measure))
