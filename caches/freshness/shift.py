"""Whether answers drift: the same request, answered anew, says something else.

Renewals, answers asked for again and verified hits each give a pair of an old and a new answer to one request. A pair
has shifted where the cosine distance of their embeddings exceeds a limit, or, where both have token distributions and a
limit is set, Kullback and Leibler's divergence of the new one from the old one does. One shifted answer proves little:
it is replaced by the new one anyway. So pairs are counted by family, what one model answered in a partition or one tag
marks there, and a family has shifted when the 95 % interval of the share of its latest pairs that did lies above a
limit, of five pairs at least.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from caches.errors import InputError
from caches.freshness.answer_facts import divergence_nats, facts_of
from caches.freshness.recent import Recent
from caches.keys.request_key import RequestKey
from caches.semantic.embedder import Embedder
from caches.semantic.verification import clopper_pearson
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer

MOST_FAMILIES = 10_000  # clients choose tags
KEPT, LEAST = 20, 5  # pairs of a family: the latest that count, and how many it takes to say anything


@dataclass(frozen=True)
class ShiftRule:
    """cosine: largest distance of two answers that say the same. nats: largest divergence; None: not looked at. share:
    of pairs in a family that may shift. lifetime_share: what is left of the lifetimes of a family that has."""

    cosine: float = 0.18
    nats: float | None = None
    share: float = 0.1
    lifetime_share: float = 0.5

    def __post_init__(self) -> None:
        for name, low, high in (("cosine", 0.0, 2.0), ("share", 0.0, 1.0), ("lifetime_share", 0.0, 1.0)):
            value = getattr(self, name)
            if not low < value <= high:
                raise InputError(f"shift {name}: got {value}, expected above {low:g}, up to {high:g}")
        if self.nats is not None and not self.nats > 0.0:
            raise InputError(f"shift nats: got {self.nats}, expected above 0")


@dataclass(frozen=True)
class Shift:
    """Of a pair. cosine: distance of its embeddings, 0 for answers that are equal to the letter. nats: None without
    token distributions."""

    cosine: float
    nats: float | None
    shifted: bool


class Drift:
    """text: of an answer, what is embedded."""

    def __init__(self, embedder: Embedder, text: Callable[[Answer], str], rule: ShiftRule = ShiftRule()) -> None:
        self._embedder, self._text, self.rule = embedder, text, rule
        self._pairs: Recent[Selection, deque[bool]] = Recent(MOST_FAMILIES)
        self._shifted: set[Selection] = set()
        self.compared = self.shifts = 0

    def compare(self, old: Answer, new: Answer) -> Shift:
        """For a thread of its own: it may ask an embedder."""
        texts = self._text(old), self._text(new)
        cosine = 0.0 if texts[0] == texts[1] else self._distance(*texts)
        nats = None
        if self.rule.nats is not None:
            nats = divergence_nats(facts_of(new.body).distribution, facts_of(old.body).distribution)
        beyond = nats is not None and self.rule.nats is not None and nats > self.rule.nats
        return Shift(cosine, nats, cosine > self.rule.cosine or beyond)

    def record(self, key: RequestKey, shift: Shift) -> list[Selection]:
        """key: of the request, with the tags of the entry. Returns the families that have shifted by now and had not
        before."""
        self.compared += 1
        self.shifts += shift.shifted
        new = []
        for family in families(key):
            pairs = self._pairs.known_or(family, lambda: deque(maxlen=KEPT))
            pairs.append(shift.shifted)
            if len(pairs) < LEAST or clopper_pearson(sum(pairs), len(pairs))[0] <= self.rule.share:
                self._shifted.discard(family)
            elif family not in self._shifted:
                self._shifted.add(family)
                new.append(family)
        return new

    def begin_anew(self, family: Selection) -> None:
        """Nothing is known of it: its answers are others now."""
        self._pairs.drop(family)
        self._shifted.discard(family)

    def lifetime_share(self, key: RequestKey) -> float:
        """Of entries of this request, which has the entry's tags."""
        if not self._shifted:
            return 1.0
        return self.rule.lifetime_share if not self._shifted.isdisjoint(families(key)) else 1.0

    def shifted(self) -> list[Selection]:
        return sorted(self._shifted, key=_order)

    def _distance(self, one: str, other: str) -> float:
        """A text without any token is like nothing."""
        vectors = self._embedder.embed([one, other])
        return 1.0 - float(np.clip(vectors[0] @ vectors[1], -1.0, 1.0))


def families(key: RequestKey) -> list[Selection]:
    """Of each of its tags; of its model, where it has none."""
    if not key.tags:
        return [Selection(key.partition, key.model)]
    return [Selection(key.partition, tag=tag) for tag in sorted(key.tags)]


def _order(family: Selection) -> Any:
    return family.partition, family.model or "", family.tag or ""
