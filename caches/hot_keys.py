"""What is asked for often: candidates for a warm-up, ranked.

    worth of a candidate = popularity x share of its lifetime that is left x seconds that a miss takes

Popularity is a count that halves every `half_life_seconds`. What is left of a lifetime is that of the answer seen last;
a candidate whose answer is over is worth a whole one, since only the backend can give it a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from caches.keys.request_key import Partition, RequestKey
from caches.tiers.tier import Answer

FloatArray = NDArray[np.float64]
LN2 = float(np.log(2.0))  # of a constant rate, a popularity is that many half-lives' requests over it


@dataclass(frozen=True)
class HotRule:
    """most: keys that are remembered; when there are more, the less popular half is forgotten. longest_question: in
    characters; of longer ones the text is not kept, so what is remembered has a bound. Equal requests are all that such
    an entry serves then, as in the semantic tier."""

    half_life_seconds: float = 3_600.0
    most: int = 100_000
    longest_question: int = 1_000


@dataclass
class _Seen:
    key: RequestKey
    popularity: float
    at_seconds: float
    written_seconds: float
    compute_seconds: float


@dataclass(frozen=True)
class Candidate:
    """over: whether the answer seen last is too old by now, so that only the backend has a new one. popularity: now."""

    key: RequestKey
    worth: float
    over: bool
    popularity: float = 0.0


class HotKeys:
    """Of requests as they pass; time comes from the caller and does not go back by more than clocks do."""

    def __init__(self, rule: HotRule = HotRule()) -> None:
        self._rule, self._seen = rule, dict[bytes, _Seen]()

    def __len__(self) -> int:
        return len(self._seen)

    def seen(self, key: RequestKey, answer: Answer, now_seconds: float) -> None:
        """A request, and the answer that it got."""
        known = self._known(key, now_seconds)
        known.popularity = self._popularity(known, now_seconds) + 1.0
        self._learn(known, answer, now_seconds)

    def learn(self, key: RequestKey, answer: Answer, popularity: float, now_seconds: float) -> None:
        """What another process saw; learning the same twice changes nothing."""
        known = self._known(key, now_seconds)
        known.popularity = max(self._popularity(known, now_seconds), popularity)
        self._learn(known, answer, now_seconds)

    def ranked(
        self,
        now_seconds: float,
        ttl_seconds: float,
        share: float = 1.0,
        among: Callable[[Partition], bool] | None = None,
    ) -> list[Candidate]:
        """The best share of all, best first; of equals, who was seen first. ttl_seconds: of the tier that is to be
        warmed. among: whose requests; of all partitions by default. May run in a thread beside the one that sees
        requests."""
        seen = list(self._seen.values())  # in one step: requests may be added meanwhile
        if among is not None:
            seen = [one for one in seen if among(one.key.partition)]
        table = _table(seen)
        popularity = self._popularities(table, now_seconds)
        left = 1.0 - np.maximum(now_seconds - table[:, 2], 0.0) / ttl_seconds
        worth = popularity * table[:, 3] * np.where(left > 0, left, 1.0)
        best = np.argsort(-worth, kind="stable")[: round(share * len(seen))].tolist()
        return [
            Candidate(seen[one].key, float(worth[one]), bool(left[one] <= 0), float(popularity[one])) for one in best
        ]

    def weights(
        self, now_seconds: float, ttl_seconds: float, among: Callable[[Partition], bool] = lambda _: True
    ) -> tuple[list[bytes], FloatArray]:
        """Keys by their ids, and what each stands for, shape (n, 2): requests a second, and seconds of the backend a
        second where an answer is kept for `ttl_seconds`. Of requests that come at random one in 1 + rate * lifetime
        misses then. May run in a thread beside the one that sees requests."""
        seen = [one for one in list(self._seen.values()) if among(one.key.partition)]
        table = _table(seen)
        rate = self._popularities(table, now_seconds) * (LN2 / self._rule.half_life_seconds)
        misses = rate / (1.0 + rate * ttl_seconds)
        return [one.key.id for one in seen], np.stack((rate, misses * table[:, 3]), axis=1)

    def _known(self, key: RequestKey, now: float) -> _Seen:
        known = self._seen.get(key.id)
        if known is None:
            if len(self._seen) >= self._rule.most:
                self._forget(now)
            kept = replace(key, question=None) if len(key.question or "") > self._rule.longest_question else key
            known = self._seen[key.id] = _Seen(kept, 0.0, now, 0.0, 0.0)
        return known

    def _learn(self, known: _Seen, answer: Answer, now: float) -> None:
        known.at_seconds = max(known.at_seconds, now)
        known.written_seconds, known.compute_seconds = answer.written_seconds, answer.compute_seconds

    def _popularity(self, one: _Seen, now: float) -> float:
        return float(one.popularity * 0.5 ** (max(now - one.at_seconds, 0.0) / self._rule.half_life_seconds))

    def _forget(self, now: float) -> None:
        """Costs a pass over all of them, once in `most / 2` new ones; in arrays, since a request waits for it."""
        names = list(self._seen)
        popularity = self._popularities(_table(list(self._seen.values())), now)
        kept = np.argsort(-popularity, kind="stable")[: self._rule.most // 2].tolist()
        self._seen = {names[one]: self._seen[names[one]] for one in kept}

    def _popularities(self, table: FloatArray, now: float) -> FloatArray:
        """Shape (n,), of a `_table`."""
        ages = np.maximum(now - table[:, 1], 0.0)
        return np.asarray(table[:, 0] * 0.5 ** (ages / self._rule.half_life_seconds))


def _table(seen: Sequence[_Seen]) -> FloatArray:
    """Shape (n, 4): popularity, when it was that, when the answer was written, what it took."""
    rows = [(one.popularity, one.at_seconds, one.written_seconds, one.compute_seconds) for one in seen]
    return np.array(rows, np.float64).reshape(-1, 4)
