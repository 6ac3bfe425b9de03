"""Which block of a prefix cache goes when there is no room, and which is taken in: the policies as settings, by name.

Whatever the policy, only a leaf may go: a block that nobody uses and that has no other behind it in its tier. Equal
names mean the same policy as in caches.policies.catalog. docs/prefix-caches.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from caches.errors import InputError
from caches.policies.rules import fading_of
from caches.policies.settings import AdmitAll, Lfu, Lru, LruK


@dataclass(frozen=True)
class DepthCost:
    """GDSF for blocks, which are of one size: the lowest age + uses x cost, the age being that figure of what went
    last (Cherkasova, HPL-98-69R1, 1998). A block costs what its prefill takes, in blocks at the beginning of a prompt:
    1 + attention_per_token x its position in tokens.

    attention_per_token: 4 x layers x hidden size over 2 x parameters, both operations per token; Qwen2.5-7B by default.
    """

    attention_per_token: float = 4 * 28 * 3_584 / (2 * 7.62e9)

    def __post_init__(self) -> None:
        if not 0 <= self.attention_per_token < 1:
            raise InputError(f"attention_per_token: got {self.attention_per_token}, expected 0 to 1")


@dataclass(frozen=True)
class HitDensity:
    """The block from which the fewest hits are to be expected for the time that it would take room.

    After LHD (N. Beckmann, H. Chen, A. Cidon, LHD: improving cache hit rate by maximizing hit density, NSDI 2018); how
    long to keep a block is chosen for each as in J. C. Gittins, Bandit processes and dynamic allocation indices, JRSS B
    41 (1979). What it expects it learns from the requests that it sees, see caches.policies.prefix_density.

    every: requests from one estimate to the next. strength: hits of a model without classes that each class starts
    from. half_life: requests after which what was seen counts half. A new block is not taken in where less is
    expected of it than of the one that would go, unless `takes_all`.
    """

    every: int = 64
    strength: float = 25.0
    half_life: int = 65_536
    takes_all: bool = False

    def __post_init__(self) -> None:
        for name in ("every", "half_life"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: got {getattr(self, name)}, expected 1 or more")
        if not self.strength > 0:
            raise InputError(f"strength: got {self.strength}, expected above 0")


@dataclass(frozen=True)
class KnownBlocks:
    """Blocks that were asked for before, as far as is remembered: vLLM's store_threshold of 2."""


PrefixEviction = Lru | LruK | Lfu | DepthCost | HitDensity
PrefixAdmission = AdmitAll | KnownBlocks
PREFIX_EVICTIONS: Mapping[str, PrefixEviction] = {
    "lru": Lru(),
    "lru-2": LruK(2),
    "lru-3": LruK(3),
    "lfu": Lfu(),
    "gdsf": DepthCost(),
    "hit-density": HitDensity(),
}
PREFIX_ADMISSIONS: Mapping[str, PrefixAdmission] = {"all": AdmitAll(), "second-hit": KnownBlocks()}

# PrefixRules.eviction and .admission
LRU, LRU_K, LFU, GDSF, HIT_DENSITY = range(5)
ALL, KNOWN, WORTHY = range(3)
REMEMBERED = 65_536


class PrefixRules(NamedTuple):
    """The same as numbers, for compiled functions. Of the numbers only those of the policy count.

    remembered: uses of which something is known, each of one request and one class of blocks; older ones are forgotten,
    and with them the blocks that were not used since. fading: of Lfu, what a use loses a second, as the logarithm of
    its weight. block_cost: attention's share for each block before. length, fresh: blocks, see
    caches.policies.prefix_density.
    """

    eviction: int
    admission: int
    remembered: int = REMEMBERED
    k: int = 1
    fading: float = 0.0
    block_cost: float = 0.0
    every: int = 64
    strength: float = 25.0
    half_life: int = 65_536
    length: int = 16
    fresh: int = 4


PROMPT_TOKENS, FRESH_TOKENS = 8_192, 2_048  # a short prompt, and a short continuation


def prefix_rules(
    eviction: PrefixEviction,
    block_tokens: int,
    admission: PrefixAdmission = AdmitAll(),
    remembered: int = REMEMBERED,
) -> PrefixRules:
    """Numbers as floats and ints exactly, so that Numba sees one type. InputError where they make no sense."""
    for name, value in (("block_tokens", block_tokens), ("remembered", remembered)):
        if value < 1:
            raise InputError(f"{name}: got {value}, expected 1 or more")
    number = {Lru: LRU, LruK: LRU_K, Lfu: LFU, DepthCost: GDSF, HitDensity: HIT_DENSITY}[type(eviction)]
    rules = PrefixRules(number, KNOWN if isinstance(admission, KnownBlocks) else ALL, int(remembered))
    length, fresh = (max(round(tokens / block_tokens), 1) for tokens in (PROMPT_TOKENS, FRESH_TOKENS))
    rules = rules._replace(length=length, fresh=fresh)
    if isinstance(eviction, LruK):
        return rules._replace(k=int(eviction.k))
    if isinstance(eviction, Lfu):
        return rules._replace(fading=fading_of(eviction))
    if isinstance(eviction, DepthCost):
        return rules._replace(block_cost=float(eviction.attention_per_token * block_tokens))
    if isinstance(eviction, HitDensity):
        worthy = rules.admission == ALL and not eviction.takes_all
        return rules._replace(
            admission=WORTHY if worthy else rules.admission,
            every=int(eviction.every),
            strength=float(eviction.strength),
            half_life=int(eviction.half_life),
        )
    return rules


def prefix_eviction_called(name: str) -> PrefixEviction:
    """Raises InputError where there is none of this name."""
    if name not in PREFIX_EVICTIONS:
        raise InputError(f"eviction_policy: got {name!r}, expected of {', '.join(PREFIX_EVICTIONS)}")
    return PREFIX_EVICTIONS[name]
