"""Situations for the tests of guardrails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from agents.training_range import range_of
from caches.knobs import KnobSettings
from caches.target import Arm
from envs.observation import SIGNALS, SIZE
from envs.reward import Constraints
from tests.agents.bundles import SPACE
from tuner.guardrails import check
from tuner.guards.objectives import Objectives
from tuner.guards.situation import Situation
from tuner.records import Verdict
from tuner.signals import Signal

ALLOW, HOLD, ROLLBACK = Verdict.ALLOW, Verdict.HOLD, Verdict.ROLLBACK
OBJECTIVES = Objectives(
    p99_latency_seconds=20.0, wrong_hit_ratio=0.02, vram_ratio=0.95, memory_bytes=8e8, rollback_after=3
).within(Constraints())
HERE = KnobSettings(2e8, 600.0, 0.25)
GOOD = KnobSettings(1e8, 3600.0, 0.0)
WINDOW = {
    "requests": 400.0,
    "hits": 120.0,
    "hit_ratio": 0.3,
    "p99_ttft_seconds": 1.0,
    "p99_latency_seconds": 9.0,
    "error_ratio": 0.001,
    "stale_ratio": 0.01,
    "used_bytes": 1e7,
}
SIGNAL_VALUES = {"wrong_hit_ratio": 0.005, "vram_ratio": 0.8, "utilisation": 0.5, "evictions_per_second": 2.0}
SEEN = np.zeros(SIZE, np.float32)
SEEN[len(SIGNALS) : 2 * len(SIGNALS)] = 1.0


def here(window: dict[str, Any] | None = None, control: dict[str, Any] | None = None, **changes: Any) -> Situation:
    """A treatment arm with everything in order, but for these."""
    base = Situation(
        arm=Arm.TREATMENT,
        window=WINDOW | (window or {}),
        control=WINDOW | (control or {}),
        share=0.05,
        settings=HERE,
        proposed=HERE,
        good=GOOD,
        knobs=SPACE,
        now_seconds=0.0,
        signals={name: Signal(name, value, 1.0) for name, value in SIGNAL_VALUES.items()},
        observation=SEEN,
        training=range_of(np.stack([SEEN] * 5)),
    )
    return replace(base, **changes)


def said(name: str, situation: Situation, objectives: Objectives = OBJECTIVES) -> tuple[Verdict, str]:
    finding = next(one for one in check(situation, objectives) if one.guardrail == name)
    return finding.verdict, finding.reason
