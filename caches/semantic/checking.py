"""From verified hits to the threshold: what keeps the wrong ones within the operator's budget, for each partition.

After every `every` verified hits of a partition:

    a threshold is known to keep the budget       the lowest of them is set
    the one that binds is known to exceed it      equal requests only, from now on
    neither is known                              it stays

One above the operator's highest cannot be set, so it does not count. `Known` is the 95 % bound of `verification`. Who
starts with a threshold that is too low is caught by the second line, after as many wrong hits as it takes to know;
whoever wants proof first starts with None and verifies elsewhere.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from caches.errors import InputError
from caches.keys.request_key import Partition, RequestKey
from caches.semantic.matching import Matching
from caches.semantic.same_answer import SameAnswer
from caches.semantic.verification import Outcome, Verification, choose_threshold
from caches.tiers.tier import Answer, Found


@dataclass(frozen=True)
class Budget:
    """wrong_share: of hits by meaning that may be wrong; None: it is only measured. every: verified hits between two
    looks at them."""

    wrong_share: float | None = 0.02
    every: int = 20

    def __post_init__(self) -> None:
        if self.wrong_share is not None and not 0.0 < self.wrong_share <= 1.0:
            raise InputError(f"wrong-hit budget: got {self.wrong_share}, expected above 0, up to 1")


class HitChecker:
    """text: of an answer, what is compared. budget: of all partitions, or of each."""

    def __init__(
        self,
        tier: Matching,
        verification: Verification,
        same: SameAnswer,
        text: Callable[[Answer], str],
        budget: Budget | Callable[[Partition], Budget] = Budget(),
    ) -> None:
        self.tier, self.verification = tier, verification
        self._same, self._text = same, text
        self._budget_of: Callable[[Partition], Budget] = (lambda _: budget) if isinstance(budget, Budget) else budget
        self._since: Counter[Partition] = Counter()

    def chosen(self, found: Found) -> bool:
        """Whether to verify this hit; always False for an equal request."""
        return found.similarity < 1.0 and self.verification.chosen()

    async def check(self, key: RequestKey, found: Found, call: Callable[[], Awaitable[Answer]]) -> bool:
        """Asks the backend anyway, off the path of the request that was served; returns whether the hit was right.
        What `call` raises is raised, and nothing is recorded then."""
        fresh = await call()
        # in a thread: it may ask an embedder, which takes its time
        right = await asyncio.to_thread(self._same, self._text(found.answer), self._text(fresh))
        self.verification.record(key.partition, Outcome(found.similarity, right))
        self._since[key.partition] += 1
        budget = self._budget_of(key.partition)
        if budget.wrong_share is not None and self._since[key.partition] >= budget.every:
            self._since[key.partition] = 0
            self._keep_budget(key.partition, budget.wrong_share)
        return right

    def _keep_budget(self, partition: Partition, budget: float) -> None:
        found = choose_threshold(self.verification.outcomes(partition), budget)
        if found is not None and found <= self.tier.threshold_knob.high:
            self.tier.set_similarity_threshold(found, partition)
            return
        binding = self.tier.similarity_threshold(partition)
        known = None if binding is None else self.verification.wrong_share(partition, binding)
        if known is not None and known.low > budget:
            self.tier.set_similarity_threshold(None, partition)
