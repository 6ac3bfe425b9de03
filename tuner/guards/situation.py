"""What a guardrail may see, and what it says. Values only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.training_range import TrainingRange
from caches.knobs import KnobSettings, KnobSpace
from caches.target import Arm
from tuner.records import Verdict
from tuner.signals import Signal

Window = Mapping[str, float | None]
Memory = Mapping[str, int]


@dataclass(frozen=True)
class Situation:
    """Of one arm, when an interval is over and the settings of the next are proposed.

    window: the arm's numbers by names of envs.interval.NAMES, with `error_ratio`, `verified_hits` and `wrong_hits`
    beside them where these are counted by arm; None where nothing can be said of the interval. control: the control
    arm's of the same interval; None for the control arm itself, or where it cannot be had. share: of the keys that are
    the arm's. signals: of the whole cache, those that are meant to be had (a GPU that nobody exports is none of them);
    looked at where the window says nothing. observes: whether the policy decides by an observation; if so observation,
    float32 (envs.observation.SIZE,), and training, from its bundle. settings: in force, for the whole cache. proposed:
    what is to follow, after the limits. good: what a rollback of the arm restores. memory: see
    `tuner.guardrails.remembered`.

    An arm without a share is not looked at. Of a challenger in SHADOW: the control arm, with settings and good both
    those where the challenger would be by now.
    """

    arm: Arm
    window: Window | None
    control: Window | None
    share: float
    settings: KnobSettings
    proposed: KnobSettings | None
    good: KnobSettings
    knobs: KnobSpace
    now_seconds: float
    signals: Mapping[str, Signal] = field(default_factory=dict)
    observes: bool = True
    observation: NDArray[np.float32] | None = None
    training: TrainingRange | None = None
    memory: Memory = field(default_factory=dict)

    def value(self, name: str) -> float | None:
        """Of the arm, or of the whole cache; None where neither is known."""
        own = _of(self.window, name)
        return self._whole(name) if own is None else own

    def beside(self, name: str, least_requests: float) -> float | None:
        """What to compare `value` with: the control arm's, of so many requests or more; the same number where it is of
        the whole cache; None for the control arm itself, or where it is not known."""
        if self.arm is Arm.CONTROL:
            return None
        if _of(self.window, name) is None:
            return self._whole(name)
        enough = (_of(self.control, "requests") or 0.0) >= least_requests
        return _of(self.control, name) if enough else None

    def _whole(self, name: str) -> float | None:
        signal = self.signals.get(name)
        return None if signal is None else known(signal.value)


@dataclass(frozen=True)
class Finding:
    """reason: a sentence. broken: whether an objective was broken and this arm is to blame; None where that cannot be
    told, or it is about something else."""

    guardrail: str
    verdict: Verdict
    reason: str
    broken: bool | None = None


def known(value: Any) -> float | None:
    """What is not a finite number is not known."""
    return None if value is None or not math.isfinite(value) else float(value)


def _of(window: Window | None, name: str) -> float | None:
    return None if window is None else known(window.get(name))
