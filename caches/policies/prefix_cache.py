"""One prefix cache over one trace under any policy, driven request by request: caches.shadow.chain.PrefixCache with an
eviction policy and an admission."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from caches.policies import prefix_kernel
from caches.policies.prefix_notes import empty_notes
from caches.policies.prefix_settings import PrefixRules
from caches.shadow.chain import PrefixCache
from caches.shadow.trie import Chains

Array = NDArray[Any]


class PolicyPrefixCache(PrefixCache):
    """Memory: that of PrefixCache and of caches.policies.prefix_notes."""

    def __init__(
        self,
        chains: Chains,
        rules: PrefixRules,
        upper_blocks: int,
        ttl_seconds: float = np.inf,
        lower_blocks: int = 0,
    ) -> None:
        super().__init__(chains, upper_blocks, ttl_seconds, lower_blocks)
        self.rules, self.notes = rules, empty_notes(len(chains.parent), rules)

    def apply(self, upper_blocks: int, ttl_seconds: float, now_seconds: float) -> None:
        self._set(upper_blocks, ttl_seconds)
        self._expire(now_seconds)
        prefix_kernel.resize(self.chains, self.state, self.notes, self.rules, self.room, now_seconds)

    def arrive(self, t: int, now_seconds: float) -> tuple[int, int]:
        self._check_idle(t)
        self._expire(now_seconds)
        upper, lower, self._held[t] = prefix_kernel.admit(self.chains, self._cache, self.room, t, now_seconds)
        return upper, lower

    def finish(self, t: int, now_seconds: float) -> None:
        self._check_running(t)
        self._expire(now_seconds)
        prefix_kernel.release(self.chains, self._cache, self.room, t, self._held.pop(t), now_seconds)

    def warm(self, t: int, now_seconds: float) -> int:
        self._expire(now_seconds)
        return int(prefix_kernel.warm(self.chains, self._cache, self.room, t, now_seconds))

    def run(self, stop: int) -> Array:
        now = self._now if np.isfinite(self._now) else 0.0
        return self.run_at(np.full(stop, now))

    def run_at(self, seconds: Array) -> Array:
        """As `run`, for as many requests as there are times, each at its own; float64 (requests,), in order."""
        seconds = np.ascontiguousarray(seconds, np.float64)
        if len(seconds) > len(self.chains.offsets) - 1 or np.any(np.diff(seconds) < 0):
            raise InputError(f"seconds: got {len(seconds)}, expected one for each of the first requests, in order")
        return prefix_kernel.run_in_turn(self.chains, self._cache, self.room, seconds)

    @property
    def _cache(self) -> Any:
        return self.state, self.notes, self.rules

    def _expire(self, now_seconds: float) -> None:
        self._check_time(now_seconds)
        prefix_kernel.expire(self.chains, self.state, self.notes, self.room, self.ttl_seconds, now_seconds)
