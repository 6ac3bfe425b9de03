"""What an operator runs now, as written on the command line: `size=64MiB,ttl=1h,warmup=0.2,policy=sieve`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from caches.errors import InputError
from caches.knobs import KnobSettings, KnobSpace
from caches.policies.pair import PLAIN, CachePolicy
from tuner.whatif_result import amount

_BYTES = {"": 1.0, "b": 1.0}
for _power, _letter in enumerate("kmgt", 1):
    _BYTES |= {f"{_letter}b": 1000.0**_power, f"{_letter}ib": 1024.0**_power, _letter: 1024.0**_power}
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_NUMBER = re.compile(r"([0-9][0-9_]*\.?[0-9]*(?:e[0-9]+)?)\s*([a-z%]*)", re.IGNORECASE)
_NAMES = {
    "size": "size",
    "cache_size": "size",
    "ttl": "ttl",
    "ttl_seconds": "ttl",
    "warmup": "warmup",
    "warmup_ratio": "warmup",
    "policy": "policy",
    "eviction_policy": "policy",
    "admission": "admission",
}
NEVER = ("never", "none", "inf")


@dataclass(frozen=True)
class Wish:
    """What was written; None for what was not. size_share: of the trace's distinct bytes. ttl_seconds may be inf.
    eviction_policy, admission: names of caches.policies.pair."""

    size_bytes: float | None = None
    size_share: float | None = None
    ttl_seconds: float | None = None
    warmup_ratio: float | None = None
    eviction_policy: str | None = None
    admission: str | None = None

    @property
    def empty(self) -> bool:
        return all(getattr(self, field.name) is None for field in fields(self))


def parse_wish(text: str) -> Wish:
    """Raises InputError that names the part which is wrong."""
    given: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        knob = _NAMES.get(name.lower())
        if knob is None or not equals or not value:
            raise InputError(
                f"--current: got {part.strip()!r}, expected size=, ttl=, warmup= as in size=64MiB,ttl=1h, "
                "policy= or admission="
            )
        field, said = _PARSERS[knob](value)
        if knob in {_FIELDS[one] for one in given}:
            raise InputError(f"--current: got {knob} twice, expected it once")
        given[field] = said
    return Wish(**given)


@dataclass(frozen=True)
class Place:
    """Where a wish is to be understood. footprint_bytes: of all distinct entries. size_unit: bytes, or entries where
    every response counts 1."""

    knobs: KnobSpace
    footprint_bytes: float
    span_seconds: float
    size_unit: str = "bytes"


def settle(wish: Wish, place: Place) -> tuple[KnobSettings, list[str]]:
    """The wish as settings, and remarks on what was taken for granted. What was not written is the knob's default."""
    knobs = place.knobs
    default, remarks = knobs.default(), []
    size, ttl, warmup = wish.size_bytes, wish.ttl_seconds, wish.warmup_ratio
    if wish.size_share is not None:
        size = wish.size_share * place.footprint_bytes
    if size is None:
        size = default.cache_size
        remarks.append(
            f"No current size was given; the configured default of {amount(size, place.size_unit)} is taken."
        )
    if ttl is None:
        ttl = default.ttl_seconds
        remarks.append(f"No current TTL was given; the configured default of {amount(ttl, 's')} is taken.")
    elif math.isinf(ttl):
        ttl = max(knobs.ttl_seconds.high, 2.0 * place.span_seconds)
        remarks.append(f"A TTL of never is shown as {amount(ttl, 's')}, an age that no entry reaches here.")
    for knob, value, unit in ((knobs.cache_size, size, place.size_unit), (knobs.ttl_seconds, ttl, "s")):
        if not knob.low <= value <= knob.high:
            low, high = amount(knob.low, unit), amount(knob.high, unit)
            remarks.append(
                f"The current {knob.name} of {amount(value, unit)} is outside of the range {low} to {high} that is "
                "searched ([knobs] of the settings widens it)."
            )
    return KnobSettings(size, ttl, default.warmup_ratio if warmup is None else warmup), remarks


def _size(value: str) -> tuple[str, float]:
    number, unit = _split(value)
    if unit == "%" and number is not None and number > 0:
        return "size_share", number / 100.0
    if number is None or unit not in _BYTES or not 0 < number * _BYTES[unit] < 2.0**62:
        raise InputError(f"--current size: got {value!r}, expected bytes as in 64MiB or 500000, or a share as in 10%")
    return "size_bytes", number * _BYTES[unit]


def _ttl(value: str) -> tuple[str, float]:
    if value.lower() in NEVER:
        return "ttl_seconds", math.inf
    number, unit = _split(value)
    if number is None or unit not in _SECONDS or not number > 0:
        raise InputError(f"--current ttl: got {value!r}, expected seconds as in 3600, or 90s, 10min, 1h, 7d, never")
    return "ttl_seconds", number * _SECONDS[unit]


def _warmup(value: str) -> tuple[str, float]:
    number, unit = _split(value)
    ratio = None if number is None else number / 100.0 if unit == "%" else number
    if ratio is None or unit not in ("", "%") or not 0 <= ratio <= 1:
        raise InputError(f"--current warmup: got {value!r}, expected a share from 0 to 1, or 0% to 100%")
    return "warmup_ratio", ratio


def _policy(value: str) -> tuple[str, str]:
    return "eviction_policy", CachePolicy(value).eviction


def _admission(value: str) -> tuple[str, str]:
    return "admission", CachePolicy(admission=value).admission


def policy_of(wish: Wish, configured: Sequence[CachePolicy]) -> tuple[CachePolicy, list[str]]:
    """Which policy runs now, and remarks on what was taken for granted. What was not written is the configured one, or
    least recently used where several are."""
    default = configured[0] if len(configured) == 1 else PLAIN
    admission = default.admission if wish.admission is None else wish.admission
    if wish.eviction_policy is not None:
        return CachePolicy(wish.eviction_policy, admission), []
    taken = f"No current eviction policy was given; {default.eviction} is taken."
    return CachePolicy(default.eviction, admission), [taken] if len(configured) > 1 else []


def _split(value: str) -> tuple[float | None, str]:
    found = _NUMBER.fullmatch(value)
    return (None, "") if found is None else (float(found[1]), found[2].lower())


_PARSERS: dict[str, Callable[[str], tuple[str, float | str]]] = {
    "size": _size,
    "ttl": _ttl,
    "warmup": _warmup,
    "policy": _policy,
    "admission": _admission,
}
_FIELDS = {"size_bytes": "size", "size_share": "size", "ttl_seconds": "ttl", "warmup_ratio": "warmup"}
_FIELDS |= {"eviction_policy": "policy", "admission": "admission"}
