"""A tuning daemon that is killed a thousand times, and everything around it that fails once: what is lost, and how soon
it is back. With a gateway, Redis and Prometheus, under traffic; tests/faults checks the same with fewer kills."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.fault_accounts import Account, account, watched
from benchmarks.fault_kills import Kills, Slaughter
from benchmarks.fault_troubles import LEAST_INTERVALS, TROUBLES, Suffered, suffer
from benchmarks.fault_world import World, world_running
from benchmarks.harness import Benchmark, Cell, Goal, Report, Table, at_most, main, say
from tuner.ledgers.sql import open_ledger

KILLS, KILL_INTERVAL_SECONDS = 1_000, 0.5
TROUBLE_INTERVAL_SECONDS = 1.0
QUICK_KILLS, QUICK_TROUBLES = 5, ("redis killed", "disk full")
NEEDED = ("redis-server", "prometheus")


def killed(kills: int) -> tuple[Account, Kills, World]:
    """What is left of a world after so many kills; it has ended."""
    with tempfile.TemporaryDirectory() as folder, world_running(Path(folder), KILL_INTERVAL_SECONDS) as world:
        watched(world.ledger)
        slaughter = Slaughter(world, seed=0)
        for done in range(0, kills, step := max(kills // 10, 1)):
            say(f"{done:,} of {kills:,} kills")
            slaughter.go_on(min(step, kills - done))
        slaughter.rest()
        return account(world), slaughter.kills, world


def suffered(names: Sequence[str]) -> dict[str, Suffered]:
    """By name of a trouble, each in the same world."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, world_running(Path(folder), TROUBLE_INTERVAL_SECONDS) as world:
        watched(world.ledger)
        daemon = world.nursery.daemon(world.settings())
        with closing(open_ledger(f"sqlite:///{world.ledger}", world.folder)) as ledger:
            for name in names:
                say(TROUBLES[name].what)
                found[name] = suffer(world, ledger, daemon, TROUBLES[name])
        daemon.end()
    return found


def measure(quick: bool) -> Report:
    missing = [binary for binary in NEEDED if shutil.which(binary) is None]
    if missing:
        why = f"{' and '.join(missing)} not installed"
        return Report([f"Not run: {why}."], [], [Goal("no interval lost or doubled", why, None)])
    troubles = suffered(QUICK_TROUBLES if quick else tuple(TROUBLES))
    found, kills, world = killed(QUICK_KILLS if quick else KILLS)
    failed = len(world.traffic.failed()) + sum(len(one.failed) for one in troubles.values())
    effects = percentiles(found.effects)
    served = len(world.traffic.all())
    return Report(
        [
            "Two daemons, one of which stands by; two kills of three within a tick that closes an interval, the others "
            f"at any moment and of either. Intervals of {KILL_INTERVAL_SECONDS:g} s, a lease of one interval, ledger "
            "in SQLite, emulated backend; champion and challenger change settings, experiments begin anew as they end.",
            "Daemons are forked by a process that has imported everything; `setpoint tune` begins by importing it.",
            f"Troubles: intervals of {TROUBLE_INTERVAL_SECONDS:g} s; each lasts until the ledger says what is wrong, "
            f"and for {LEAST_INTERVALS} intervals at least. A full disk is a limit to the size of files "
            "(RLIMIT_FSIZE).",
        ],
        [
            Table("Kills", ("what", "number"), _kill_rows(found, kills, served, len(world.traffic.failed()))),
            Table(
                "Milliseconds",
                ("what", "p50", "p99"),
                [
                    ["from a decision to its confirmed effect", *effects],
                    ["from a kill to the next daemon's first decision", *percentiles(kills.backs)],
                    ["from the start of a daemon to the end of its first tick", *percentiles(kills.firsts)],
                ],
            ),
            Table(
                "Troubles",
                ("trouble", "s until all is well again", "requests meanwhile", "of these failed"),
                [[TROUBLES[name].what, one.back_seconds, one.asked, len(one.failed)] for name, one in troubles.items()],
            ),
        ],
        [
            at_most("intervals lost", 0, found.missing, "intervals"),
            at_most("intervals recorded twice", 0, found.doubled, "intervals"),
            at_most("disagreements of ledger, cache and clients", 0, len(found.disagreements), "sentences"),
            at_most("requests failed", 0, failed, "requests"),
            at_most("settings outside the operator's limits", 0, len(world.looked.outside), "samples"),
            at_most("decision to effect, p99", 1e3 * KILL_INTERVAL_SECONDS, effects[1], "ms"),
        ],
    )


def _kill_rows(found: Account, kills: Kills, served: int, failed: int) -> list[list[Cell]]:
    return [
        ["kills", kills.number],
        ["of these, in the middle of a tick that closes an interval", kills.in_tick],
        ["intervals from the first to the last", found.intervals],
        ["of these with numbers", found.counted],
        ["of these known to be unknown", found.unknown],
        ["of these without a daemon", found.nobody],
        ["of these missing", found.missing],
        ["of these doubled", found.doubled],
        ["requests in intervals with numbers", found.requests],
        ["requests that the cache counted between two of these", found.between],
        ["leases given (highest fence)", found.fences],
        ["disagreements", len(found.disagreements)],
        ["requests sent", served],
        ["of these failed", failed],
    ]


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """p50 and p99 in ms."""
    if len(seconds) < 2:
        return (float("nan"),) * 2 if not seconds else (1e3 * seconds[0],) * 2
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return 1e3 * cuts[49], 1e3 * cuts[98]


BENCHMARK = Benchmark("faults", "Faults", ("sqlalchemy", "mlflow", "redis"), measure)

if __name__ == "__main__":
    main(BENCHMARK)
