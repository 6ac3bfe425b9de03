"""The policies by name, as users write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from caches.errors import InputError
from caches.policies.settings import (
    Admission,
    AdmitAll,
    CostAware,
    Eviction,
    Gdsf,
    Lfu,
    LfuLru,
    Lru,
    LruK,
    S3Fifo,
    SecondHit,
    Sieve,
    TinyLfu,
    WTinyLfu,
)

EVICTIONS: Mapping[str, Eviction] = {
    "lru": Lru(),
    "lru-2": LruK(2),
    "lru-3": LruK(3),
    "lfu": Lfu(),
    "lfu-lru": LfuLru(),
    "gdsf": Gdsf(),
    "s3-fifo": S3Fifo(),
    "sieve": Sieve(),
    "w-tinylfu": WTinyLfu(),
}
ADMISSIONS: Mapping[str, Admission] = {
    "all": AdmitAll(),
    "second-hit": SecondHit(),
    "tinylfu": TinyLfu(),
    "cost-aware": CostAware(),
}
Kind = TypeVar("Kind")


def eviction_called(name: str) -> Eviction:
    """Raises InputError where there is none of this name."""
    return _called("eviction_policy", name, EVICTIONS)


def admission_called(name: str) -> Admission:
    """Raises InputError where there is none of this name."""
    return _called("admission", name, ADMISSIONS)


def _called(field: str, name: str, catalog: Mapping[str, Kind]) -> Kind:
    if name not in catalog:
        raise InputError(f"{field}: got {name!r}, expected of {', '.join(catalog)}")
    return catalog[name]
