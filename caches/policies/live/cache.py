"""The live in-process cache under any eviction and admission policy."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from caches.in_process import InProcessCache
from caches.policies.live.policy import LivePolicy
from caches.policies.settings import Admission, AdmitAll, Eviction, Lru
from caches.stats import Expiry

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def live_cache(
    capacity_bytes: int,
    ttl_seconds: float,
    expiry: Expiry = Expiry.SINCE_WRITE,
    most_swept: int | None = None,
    eviction: Eviction = Lru(),
    admission: Admission = AdmitAll(),
) -> InProcessCache[K, V]:
    """Least recently used without a rule of admission needs nothing beside the cache, and costs nothing beside it."""
    policy: LivePolicy[K] = LivePolicy(eviction, admission)
    return InProcessCache(capacity_bytes, ttl_seconds, expiry, most_swept, None if policy.plain else policy)
