"""What is asked for often: candidates for a warm-up, ranked.

    worth of a candidate = popularity x share of its lifetime that is left x seconds that a miss takes

Popularity is a count that halves every `half_life_seconds`. What is left of a lifetime is that of the answer seen last;
a candidate whose answer is over is worth a whole one, since only the backend can give it a new one.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from caches.keys.request_key import RequestKey
from caches.tiers.tier import Answer


@dataclass(frozen=True)
class HotRule:
    """most: keys that are remembered; when there are more, the less popular half is forgotten."""

    half_life_seconds: float = 3_600.0
    most: int = 100_000


@dataclass
class _Seen:
    key: RequestKey
    popularity: float
    at_seconds: float
    written_seconds: float
    compute_seconds: float


@dataclass(frozen=True)
class Candidate:
    """over: whether the answer seen last is too old by now, so that only the backend has a new one."""

    key: RequestKey
    worth: float
    over: bool


class HotKeys:
    """Of requests as they pass; time comes from the caller and does not go back by more than clocks do."""

    def __init__(self, rule: HotRule = HotRule()) -> None:
        self._rule, self._seen = rule, dict[bytes, _Seen]()

    def __len__(self) -> int:
        return len(self._seen)

    def seen(self, key: RequestKey, answer: Answer, now_seconds: float) -> None:
        """A request, and the answer that it got."""
        known = self._seen.get(key.id)
        if known is None:
            if len(self._seen) >= self._rule.most:
                self._forget(now_seconds)
            known = self._seen[key.id] = _Seen(key, 0.0, now_seconds, 0.0, 0.0)
        known.popularity = self._popularity(known, now_seconds) + 1.0
        known.at_seconds = max(known.at_seconds, now_seconds)
        known.written_seconds, known.compute_seconds = answer.written_seconds, answer.compute_seconds

    def ranked(self, now_seconds: float, ttl_seconds: float, share: float = 1.0) -> list[Candidate]:
        """The best share of all, best first. ttl_seconds: of the tier that is to be warmed."""
        every = [self._candidate(one, now_seconds, ttl_seconds) for one in self._seen.values()]
        return heapq.nlargest(round(share * len(every)), every, key=lambda one: (one.worth, one.key.fingerprint))

    def _candidate(self, one: _Seen, now: float, ttl_seconds: float) -> Candidate:
        left = 1.0 - max(now - one.written_seconds, 0.0) / ttl_seconds
        worth = self._popularity(one, now) * one.compute_seconds * (left if left > 0 else 1.0)
        return Candidate(one.key, worth, left <= 0)

    def _popularity(self, one: _Seen, now: float) -> float:
        return float(one.popularity * 0.5 ** (max(now - one.at_seconds, 0.0) / self._rule.half_life_seconds))

    def _forget(self, now: float) -> None:
        """Costs a pass over all of them, once in `most / 2` new ones."""
        kept = heapq.nlargest(self._rule.most // 2, self._seen.items(), key=lambda item: self._popularity(item[1], now))
        self._seen = dict(kept)
