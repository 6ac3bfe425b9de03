"""What the gateway's benchmark measured, as tables, ratios and goals."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.gateway_servers import Server, Servers
from benchmarks.harness import Cell, Goal, Table, at_least, at_most, median_ratio, shown
from benchmarks.http_load import Load

WHOLE, STREAM = "in one piece", "as a stream"
KINDS = {WHOLE: False, STREAM: True}


@dataclass(frozen=True)
class Measured:
    """cached: share of the answers that the backend behind did not give; None for what has none. cpu_seconds: of the
    server, per request at saturation."""

    saturated: Load
    steady: Load
    cpu_seconds: float
    cached: float | None

    def latency_ms(self, share: float) -> float:
        return 1e3 * float(np.quantile(self.steady.latencies_seconds, share))


Runs = dict[tuple[str, str], list[Measured]]  # of a server (its words) and a kind: one each round


HEADER = (
    "server",
    "requests/s, saturated",
    "CPU of the server, µs a request",
    "not asked of the backend, %",
    "at a constant rate of",
    "p50, ms",
    "p99, ms",
)


def spread(values: Sequence[float]) -> str:
    """Of all rounds: their median, least and most."""
    middle = shown(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} [{shown(min(values))}, {shown(max(values))}]"


def table_of(runs: Runs, kind: str) -> Table:
    rows = []
    for (what, its_kind), rounds in runs.items():
        if its_kind != kind:
            continue
        cached = [100.0 * one.cached for one in rounds if one.cached is not None]
        row: list[Cell] = [
            what,
            spread([one.saturated.per_second for one in rounds]),
            spread([1e6 * one.cpu_seconds for one in rounds]),
            f"{min(cached):.1f}" if cached else None,
            spread([one.steady.per_second for one in rounds]),
            spread([one.latency_ms(0.5) for one in rounds]),
            spread([one.latency_ms(0.99) for one in rounds]),
        ]
        rows.append(row)
    return Table(f"Answers {kind}", HEADER, rows)


def ratios(servers: Servers, runs: Runs) -> Table:
    rows: list[Sequence[Cell]] = []
    for tier, peer in servers.litellm.items():
        for kind in KINDS:
            pairs = list(zip(runs[servers.hits[tier].what, kind], runs[peer.what, kind], strict=True))
            rows.append(
                (
                    f"hit in {tier}, {kind}",
                    spread([ours.saturated.per_second / its.saturated.per_second for ours, its in pairs]),
                    spread([its.cpu_seconds / ours.cpu_seconds for ours, its in pairs]),
                    spread([its.latency_ms(0.5) / ours.latency_ms(0.5) for ours, its in pairs]),
                )
            )
    header = ("Setpoint beside LiteLLM", "requests/s, times", "requests per second of CPU, times", "p50, times shorter")
    return Table("In the same round", header, rows, servers.why_not)


def goals(servers: Servers, runs: Runs) -> list[Goal]:
    found = []
    for tier, server in servers.hits.items():
        what = f"throughput of a core beside LiteLLM's, hit in {tier}"
        if tier not in servers.litellm:
            found.append(Goal(f"{what}: at least 5 times", servers.why_not, None))
            continue
        ours, its = (runs[one.what, WHOLE] for one in (server, servers.litellm[tier]))
        rates = ([one.saturated.per_second for one in each] for each in (ours, its))
        found.append(at_least(what, 5.0, median_ratio(*rates), "times"))
    for tier, server in servers.hits.items():
        found += within(f"all of a hit in {tier}", partial(late, runs, server))

    def beyond(share: float) -> float:
        return late(runs, servers.missing, share) - late(runs, servers.emulator, share)

    return found + within("a miss, over the emulator alone at that rate", beyond)


def late(runs: Runs, server: Server, share: float) -> float:
    return statistics.median(one.latency_ms(share) for one in runs[server.what, WHOLE])


def within(what: str, added_ms: Callable[[float], float]) -> list[Goal]:
    limits = (("p50", 0.5, 1.0), ("p99", 0.99, 5.0))
    return [
        at_most(f"{name} added at half of saturation, {what}", most, added_ms(share), "ms")
        for name, share, most in limits
    ]
