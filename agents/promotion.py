"""Promotion: whether a policy version has earned to be the champion, and making it so.

The rule: the lower bound of its saving against the current champion, if there is one, and against the best
static setting are both above zero, and constraints were violated no more than is tolerated. What was not measured
counts against it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from agents.registry import Registry
from caches.errors import InputError, NotFound

_EVIDENCE_TAG = "promotion_evidence"


@dataclass(frozen=True)
class Saving:
    """What a policy saves against another on the same traffic: mean and bounds of its confidence interval.

    All in USD per 1,000 requests; above zero where it is cheaper. `confidence` is in (0, 1).
    """

    mean_usd_per_1000: float
    low_usd_per_1000: float
    high_usd_per_1000: float
    confidence: float = 0.95

    def __post_init__(self) -> None:
        numbers = (self.low_usd_per_1000, self.mean_usd_per_1000, self.high_usd_per_1000)
        if not all(map(math.isfinite, numbers)) or list(numbers) != sorted(numbers):
            raise InputError(f"saving: got low, mean and high {numbers}, expected finite and in this order")
        if not 0 < self.confidence < 1:
            raise InputError(f"saving, confidence: got {self.confidence}, expected in (0, 1)")

    def __str__(self) -> str:
        return (
            f"{self.mean_usd_per_1000:.6g} USD per 1,000 requests ({self.confidence:.0%} interval "
            f"{self.low_usd_per_1000:.6g} to {self.high_usd_per_1000:.6g})"
        )


@dataclass(frozen=True)
class PromotionEvidence:
    """What an evaluation on held-out traffic says about one version; None where there is no data.

    champion: the version that was champion then, None without one. violated_intervals: control intervals in
    which each constraint was violated, by the constraint's name, out of `intervals`. tolerated_violations: the most
    that these may be together (an interval that violates two constraints counts twice).
    """

    candidate: int
    champion: int | None
    intervals: int
    saving_over_champion: Saving | None
    saving_over_best_static: Saving | None
    violated_intervals: Mapping[str, int] | None
    tolerated_violations: int = 0

    def __post_init__(self) -> None:
        if self.champion is None and self.saving_over_champion is not None:
            raise InputError("promotion evidence: got a saving over the champion, but no champion")
        counts = (self.violated_intervals or {}).values()
        if self.tolerated_violations < 0:
            raise InputError(f"promotion evidence: got {self.tolerated_violations} tolerated, expected 0 or more")
        if self.intervals < 0 or not all(0 <= count <= self.intervals for count in counts):
            raise InputError(
                f"promotion evidence: got {dict(self.violated_intervals or {})} violated of "
                f"{self.intervals} intervals, expected counts from 0 to all"
            )


@dataclass(frozen=True)
class Promotion:
    """A decision about a promotion: each reason against it as a sentence with its numbers."""

    reasons: tuple[str, ...]

    @property
    def promote(self) -> bool:
        return not self.reasons


def decide(evidence: PromotionEvidence) -> Promotion:
    """Apply the rule; changes nothing."""
    reasons = []
    if evidence.intervals == 0:
        reasons.append("The evaluation covers no control interval.")
    if evidence.candidate == evidence.champion:
        reasons.append(f"Version {evidence.candidate} is the champion already.")
    elif evidence.champion is not None:
        rival = f"the champion, version {evidence.champion}"
        reasons += _against_saving(rival, evidence.saving_over_champion)
    reasons += _against_saving("the best static setting", evidence.saving_over_best_static)
    reasons += _against_violations(evidence)
    return Promotion(tuple(reasons))


def promote(registry: Registry, evidence: PromotionEvidence, *, dry_run: bool = False) -> Promotion:
    """Make the candidate the champion if the rule allows it and the champion is still `evidence.champion`.

    Of promotions that run at the same time with the same `evidence.champion` at most one wins, the others are
    told that the champion changed; Registry.swap_champion says what that rests on. dry_run: decide and look
    at the champion, but move nothing. Raises NotFound for a candidate that is not registered.
    """
    registry.version(evidence.candidate)
    decision = decide(evidence)
    if not decision.promote or dry_run:
        found = registry.champion()
    else:
        found = registry.swap_champion(evidence.candidate, evidence.champion)
    if found == evidence.champion:
        return decision
    changed = (
        f"The champion changed: the evidence was made against {_named(evidence.champion)}, "
        f"now it is {_named(found)}; evaluate again."
    )
    return Promotion((*decision.reasons, changed))


def record_evidence(registry: Registry, evidence: PromotionEvidence) -> None:
    """Keep the evidence with the version it is about; the last one recorded counts."""
    registry.set_tag(evidence.candidate, _EVIDENCE_TAG, _EVIDENCE.dump_json(evidence).decode())


def recorded_evidence(registry: Registry, version: int) -> PromotionEvidence:
    """What was recorded last. Raises NotFound where the version is unknown or was never evaluated."""
    text = registry.version(version).tags.get(_EVIDENCE_TAG)
    if text is None:
        raise NotFound(f"policy {registry.model_name}, version {version}: it was not evaluated yet")
    try:
        return _EVIDENCE.validate_json(text)
    except ValidationError as error:
        place = f"policy {registry.model_name}, version {version}, tag {_EVIDENCE_TAG}"
        raise InputError(f"{place}: {error.errors(include_url=False)[0]['msg'].lower()}") from error


_EVIDENCE = TypeAdapter(PromotionEvidence)


def _against_saving(rival: str, saving: Saving | None) -> list[str]:
    if saving is None:
        return [f"There is no measured saving against {rival}."]
    if saving.low_usd_per_1000 > 0:
        return []
    return [f"The saving against {rival} is {saving}: its lower bound is not above zero."]


def _against_violations(evidence: PromotionEvidence) -> list[str]:
    if evidence.violated_intervals is None:
        return ["The constraints were not measured."]
    counts = {name: count for name, count in sorted(evidence.violated_intervals.items()) if count}
    tolerated = evidence.tolerated_violations
    if sum(counts.values()) <= tolerated:
        return []
    excuse = f"; {tolerated} {'is' if tolerated == 1 else 'are'} tolerated in all" if tolerated else ""
    return [
        f"Constraint {name} was violated in {count} of {evidence.intervals} control intervals{excuse}."
        for name, count in counts.items()
    ]


def _named(version: int | None) -> str:
    return "no champion" if version is None else f"version {version}"
