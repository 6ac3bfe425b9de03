"""Verification: the backend is asked anyway on a share of semantic hits, which measures how often they are wrong.

Kept apart for each partition, since traffic differs in how alike its different questions are.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv  # scipy.stats says the same and takes a second to import

from caches.errors import InputError
from caches.keys.request_key import Partition

CONFIDENCE = 0.95
CANDIDATES = 16


@dataclass(frozen=True)
class Outcome:
    """One verified hit: how similar the questions were, and whether the answer served was right."""

    similarity: float
    right: bool


@dataclass(frozen=True)
class WrongShare:
    """Of the verified hits. low and high: a 95 % interval for the share among all."""

    wrong: int
    verified: int
    low: float
    high: float

    @property
    def share(self) -> float:
        return self.wrong / self.verified


class Verification:
    """Decides by chance which hits are verified, and keeps what came out, the latest `kept` of each partition."""

    def __init__(self, share: float, seed: int, kept: int = 10_000) -> None:
        if not 0.0 <= share <= 1.0:
            raise InputError(f"verified share: got {share}, expected 0 to 1")
        self.share, self._kept = share, kept
        self._random = random.Random(seed)
        self._outcomes: dict[Partition, deque[Outcome]] = {}

    def chosen(self) -> bool:
        """Whether to verify the next hit. Independent of everything about it, so that those chosen stand for all."""
        return self._random.random() < self.share

    def record(self, partition: Partition, outcome: Outcome) -> None:
        self._outcomes.setdefault(partition, deque(maxlen=self._kept)).append(outcome)

    def outcomes(self, partition: Partition) -> tuple[Outcome, ...]:
        """The oldest first; none where nothing was verified."""
        return tuple(self._outcomes.get(partition, ()))

    def partitions(self) -> tuple[Partition, ...]:
        """Of which any hit was verified."""
        return tuple(self._outcomes)

    def wrong_share(self, partition: Partition, threshold: float = 0.0) -> WrongShare | None:
        """Among hits at or above a threshold; None where none of them was verified."""
        return wrong_share([one for one in self.outcomes(partition) if one.similarity >= threshold])


def wrong_share(outcomes: Sequence[Outcome]) -> WrongShare | None:
    if not outcomes:
        return None
    wrong = sum(not outcome.right for outcome in outcomes)
    return WrongShare(wrong, len(outcomes), *clopper_pearson(wrong, len(outcomes)))


def clopper_pearson(wrong: int, verified: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact interval of a share (Clopper and Pearson, Biometrika 1934): each end holds with at least half of the
    doubt. Chosen over Wilson's because it never promises more than it keeps, and with few wrong hits that matters."""
    if not 0 <= wrong <= verified or verified < 1:
        raise ValueError(f"got {wrong} wrong of {verified} verified")
    doubt = (1.0 - confidence) / 2.0
    low = 0.0 if wrong == 0 else float(betaincinv(wrong, verified - wrong + 1, doubt))
    high = 1.0 if wrong == verified else float(betaincinv(wrong + 1, verified - wrong, 1.0 - doubt))
    return low, high


def choose_threshold(
    outcomes: Sequence[Outcome], budget: float, confidence: float = CONFIDENCE, candidates: int = CANDIDATES
) -> float | None:
    """The lowest threshold at which the upper bound of the wrong share keeps the budget; None where no threshold is
    known to: then nothing should be served.

    Only a few thresholds are tried, at equal shares of the outcomes, and each with its part of the doubt (Bonferroni):
    the best of many bounds would be too good to be true. A budget of 2 % takes some 320 verified hits, none of them
    wrong; without the correction it would be 183, and the budget missed more often than stated. What was never served
    is never verified, so it never goes below the lowest similarity seen.
    """
    if not 0.0 < budget <= 1.0:
        raise InputError(f"wrong-hit budget: got {budget}, expected above 0, up to 1")
    each = 1.0 - (1.0 - confidence) / candidates
    for threshold in candidate_thresholds(outcomes, candidates):
        above = [outcome for outcome in outcomes if outcome.similarity >= threshold]
        wrong = sum(not outcome.right for outcome in above)
        if clopper_pearson(wrong, len(above), each)[1] <= budget:
            return threshold
    return None


def candidate_thresholds(outcomes: Sequence[Outcome], candidates: int = CANDIDATES) -> list[float]:
    """Similarities seen, from the lowest; chosen without a look at what was right."""
    if not outcomes:
        return []
    similarities = np.sort([outcome.similarity for outcome in outcomes])
    places = np.linspace(0, len(similarities), candidates, endpoint=False).astype(int)
    return [float(one) for one in np.unique(similarities[places])]
