"""The settings of the cache as JSON: of each tier its knobs, of memory its eviction policy, and of the tier that
answers by meaning its thresholds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from api.gateway.access import checked_partition
from api.gateway.service import GatewayService
from api.http.errors import BadRequest
from caches.keys.request_key import Partition
from caches.knobs import KNOB_NAMES, KnobSettings
from caches.place import Place
from caches.policies.live.making import name_of
from caches.semantic.matching import THRESHOLD, Matching
from caches.tiers.memory import MemoryTier
from caches.tiers.retaining import inside
from caches.tiers.split import SplitTier

PARTITIONS, POLICY = "partitions", "eviction_policy"
NAMES = frozenset({"tenant", "namespace", THRESHOLD})
Thresholds = dict[Partition | None, float | None]


@dataclass(frozen=True)
class _Wish:
    """thresholds: of partitions, and under None of all that have none of their own."""

    knobs: Mapping[str, KnobSettings]
    thresholds: Thresholds


class CacheSettings:
    """Raises BadRequest. All of a wish is checked before anything is applied."""

    def __init__(self, service: GatewayService) -> None:
        self._clock = service.clock
        self._places = {place.tier.name: place for place in service.stack.places}
        self._matching = None if service.checker is None else service.checker.tier
        memory = {name: inside(place.tier) for name, place in self._places.items()}
        self._changeable = {name: tier for name, tier in memory.items() if isinstance(tier, MemoryTier | SplitTier)}
        semantic = {name: place.tier for name, place in self._places.items() if isinstance(place.tier, Matching)}
        self._matching_name = next((name for name, tier in semantic.items() if tier is self._matching), None)

    @property
    def names(self) -> set[str]:
        """What a wish may have."""
        return set(self._places) | ({PARTITIONS} if self._matching is not None else set())

    async def told(self) -> dict[str, Any]:
        """What binds. A tier that could not be reached is None."""
        told = {name: await place.ask(place.tier.settings) for name, place in self._places.items()}
        return self._as_json(told, {name: tier.eviction_policy for name, tier in self._changeable.items()})

    async def applied(self, body: Mapping[str, Any], tenant: str) -> dict[str, Any]:
        """Returns what was taken, of what was wished. tenant: of the partitions that name none."""
        wish = self._wish(body, tenant)
        taken = {name: await self._taken(self._places[name], knobs) for name, knobs in wish.knobs.items()}
        if self._matching is not None:
            for partition, threshold in wish.thresholds.items():
                self._matching.set_similarity_threshold(threshold, partition)
        aimed_at = {
            name: one.eviction_policy or name_of(self._changeable[name].made_with)
            for name, one in taken.items()
            if one is not None and name in self._changeable
        }
        return self._as_json(taken, aimed_at, wish.thresholds)

    async def _taken(self, place: Place, knobs: KnobSettings) -> KnobSettings | None:
        taken = await place.ask(place.tier.apply, knobs, self._clock())
        await place.tend_ttl()  # the stack knows of the new lifetime at once, not at the next housekeeping
        return taken

    def _as_json(
        self,
        knobs: Mapping[str, KnobSettings | None],
        policies: Mapping[str, str | None],
        wished: Thresholds | None = None,
    ) -> dict[str, Any]:
        """policies: of tiers that have one; None of one without a name. wished: the thresholds to tell of; None for
        all."""
        tiers: dict[str, Any] = {name: None if one is None else one.numbers() for name, one in knobs.items()}
        for tier, policy in policies.items():
            if tiers[tier] is not None and policy is not None:
                tiers[tier] |= {POLICY: policy}
        matching, name = self._matching, self._matching_name
        if matching is None or name is None:
            return {"tiers": tiers}
        told = tiers.get(name, {})
        if told is not None and (wished is None or None in wished):
            tiers[name] = told | {THRESHOLD: matching.similarity_threshold()}
        partitions = matching.set_thresholds() if wished is None else wished
        named = sorted(one for one in partitions if one is not None)
        return {"tiers": tiers, PARTITIONS: [threshold_told(matching, one) for one in named]}

    def _wish(self, body: Mapping[str, Any], tenant: str) -> _Wish:
        thresholds: Thresholds = {}
        knobs = {}
        for name, value in body.items():
            if name == PARTITIONS:
                thresholds.update(_partition_thresholds(value, tenant))
                continue
            if isinstance(value, dict) and THRESHOLD in value and name == self._matching_name:
                thresholds[None] = _threshold(value[THRESHOLD], f"{name}.{THRESHOLD}")
                value = {knob: number for knob, number in value.items() if knob != THRESHOLD}
                if not value:
                    continue
            knobs[name] = self._knobs(name, value)
        return _Wish(knobs, thresholds)

    def _knobs(self, name: str, value: object) -> KnobSettings:
        if not isinstance(value, dict) or POLICY not in value:
            return _knobs(name, value)
        place, policy = f"{name}.{POLICY}", value[POLICY]
        if name not in self._changeable:
            raise BadRequest(f"{place}: expected none, only {' or '.join(self._changeable)} can change it", place)
        offered = self._changeable[name].policies
        if policy is not None and policy not in offered:
            raise BadRequest(f"{place}: got {str(policy)[:40]!r}, expected of {', '.join(offered)}", place)
        knobs = _knobs(name, {knob: number for knob, number in value.items() if knob != POLICY})
        return replace(knobs, eviction_policy=policy)


def threshold_told(matching: Matching, partition: Partition) -> dict[str, Any]:
    return asdict(partition) | {THRESHOLD: matching.similarity_threshold(partition)}


def _knobs(name: str, value: object) -> KnobSettings:
    """All of them: while a tier shrinks, what binds is not what it aims at, so there is no half to leave as it is."""
    if not isinstance(value, dict) or set(value) != set(KNOB_NAMES):
        raise BadRequest(f"{name}: expected an object with {', '.join(KNOB_NAMES)}", name)
    numbers: Any = {knob: _number(number, f"{name}.{knob}") for knob, number in value.items()}
    return KnobSettings(**numbers)


def _partition_thresholds(value: object, tenant: str) -> Thresholds:
    if not isinstance(value, list):
        raise BadRequest(f"{PARTITIONS}: expected a list", PARTITIONS)
    found: Thresholds = {}
    for number, one in enumerate(value):
        place = f"{PARTITIONS}[{number}]"
        if not isinstance(one, dict) or not {"namespace", THRESHOLD} <= set(one) <= NAMES:
            raise BadRequest(f"{place}: expected an object with namespace, {THRESHOLD} and perhaps tenant", place)
        partition = checked_partition(one.get("tenant", tenant), one["namespace"])
        found[partition] = _threshold(one[THRESHOLD], f"{place}.{THRESHOLD}")
    return found


def _threshold(value: object, place: str) -> float | None:
    """None for equal requests only."""
    if value is None:
        return None
    number = _number(value, place)
    if not 0.0 <= number <= 1.0:
        raise BadRequest(f"{place}: got {number}, expected 0 to 1, or null", place)
    return number


def _number(value: object, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadRequest(f"{place}: expected a number", place)
    return float(value)
