"""What depends on what: tiers, upstreams, and the ways to answer. Where one is down, so is all that depends on it.

Only being down passes on: what depends on something slow may still be quick enough, and its own breaker says if not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from caches.breaker import Breaker, BreakerRule
from caches.errors import InputError
from caches.guards.health import Condition, HasCondition


class Dependencies:
    """on: by name, the names of what it depends on. known: all names that there are. Raises InputError for a name that
    is not known, and for a cycle, which it names."""

    def __init__(self, on: Mapping[str, Sequence[str]], known: Sequence[str]) -> None:
        for name, others in on.items():
            for one in (name, *others):
                if one not in known:
                    raise InputError(f"depends_on.{name}: got {one!r}, expected of {', '.join(known)}")
        try:
            self.order = tuple(TopologicalSorter(on).static_order())
        except CycleError as error:
            cycle = " -> ".join(reversed(error.args[1]))  # graphlib lists who is depended on first
            raise InputError(f"depends_on: got the cycle {cycle}, expected none") from None
        self._on = {name: tuple(dict.fromkeys(others)) for name, others in on.items()}

    def all_of(self, name: str) -> tuple[str, ...]:
        """Everything that it depends on, at whatever distance, each once."""
        found: dict[str, None] = {}
        left = list(self._on.get(name, ()))
        while left:
            one = left.pop(0)
            if one not in found:
                found[one] = None
                left += self._on.get(one, ())
        return tuple(found)


class DependentBreaker(Breaker):
    """Of what is of no use while something else is down: its calls are then kept back, without a failure of its own."""

    def __init__(self, rule: BreakerRule, on: Sequence[HasCondition]) -> None:
        super().__init__(rule)
        self._on = tuple(on)

    def would_allow(self, now_seconds: float) -> bool:
        return super().would_allow(now_seconds) and not self._held(now_seconds)

    def allows(self, now_seconds: float) -> bool:
        return not self._held(now_seconds) and super().allows(now_seconds)

    def _held(self, now_seconds: float) -> bool:
        return any(one.condition(now_seconds) is Condition.DOWN for one in self._on)
