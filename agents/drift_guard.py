"""Falls back from a policy to a safer one when it stops saving or when traffic changes.

The state machine has two modes. While the candidate acts, its saving against the reference is judged window by window;
a window whose mean saving is significantly negative, or a change that the detector reports, makes the fallback act. The
candidate comes back only by rule: after so many clean windows in a row, or never before someone releases it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from agents.drift import DriftDetector
from agents.policy import ControlPolicy, Sight
from caches.errors import InputError
from envs.observation import names

SAVING, KNOWN_SAVING = names().index("saving"), names().index("known_saving")
LEAST_KNOWN = 0.5  # share of a window's savings that must be known for it to say anything


class Mode(StrEnum):
    """Who acts."""

    CANDIDATE = "candidate"
    FALLBACK = "fallback"


@dataclass(frozen=True)
class GuardRule:
    """window: intervals judged together. confidence: one-sided, with which a window's mean saving must lie below
    -tolerance (in units of the reward; 0.1 is one per cent of a mean interval's cost). clean_windows: after which the
    candidate comes back; None: it stays out until it is released."""

    window: int = 36
    confidence: float = 0.999
    tolerance: float = 0.0
    clean_windows: int | None = None

    def __post_init__(self) -> None:
        if self.window < 4:
            raise InputError(f"window: got {self.window}, expected at least 4 intervals")
        if not 0.5 < self.confidence < 1.0:
            raise InputError(f"confidence: got {self.confidence}, expected in (0.5, 1)")
        if not self.tolerance >= 0.0:
            raise InputError(f"tolerance: got {self.tolerance}, expected at least 0")
        if self.clean_windows is not None and self.clean_windows < 1:
            raise InputError(f"clean_windows: got {self.clean_windows}, expected at least 1, or none")


@dataclass(frozen=True)
class GuardState:
    """savings: those of the current window, None where not known. disturbed: whether the detector fired in it.
    clean: clean windows in a row since the fallback acts. falls: how often the candidate was taken out."""

    mode: Mode = Mode.CANDIDATE
    savings: tuple[float | None, ...] = ()
    disturbed: bool = False
    clean: int = 0
    falls: int = 0


def advance(state: GuardState, saving: float | None, fired: bool, rule: GuardRule) -> GuardState:
    """The state after one more interval. saving: what the acting policy saved in it. fired: whether a change was
    detected in it."""
    savings = (*state.savings, saving)
    full = len(savings) >= rule.window
    if state.mode is Mode.CANDIDATE:
        if fired or (full and loses(savings, rule)):
            return GuardState(Mode.FALLBACK, falls=state.falls + 1)
        return replace(state, savings=() if full else savings)
    disturbed = state.disturbed or fired
    if not full:
        return replace(state, savings=savings, disturbed=disturbed)
    clean = 0 if disturbed or not _enough(savings) else state.clean + 1
    if rule.clean_windows is not None and clean >= rule.clean_windows:
        return GuardState(Mode.CANDIDATE, falls=state.falls)
    return GuardState(Mode.FALLBACK, clean=clean, falls=state.falls)


def loses(savings: Sequence[float | None], rule: GuardRule) -> bool:
    """Whether the upper confidence bound of the mean saving lies below -tolerance.

    Savings of neighbouring intervals depend on each other: with autocorrelation r of neighbours, n of them are worth
    n (1 - r) / (1 + r) independent ones (G. V. Bayley, J. M. Hammersley, The "effective" number of independent
    observations in an autocorrelated time series, J. Royal Statistical Society Suppl. 8, 1946). Too few known: False.
    """
    if not _enough(savings):
        return False
    known = np.array([saving for saving in savings if saving is not None])
    independent = max(len(known) * (1.0 - (r := _autocorrelation(known))) / (1.0 + r), 2.0)
    reach = float(stats.t.ppf(rule.confidence, independent - 1.0)) * float(known.std(ddof=1)) / math.sqrt(independent)
    return float(known.mean()) + reach < -rule.tolerance


def _enough(savings: Sequence[float | None]) -> bool:
    return sum(saving is not None for saving in savings) >= max(LEAST_KNOWN * len(savings), 2)


def _autocorrelation(values: NDArray[np.float64]) -> float:
    """Of neighbours, in [0, 0.95]."""
    centred = values - values.mean()
    power = float(centred @ centred)
    return 0.0 if power <= 0.0 else float(np.clip(centred[1:] @ centred[:-1] / power, 0.0, 0.95))


class DriftGuard:
    """A candidate as long as it saves, a fallback otherwise; both see everything all the time.

    fallback: the last good policy, a static setting, or another guard around these.
    """

    def __init__(
        self,
        candidate: ControlPolicy,
        fallback: ControlPolicy,
        rule: GuardRule = GuardRule(),
        detector: DriftDetector | None = None,
    ) -> None:
        self.name = candidate.name
        self.candidate, self.fallback, self.rule, self.detector = candidate, fallback, rule, detector
        self.state, self._begun = GuardState(), False

    def reset(self, seed: int) -> None:
        self.candidate.reset(seed)
        self.fallback.reset(seed)
        if self.detector is not None:
            self.detector.reset()
        self.state, self._begun = GuardState(), False

    def release(self) -> None:
        """Lets the candidate act again; what the detector learnt stays."""
        self.state = GuardState(falls=self.state.falls)

    def act(self, sight: Sight) -> NDArray[np.float64]:
        seen = sight.observation
        fired = self.detector is not None and bool(self.detector.update(seen))
        if self._begun:  # before, somebody else decided
            self.state = advance(self.state, float(seen[SAVING]) if seen[KNOWN_SAVING] else None, fired, self.rule)
        self._begun = True
        wishes = {Mode.CANDIDATE: self.candidate.act(sight), Mode.FALLBACK: self.fallback.act(sight)}
        return wishes[self.state.mode]
