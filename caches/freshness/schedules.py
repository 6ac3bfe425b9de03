"""The schedules: fixed, by load, by quality, by sampling, by measured change. docs/freshness.md derives each
formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from caches.errors import InputError
from caches.freshness.change_rate import safe_age_seconds
from caches.freshness.lifetime import Context, EntryFacts, Schedule, Verdict

FIXED, LOAD, QUALITY, SAMPLING, HAZARD = "fixed", "load", "quality", "sampling", "hazard"
NAMES = (FIXED, LOAD, QUALITY, SAMPLING, HAZARD)

WORTH = {Verdict.USEFUL: 1.2, Verdict.WRONG: -0.8, Verdict.STALE: -0.8}
VERDICTS = 3  # that count, the latest ones
FLOOR, CEILING = 0.3, 1.5
NEUTRAL = (1.0 - FLOOR) / (CEILING - FLOOR)  # the score at which a lifetime is the base
MOST_ENTROPY_BITS = 8.0
GROWTH = 2.0  # a lifetime is never longer than this times the oldest answer that change was measured on


@dataclass(frozen=True)
class Fixed:
    """The base."""

    def lifetime(self, entry: EntryFacts, context: Context) -> float:
        return entry.base_ttl_seconds


@dataclass(frozen=True)
class ByLoad:
    """Longer under load, shorter when the backend fails."""

    def lifetime(self, entry: EntryFacts, context: Context) -> float:
        return entry.base_ttl_seconds * load_share(context.qps, context.error_rate)


@dataclass(frozen=True)
class ByQuality:
    """Longer where the model was sure and people were content."""

    def lifetime(self, entry: EntryFacts, context: Context) -> float:
        return entry.base_ttl_seconds * quality_share(entry.entropy_bits, entry.mean_logprob, entry.feedback)


@dataclass(frozen=True)
class BySampling:
    """Shorter where the request asks for variety. full_rounds: an answer that is expected to be good for so many
    repetitions lives the whole base."""

    full_rounds: float = 8.0

    def __post_init__(self) -> None:
        if not 0.0 < self.full_rounds < math.inf:
            raise InputError(f"full_rounds: got {self.full_rounds}, expected above 0")

    def lifetime(self, entry: EntryFacts, context: Context) -> float:
        if entry.temperature is None:
            return entry.base_ttl_seconds
        rounds = useful_rounds(entry.temperature, 1.0 if entry.top_p is None else entry.top_p)
        return entry.base_ttl_seconds * min(1.0, rounds / self.full_rounds)


@dataclass(frozen=True)
class ByHazard:
    """As long as the expected share of stale answers among hits keeps the budget, at the upper end of the measured
    change rate; never far beyond the ages that it was measured on."""

    stale_budget: float = 0.05

    def __post_init__(self) -> None:
        if not 0.0 < self.stale_budget < 1.0:
            raise InputError(f"stale_budget: got {self.stale_budget}, expected above 0, below 1")

    def lifetime(self, entry: EntryFacts, context: Context) -> float:
        if context.change_rate is None or context.longest_age_seconds is None:
            return entry.base_ttl_seconds
        reach = GROWTH * context.longest_age_seconds
        return min(safe_age_seconds(context.change_rate, self.stale_budget), reach)


def schedule_of(name: str, full_rounds: float = 8.0, stale_budget: float = 0.05) -> Schedule:
    """Raises InputError for an unknown name."""
    made: dict[str, Schedule] = {
        FIXED: Fixed(),
        LOAD: ByLoad(),
        QUALITY: ByQuality(),
        SAMPLING: BySampling(full_rounds),
        HAZARD: ByHazard(stale_budget),
    }
    if name not in made:
        raise InputError(f"freshness: got {name!r}, expected {', '.join(NAMES)}")
    return made[name]


def load_share(qps: float | None, error_rate: float | None) -> float:
    """1.5 - 2 e + 0.3 log10(q + 1), in [0.5, 2]. Without requests nothing is known: 1. Where the backend was not asked,
    it did not fail."""
    if qps is None:
        return 1.0
    failing = 0.0 if error_rate is None else error_rate
    return max(0.5, min(2.0, 1.5 - 2.0 * failing + 0.3 * math.log10(qps + 1.0)))


def quality_share(entropy_bits: float | None, mean_logprob: float | None, feedback: Sequence[Verdict]) -> float:
    """0.3 + 1.2 s, where s weighs certainty 0.6, confidence 0.3 and feedback 0.1, each in [0, 1]; what is not known
    counts as the score of the base."""
    bits = None if entropy_bits is None else min(max(entropy_bits, 0.0), MOST_ENTROPY_BITS)
    certainty = NEUTRAL if bits is None else 1.0 - bits / MOST_ENTROPY_BITS
    confidence = NEUTRAL if mean_logprob is None else math.exp(min(mean_logprob, 0.0))
    score = 0.6 * certainty + 0.3 * confidence + 0.1 * _content(feedback)
    return FLOOR + (CEILING - FLOOR) * score


def useful_rounds(temperature: float, top_p: float) -> float:
    """How often an answer is expected to be good again where each repetition is with the chance exp(-temperature
    top_p): 1 / (exp(temperature top_p) - 1); endless at temperature 0."""
    spread = max(temperature, 0.0) * max(top_p, 0.0)
    return math.inf if spread == 0.0 else 1.0 / math.expm1(min(spread, 700.0))


def _content(feedback: Sequence[Verdict]) -> float:
    """The latest verdicts: 0 for as bad as can be, 1 for as good, and the score of the base without any."""
    worth = sum(WORTH[verdict] for verdict in feedback[-VERDICTS:])
    if worth >= 0.0:
        return NEUTRAL + (1.0 - NEUTRAL) * worth / (VERDICTS * WORTH[Verdict.USEFUL])
    return NEUTRAL * (1.0 - worth / (VERDICTS * WORTH[Verdict.WRONG]))
