"""An eviction and an admission policy by their names: what a cache does per request, whatever its settings are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from caches.errors import InputError
from caches.policies.catalog import EVICTIONS, admission_called, eviction_called
from caches.policies.rules import SECOND_HIT, Rules, rules_of

EVERY = "all"  # of the eviction policies


@dataclass(frozen=True)
class CachePolicy:
    """eviction, admission: names of caches.policies.catalog. Raises InputError for others."""

    eviction: str = "lru"
    admission: str = "all"

    def __post_init__(self) -> None:
        eviction_called(self.eviction)
        admission_called(self.admission)

    def __str__(self) -> str:
        return self.eviction if self.admission == "all" else f"{self.eviction} + {self.admission}"

    @property
    def plain(self) -> bool:
        """Least recently used without a rule of admission, for which caches.shadow.kernel does."""
        return self == PLAIN

    @property
    def rules(self) -> Rules:
        """With the catalog's parameters."""
        return rules_of(eviction_called(self.eviction), admission_called(self.admission))


PLAIN = CachePolicy()


def policies_called(evictions: str | Sequence[str], admissions: Sequence[str] = ("all",)) -> tuple[CachePolicy, ...]:
    """Each eviction policy with each rule of admission, in the order of their names, each pair once. evictions: a name,
    several, or EVERY of the catalog. Raises InputError for an unknown name, and for none."""
    names = (evictions,) if isinstance(evictions, str) else tuple(evictions)
    names = tuple(EVICTIONS) if names == (EVERY,) else names
    for field, told in (("eviction_policy", names), ("admission", admissions)):
        if not told:
            raise InputError(f"{field}: got none, expected at least one")
    return tuple(dict.fromkeys(CachePolicy(one, other) for one in names for other in admissions))


def in_miniature(rules: Rules, share: float) -> Rules:
    """The same for a share of the keys: what is counted in keys is that share, all else is one of capacity or time."""
    if rules.admission != SECOND_HIT:
        return rules
    return rules._replace(remembered=max(1, round(share * rules.remembered)))
