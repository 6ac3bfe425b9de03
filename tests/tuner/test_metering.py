"""The page of a daemon's metrics, over a real ledger and real ticks, as it is read over HTTP."""

from __future__ import annotations

import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from caches.errors import InputError
from tests.servers import require
from tests.tuner.loops import LARGE, SMALL, Bench, Blind, HandPolicies, policy
from tuner.control import ControlLoop, Ticked
from tuner.exporting.metering import Meter, Overheard
from tuner.exporting.metrics import Terms
from tuner.exporting.page import MetricsPage
from tuner.ledger import LedgerUnavailable
from tuner.records import Phase, WishKind

MEMORY = Path("/dev/shm")
TERMS = Terms(60.0, 10.0, None)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as made:
        yield Path(made)


@pytest.fixture
def page() -> Iterator[MetricsPage]:
    with closing(MetricsPage("shadow", "127.0.0.1", 0)) as made:
        yield made


class Metered:
    """A loop whose ticks are told to a meter."""

    def __init__(self, bench: Bench, page: MetricsPage, holder: str = "one") -> None:
        self.bench, self.page, seen = bench, page, Overheard(Blind())
        self.meter = Meter(bench.ledger, page, TERMS, seen)
        self.loop = ControlLoop(bench.cache, bench.ledger, bench.policies, seen, bench.rules, holder, 120.0)

    def tick(self) -> Ticked:
        ticked = self.loop.tick(self.bench.now)
        self.meter.told(ticked, 0.003)
        return ticked

    def run(self, intervals: int) -> None:
        self.tick()
        for _ in range(intervals):
            self.bench.traffic()
            self.tick()
            self.tick()  # again within the interval: nothing may count twice

    def read(self) -> dict[str, float]:
        """By name and labels but for the cache's, as `phase{phase=idle}`."""
        found = {}
        for family in text_string_to_metric_families(text_of(self.page)):
            for sample in family.samples:
                labels = dict(sample.labels)
                assert labels.pop("cache") == "shadow"
                named = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
                found[sample.name.removeprefix("setpoint_tuner_") + (f"{{{named}}}" if named else "")] = sample.value
        return found


def text_of(page: MetricsPage) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_intervals_costs_and_decisions_are_counted_once(folder: Path, page: MetricsPage) -> None:
    metered = Metered(Bench(folder, policies=HandPolicies(policy(1, LARGE))), page)
    metered.run(3)
    read = metered.read()
    records = metered.bench.ledger.intervals("shadow", 0, 99)
    spent = sum((one.window or {})["compute_usd"] or 0.0 for one in records)
    assert read["intervals_total{arm=control,result=recorded}"] == 3
    assert read["requests_total{arm=control}"] == 900
    assert read["cost_usd_total{arm=control,cause=compute}"] == pytest.approx(spent)
    decisions = metered.bench.ledger.decisions("shadow")
    assert sum(value for name, value in read.items() if name.startswith("decisions_total")) == len(decisions) == 3
    assert read["policy_info{arm=control,mode=live,policy=schedule,version=1}"] == 1
    assert read["lease_held"] == 1
    assert read["fence"] == 1
    assert read["last_good_interval_timestamp_seconds"] == 180
    assert read["tick_duration_seconds_count{did=nothing}"] == 3
    assert read["tick_duration_seconds_count{did=decided}"] == 4
    plan = metered.bench.state.plan.control
    assert read["cache_size_bytes{arm=control}"] == plan.cache_size
    assert "entropy_bits" not in read  # nothing follows the keys here


def test_every_guardrail_of_the_policy_has_a_state(folder: Path, page: MetricsPage) -> None:
    metered = Metered(Bench(folder, policies=HandPolicies(policy(1, LARGE))), page)
    metered.run(2)
    read = metered.read()
    states = {name: value for name, value in read.items() if name.startswith("guardrail_active")}
    assert len(states) == 12
    assert states["guardrail_active{arm=control,guardrail=traffic}"] == 0


def test_an_experiment_is_told_arm_by_arm_and_a_rollback_counted(folder: Path, page: MetricsPage) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE), policy(2, SMALL)))
    metered = Metered(bench, page)
    metered.run(8)
    read = metered.read()
    assert read["phase{phase=canary}"] == 1
    assert read["share_ratio{arm=treatment}"] == 0.2
    assert read["hit_ratio{arm=treatment}"] < 1
    assert "guardrail_active{arm=treatment,guardrail=p99_ttft}" in read
    bench.wish(WishKind.ROLL_BACK)
    metered.run(2)
    read = metered.read()
    assert (read["phase{phase=rolled_back}"], read["rollback_latched"], read["rollbacks_total"]) == (1, 1, 1)
    assert bench.state.phase is Phase.ROLLED_BACK
    assert "cache_size_bytes{arm=treatment}" not in read


def test_a_standby_tells_that_it_is_one_and_counts_from_its_own_beginning(folder: Path, page: MetricsPage) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE)))
    first, second = Metered(bench, page), None
    first.run(3)
    with closing(MetricsPage("shadow", "127.0.0.1", 0)) as other:
        second = Metered(bench, other, "two")
        second.tick()
        assert second.read()["lease_held"] == 0
        assert "fence" not in second.read()
        first.loop.stop()
        second.run(2)
        read = second.read()
    assert read["lease_held"] == 1
    assert read["fence"] == 2
    assert read["intervals_total{arm=control,result=recorded}"] == 2
    assert read["requests_total{arm=control}"] == 600


def test_a_daemon_that_begins_knows_the_interval_before(folder: Path, page: MetricsPage) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE)))
    bench.run(3)
    metered = Metered(bench, page)
    metered.tick()
    read = metered.read()
    assert read["hit_ratio{arm=control}"] > 0
    assert read["last_good_interval_timestamp_seconds"] == 180
    assert read["intervals_total{arm=control,result=recorded}"] == 0


def test_missed_intervals_are_counted_as_such(folder: Path, page: MetricsPage) -> None:
    metered = Metered(Bench(folder), page)
    metered.run(1)
    metered.bench.now += 180.0
    metered.tick()
    assert metered.read()["intervals_total{arm=control,result=missed}"] >= 2


def test_what_the_ledger_does_not_tell_now_is_made_up_for(
    folder: Path, page: MetricsPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    metered = Metered(Bench(folder, policies=HandPolicies(policy(1, LARGE))), page)
    metered.run(1)

    def gone(*_: object) -> object:
        raise LedgerUnavailable("The disk is full.")

    with monkeypatch.context() as patched:
        for _ in range(2):
            metered.bench.traffic()
            ticked = metered.loop.tick(metered.bench.now)
            patched.setattr(metered.bench.ledger, "intervals", gone)
            metered.meter.told(ticked, 0.001)
            patched.undo()
    assert metered.read()["intervals_total{arm=control,result=recorded}"] == 1
    metered.tick()
    read = metered.read()
    assert read["intervals_total{arm=control,result=recorded}"] == 3
    assert sum(value for name, value in read.items() if name.startswith("decisions_total")) == 3


def test_promtool_has_nothing_against_the_page(folder: Path, page: MetricsPage) -> None:
    metered = Metered(Bench(folder, policies=HandPolicies(policy(1, LARGE), policy(2, SMALL))), page)
    metered.run(6)
    command = [require("promtool"), "check", "metrics"]
    done = subprocess.run(command, input=text_of(page), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_port_that_is_taken_is_an_error_of_the_settings(page: MetricsPage) -> None:
    with pytest.raises(InputError, match=r"control.metrics_port: got 127.0.0.1, \d+, expected a free address"):
        MetricsPage("shadow", "127.0.0.1", page.port)
