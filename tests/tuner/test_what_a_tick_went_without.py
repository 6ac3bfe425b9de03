"""What a tick had to do without is said in its decisions, and a key stream that is not whole is not believed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from caches.target import Arm
from envs.traffic import FEATURES, REQUESTS
from tests.envs.worlds import problem
from tests.tuner.ghost_traffic import ALONE, HERE, rules_of
from tests.tuner.loops import PER_INTERVAL, Bench, Blind, HandPolicies
from tuner.keys.ghosts import LiveGhosts
from tuner.keys.stream import KeysUnavailable, Taken
from tuner.keys.watch import KeyWatch
from tuner.ledger import DecisionFilter
from tuner.loop.closing import Looked
from tuner.loop.sight import KeysSeen
from tuner.records import ControlState


@dataclass
class Stream(Blind):
    """seen: requests that the key stream had in each interval. problem: why it says nothing."""

    seen: float = PER_INTERVAL
    problem: str | None = None

    def keys(self, state: ControlState, now_seconds: float) -> Looked:
        traffic = np.full(len(FEATURES), np.nan)
        traffic[REQUESTS] = self.seen
        keys = replace(KeysSeen.nothing(), traffic=traffic)
        usd = {} if self.problem else {Arm.CONTROL: 0.5}
        return Looked(now_seconds, keys=keys, reference_usd=usd, keys_problem=self.problem)


@dataclass
class Troubled(HandPolicies):
    told: Mapping[str, str] = field(default_factory=dict)

    def problems(self) -> Mapping[str, str]:
        return self.told


def run(folder: Path, stream: Stream, policies: HandPolicies | None = None) -> tuple[float | None, tuple[str, ...]]:
    """The reference of the last interval that is over, and the reasons of the decision after it."""
    bench = Bench(folder, policies=policies or HandPolicies())
    bench.loop._watch = stream
    bench.run(2)
    (record,) = bench.ledger.intervals("shadow", 1, 1)
    (decision,) = bench.ledger.decisions("shadow", DecisionFilter(limit=1))
    return record.reference_usd, decision.reasons


@pytest.mark.parametrize("seen", [PER_INTERVAL, PER_INTERVAL / 2])
def test_a_stream_with_half_of_the_requests_is_believed(folder: Path, seen: float) -> None:
    reference, reasons = run(folder, Stream(seen))
    assert reference == 0.5
    assert not any("keys" in one for one in reasons)


@pytest.mark.parametrize("seen", [0.0, math.nan, PER_INTERVAL / 2 - 1])
def test_a_stream_with_fewer_is_not(folder: Path, seen: float) -> None:
    reference, reasons = run(folder, Stream(seen))
    assert reference is None
    shown = "0" if math.isnan(seen) else f"{seen:,.0f}"
    assert reasons[-1] == (
        f"Nothing is known of the keys: the key stream had {shown} requests of {PER_INTERVAL} that the cache counted."
    )


def test_a_stream_that_is_away_and_a_registry_that_cannot_be_read_are_told_of(folder: Path) -> None:
    policies = Troubled(told={"registry": "MLflow at there: cannot read it: refused"})
    reference, reasons = run(folder, Stream(problem="nobody answers"), policies)
    assert reference is None
    assert reasons[-2:] == (
        "Nothing is known of the keys: nobody answers.",
        "MLflow at there: cannot read it: refused.",
    )


class Away:
    """A key stream that nobody answers for."""

    delay_seconds = 0.0

    def __init__(self) -> None:
        self.asked = 0

    def take(self, until_seconds: float) -> Taken:
        self.asked += 1
        raise KeysUnavailable("nobody answers")

    def close(self) -> None:
        """Nothing is open."""


def test_a_stream_that_is_away_is_asked_again_after_a_quarter_of_an_interval() -> None:
    stream = Away()
    watch = KeyWatch(stream, LiveGhosts(rules_of(problem()), [HERE]), 40.0, 400.0, lambda: HERE, 0.0, ALONE)
    for now in (401.0, 402.0, 410.9):  # for ten seconds it is left alone
        watch.look(now)
    assert (stream.asked, watch.problem) == (1, "nobody answers")
    watch.look(411.0)
    assert stream.asked == 2
    watch.look(405.0)  # the clock was set back by more than that
    assert stream.asked == 3
