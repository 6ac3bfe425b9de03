"""Namespaces and their tiers: who is named by what, and that none reaches a tier which it does not use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.flight import Flight
from caches.keys.by_name import ByName
from caches.keys.request_key import Partition, RequestKey
from caches.place import Place
from caches.routing import Routing
from caches.stack import Served, Stack
from caches.tiers.memory import MemoryTier
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer, Found
from tests.contracts.tier_contract import SPACE, START, answer_of, key_of

TIERS = ("one", "two", "three")
NAMES = ("a", "ab", "abc", "b", "default")
PATTERNS = ("a", "ab", "a*", "ab*", "abc*", "b*", "*")


class Watched(MemoryTier):
    """A tier in memory that notes which namespaces reached it."""

    def __init__(self, name: str) -> None:
        super().__init__(SPACE, name)
        self.reached: set[str] = set()
        self.tended = self.closed = 0

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        self.reached.add(key.partition.namespace)
        return await super().lookup(key, now_seconds)

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        self.reached.add(key.partition.namespace)
        return await super().store(key, answer, now_seconds)

    async def delete(self, key: RequestKey) -> bool:
        self.reached.add(key.partition.namespace)
        return await super().delete(key)

    async def clear(self, selection: Selection) -> int:
        self.reached.add(selection.partition.namespace)
        return await super().clear(selection)

    async def tend(self, now_seconds: float) -> bool:
        self.tended += 1
        return await super().tend(now_seconds)

    async def close(self) -> None:
        self.closed += 1


def routing_of(routes: dict[str, Sequence[str]]) -> tuple[Routing, dict[str, Watched]]:
    """Namespaces that are not named use all tiers. The last two tiers are asked within a time, as over a network."""
    tiers = {name: Watched(name) for name in TIERS}
    places = {name: Place(tier, 10.0 if depth else None) for depth, (name, tier) in enumerate(tiers.items())}
    stacks = {
        chosen: Stack([places[name] for name in chosen], clock=lambda: START)
        for chosen in {TIERS, *map(tuple, routes.values())}
    }
    by_name = ByName({pattern: stacks[tuple(chosen)] for pattern, chosen in routes.items()}, stacks[TIERS])
    return Routing(by_name, clock=lambda: START), tiers


def key_in(namespace: str, number: int) -> RequestKey:
    return replace(key_of(number), partition=Partition("a", namespace))


def expected(routes: dict[str, Sequence[str]], namespace: str) -> Sequence[str]:
    """By trying all patterns, the longest that fits; a whole name is longer than its own beginning."""
    fitting = [p for p in routes if p == namespace or (p.endswith("*") and namespace.startswith(p[:-1]))]
    best = max(fitting, key=lambda p: (p == namespace, len(p)), default=None)
    return TIERS if best is None else routes[best]


@settings(deadline=None)
@given(
    routes=st.dictionaries(st.sampled_from(PATTERNS), st.lists(st.sampled_from(TIERS), unique=True, min_size=1)),
    calls=st.lists(
        st.tuples(
            st.sampled_from(("lookup", "store", "fetch", "renew", "delete", "clear")),
            st.sampled_from(NAMES),
            st.integers(0, 3),
        ),
        max_size=30,
    ),
)
async def test_nothing_reaches_a_tier_that_its_namespace_does_not_name(
    routes: dict[str, Sequence[str]], calls: list[tuple[str, str, int]]
) -> None:
    routing, tiers = routing_of(routes)
    held: set[RequestKey] = set()

    async def call(_flight: Flight[Served]) -> Answer:
        return answer_of(0, 10, START)

    for what, namespace, number in calls:
        key = key_in(namespace, number)
        if what == "lookup":
            assert (await routing.lookup(key) is not None) == (key in held)
        elif what == "store":
            await routing.store(key, answer_of(number, 10, START))
        elif what == "fetch":
            served = await routing.fetch(key, call)
            assert (served.tier is None) == (key not in held)
            assert served.tier is None or served.tier in expected(routes, namespace)
        elif what == "renew":
            await routing.renew(key, call)
        elif what == "delete":
            await routing.delete(key)
        else:
            await routing.clear(Selection(key.partition))
        if what in ("store", "fetch", "renew"):
            held.add(key)
        elif what in ("delete", "clear"):
            held -= {one for one in held if one == key or (what == "clear" and one.partition == key.partition)}
    for name, tier in tiers.items():
        allowed = {namespace for namespace in NAMES if name in expected(routes, namespace)}
        assert tier.reached <= allowed


async def test_a_tier_in_several_stacks_is_tended_and_closed_once() -> None:
    routing, tiers = routing_of({"a": ("one", "two"), "b*": ("two",), "c": ("one", "two")})
    assert [place.tier.name for place in routing.places] == ["one", "two", "three"]
    assert len(routing.stacks) == 3
    assert await routing.tend() is False
    await routing.close()
    assert {(tier.tended, tier.closed) for tier in tiers.values()} == {(1, 1)}


async def test_namespaces_with_the_same_tiers_share_a_stack_and_no_entry() -> None:
    routing, _ = routing_of({"a": ("one",), "b": ("one",)})
    assert routing.of(Partition("t", "a")) is routing.of(Partition("other", "b"))
    await routing.store(key_in("a", 1), answer_of(1, 10, START))
    assert await routing.lookup(key_in("b", 1)) is None


@pytest.mark.parametrize("pattern", ["", "a/b", "*a", "a*b", "a**", "a" * 65, "a b"])
def test_what_is_no_name_and_no_beginning_is_refused(pattern: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"namespace: got {pattern[:80]!r}, expected a name")):
        ByName({pattern: 1}, 0)


def test_the_longest_beginning_counts_and_a_whole_name_before_all() -> None:
    values = ByName({"support": 1, "support-*": 2, "support-eu-*": 3, "s*": 4}, 0)
    found = {name: values.of(name) for name in ("support", "support-us", "support-eu-1", "sales", "other")}
    assert found == {"support": 1, "support-us": 2, "support-eu-1": 3, "sales": 4, "other": 0}
    assert ByName({"*": 1}, 0).of("anything") == 1
