"""The verbs of the API that do more than pass a question on, on a real ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from caches.errors import NotFound
from caches.target import Arm, Plan, Split
from tests.api.rest.history import (
    CACHE,
    DAEMON,
    EXPERIMENT,
    FIRST,
    INTERVAL,
    SPACE,
    STATIC,
    Told,
    decisions,
    end_of,
    record,
    state,
    write,
)
from tuner.ledger import Ledger
from tuner.ledgers.sql import open_ledger
from tuner.records import ExperimentRecord, Phase, Tick, Wish, WishKind
from tuner.service import TunerService


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = open_ledger("sqlite:///ledger.db", tmp_path)
    yield opened
    opened.close()


def test_a_daemon_is_alive_until_its_lease_runs_out(ledger: Ledger) -> None:
    told = Told(intervals=3, lead_in=1)
    lease = write(ledger, told)
    for now, alive in ((end_of(told), True), (lease.until_seconds - 0.1, True), (lease.until_seconds, False)):
        assert TunerService(ledger, None, lambda now=now: now).status(CACHE).active is alive


def test_what_is_not_there_is_named_with_what_is(ledger: Ledger) -> None:
    service = TunerService(ledger, None, lambda: 0.0)
    with pytest.raises(NotFound, match="there is: none"):
        service.status("other")
    write(ledger, Told(intervals=2, lead_in=1))
    for ask in (service.status, service.limits, service.wishes):
        with pytest.raises(NotFound, match="there is: gateway"):
            ask("other")
    with pytest.raises(NotFound, match="experiment 'x'"):
        service.account("x")
    assert service.limits(CACHE) == SPACE
    assert (service.first_index(CACHE), service.first_index("other")) == (FIRST, None)


def test_a_wish_is_found_by_its_id_and_cache(ledger: Ledger) -> None:
    write(ledger, Told(intervals=2, lead_in=1))
    write(ledger, Told(intervals=2, lead_in=1, cache="second", experiment="other"))
    service = TunerService(ledger, None, lambda: 5.0)
    mine, theirs = service.wish(CACHE, WishKind.PAUSE, "ana"), service.wish("second", WishKind.PAUSE, "ana")
    assert mine == Wish(CACHE, WishKind.PAUSE, "ana", 5.0, id=1)
    assert (service.find_wish(CACHE, 1), service.find_wish("second", 2)) == (mine, theirs)
    for cache, number in ((CACHE, 2), ("second", 1), (CACHE, 3)):
        with pytest.raises(NotFound, match=f"wish {number}"):
            service.find_wish(cache, number)


def test_an_experiment_in_shadow_has_its_intervals_before_it_is_judged(ledger: Ledger) -> None:
    """It began with interval 2, of 5; an experiment that has no interval yet has none."""
    told = Told()
    lease = ledger.take_lease(CACHE, DAEMON, 0.0, 1e12)
    assert lease is not None
    plan = Plan(Split(), STATIC, STATIC)
    experiment = ExperimentRecord(EXPERIMENT, CACHE, 2 * INTERVAL, 3, 4, {})
    service = TunerService(ledger, None, lambda: 0.0)
    for number in range(6):
        here = replace(state(told, number), plan=plan, phase=Phase.SHADOW, phase_index=FIRST + 2)
        here = here if number >= 2 else replace(here, phase=Phase.IDLE, experiment=None, phase_index=FIRST)
        intervals = (record(told, number - 1, Arm.CONTROL),) if number else ()
        began = (experiment,) if number == 2 else ()
        ledger.commit(lease, Tick(here, intervals, decisions(told, number), experiments=began), 0.0)
        if number == 2:
            assert list(service.account(EXPERIMENT).intervals) == []
    found = service.account(EXPERIMENT)
    assert [one.index - FIRST for one in found.intervals] == [2, 3, 4]
    assert [(one.index - FIRST, one.arm) for one in found.decisions] == [
        (number, Arm.TREATMENT) for number in (2, 3, 4)
    ]
    assert found.judgements == []


def test_no_registry_is_no_policies(ledger: Ledger) -> None:
    service = TunerService(ledger, None, lambda: 0.0)
    assert service.policies() == ()
    service.check_version(99)  # nothing is known, so nothing is refused
