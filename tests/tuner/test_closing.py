"""What the interval that is over leaves as a record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from caches.target import Arm, ArmCounters, Counted, Histogram, Plan, Split
from tests.tuner.loops import PRICES, SECONDS, STATIC
from tuner.loop.closing import Looked, close
from tuner.records import ControlState

NOTHING = Histogram((1.0, 10.0), (0, 0, 0), 0.0)
SEEN = {"ttft_seconds": NOTHING, "latency_seconds": NOTHING, "hit_age_seconds": NOTHING}
IDLE = ArmCounters(**dict.fromkeys(ArmCounters.__dataclass_fields__, 0) | SEEN)  # type: ignore[arg-type]


def counted(at_seconds: float, **control: Any) -> Counted:
    return Counted(0.0, at_seconds, {Arm.CONTROL: replace(IDLE, **control), Arm.TREATMENT: IDLE})


def test_errors_and_wrong_hits_are_those_of_the_interval() -> None:
    before = counted(SECONDS, requests=100, hits=40, errors=3, verified_hits=10, wrong_hits=1)
    after = counted(2 * SECONDS, requests=140, hits=60, errors=4, verified_hits=15, wrong_hits=3)
    state = ControlState("cache", 1, SECONDS, before, Plan(Split("salt", 0.5), STATIC, STATIC), True)
    closed = close(state, Looked(2 * SECONDS, after), PRICES)
    names = ("requests", "errors", "error_ratio", "verified_hits", "wrong_hits")
    found = {arm: [(record.window or {})[name] for name in names] for arm, record in closed.records.items()}
    assert found == {Arm.CONTROL: [40.0, 1.0, 1 / 40, 5.0, 2.0], Arm.TREATMENT: [0.0, 0.0, None, 0.0, 0.0]}
