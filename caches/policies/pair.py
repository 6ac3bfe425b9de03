"""An eviction and an admission policy by their names: what a cache does per request, whatever its settings are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from caches.errors import InputError
from caches.policies.catalog import ADMISSIONS, EVICTIONS
from caches.policies.prefix_settings import PREFIX_ADMISSIONS, PREFIX_EVICTIONS, PrefixRules, prefix_rules
from caches.policies.rules import SECOND_HIT, Rules, rules_of

EVERY = "all"  # of the eviction policies
Kind = Literal["response", "prefix"]  # of cache
EVICTION_NAMES: Mapping[Kind, tuple[str, ...]] = {"response": tuple(EVICTIONS), "prefix": tuple(PREFIX_EVICTIONS)}
ADMISSION_NAMES: Mapping[Kind, tuple[str, ...]] = {"response": tuple(ADMISSIONS), "prefix": tuple(PREFIX_ADMISSIONS)}


@dataclass(frozen=True)
class CachePolicy:
    """eviction, admission: names that some kind of cache has. Raises InputError for others; whether the kind at hand
    has them, `require` says."""

    eviction: str = "lru"
    admission: str = "all"

    def __post_init__(self) -> None:
        self._check(_of_any(EVICTION_NAMES), _of_any(ADMISSION_NAMES))

    def __str__(self) -> str:
        return self.eviction if self.admission == "all" else f"{self.eviction} + {self.admission}"

    @property
    def plain(self) -> bool:
        """Least recently used without a rule of admission, for which caches.shadow does."""
        return self == PLAIN

    def require(self, kind: Kind) -> None:
        """Raises InputError, with the names that there are, unless that kind of cache has both."""
        self._check(EVICTION_NAMES[kind], ADMISSION_NAMES[kind], f" in a {kind} cache")

    def _check(self, evictions: tuple[str, ...], admissions: tuple[str, ...], where: str = "") -> None:
        told = (("eviction_policy", self.eviction, evictions), ("admission", self.admission, admissions))
        for field, name, known in told:
            if name not in known:
                raise InputError(f"{field}: got {name!r}, expected of {', '.join(known)}{where}")

    @property
    def rules(self) -> Rules:
        """Of a response cache, with the catalog's parameters. Raises InputError where it has none of these names."""
        self.require("response")
        return rules_of(EVICTIONS[self.eviction], ADMISSIONS[self.admission])

    def prefix_rules(self, block_tokens: int) -> PrefixRules:
        """Of a prefix cache, as `rules`."""
        self.require("prefix")
        return prefix_rules(PREFIX_EVICTIONS[self.eviction], block_tokens, PREFIX_ADMISSIONS[self.admission])


def _of_any(names: Mapping[Kind, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(names.values())))


PLAIN = CachePolicy()


def policies_called(
    evictions: str | Sequence[str], admissions: Sequence[str] = ("all",), kind: Kind = "response"
) -> tuple[CachePolicy, ...]:
    """Each eviction policy with each rule of admission, in the order of their names, each pair once. evictions: a name,
    several, or EVERY of that kind of cache. Raises InputError for a name that it does not have, and for none."""
    names = (evictions,) if isinstance(evictions, str) else tuple(evictions)
    names = EVICTION_NAMES[kind] if names == (EVERY,) else names
    for field, told in (("eviction_policy", names), ("admission", admissions)):
        if not told:
            raise InputError(f"{field}: got none, expected at least one")
    found = tuple(dict.fromkeys(CachePolicy(one, other) for one in names for other in admissions))
    for policy in found:
        policy.require(kind)
    return found


def in_miniature(rules: Rules, share: float) -> Rules:
    """The same for a share of the keys: what is counted in keys is that share, all else is one of capacity or time."""
    if rules.admission != SECOND_HIT:
        return rules
    return rules._replace(remembered=max(1, round(share * rules.remembered)))
