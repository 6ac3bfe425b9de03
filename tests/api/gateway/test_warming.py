"""Warming in real gateways in front of a real backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from api.gateway.asked import Asked, Wishes
from api.gateway.hot_bodies import OVERHEAD_BYTES, HotBodies
from api.gateway.service import GatewayService
from api.gateway.settings import GatewaySettings
from api.gateway.upstream import Upstream, upstream_client
from api.gateway.warming import NO_KEY, GatewayWarming
from api.gateway.warming_settings import WarmingSettings
from caches.entry_lines import line_of
from caches.errors import InputError
from caches.keys.by_name import ByName
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.request_key import Partition
from caches.knobs import KnobSettings
from caches.place import Place
from caches.routing import Routing
from caches.stack import Stack
from caches.tiers.memory import MemoryTier
from caches.tiers.tier import Answer
from caches.warming import WarmRule
from tests.api.gateway.conftest import (
    CHAT,
    SPACE,
    Backend,
    ask,
    chat,
    emulated,
    gateway,
    metric,
    outcome,
    send,
    until,
)

RULE = WarmRule((0.05, 0.2, 1.0), per_second=1e4, gate_seconds=0.05, least_used=0.5, most_lost=1.0)
SETTINGS = WarmingSettings(every_seconds=0.05, rule=RULE, window_seconds=1_000.0)
LONG = {"max_tokens": 10_000, "ignore_eos": True}  # two minutes


@dataclass
class Rig:
    """A gateway over two tiers in memory."""

    address: str
    upper: Place
    lower: Place

    def empty_upper(self) -> None:
        """As after a restart, while the tier below is shared and stays."""
        self.upper.tier = MemoryTier(SPACE)

    def warm_up(self, ratio: float = 1.0) -> None:
        wish = {"cache_size": 1e7, "ttl_seconds": 3600.0, "warmup_ratio": ratio}
        assert send("PUT", f"{self.address}/v1/cache/settings", json={"memory": wish}).status_code == 200

    def told(self) -> Mapping[str, Any]:
        told: dict[str, Any] = send("GET", f"{self.address}/v1/cache/stats").json()["warming"]
        return told

    def entries(self) -> int:
        """In the upper tier."""
        used: dict[str, Any] = send("GET", f"{self.address}/v1/cache/stats").json()["tiers"]["memory"]
        return int(used["entries"])

    def rounds(self, more: int = 2) -> None:
        """So many more warm-ups."""
        wanted = self.told()["rounds"] + more
        until(lambda: self.told()["rounds"] >= wanted, 30)


@contextmanager
def rig(backend: Backend, warming: WarmingSettings = SETTINGS, **settings: Any) -> Iterator[Rig]:
    upper, lower = Place(MemoryTier(SPACE)), Place(MemoryTier(SPACE, "lower"))
    with gateway(backend.address, places=[upper, lower], warming=warming, **settings) as address:
        yield Rig(address, upper, lower)


def ask_all(address: str, numbers: range) -> list[str]:
    return [outcome(ask(address, chat(f"question {number}"))) for number in numbers]


def hot_set(count: int) -> bytes:
    """Answers to the questions from 0 on, the hottest first."""
    lines = []
    for number in range(count):
        key = request_key(Endpoint.CHAT, chat(f"question {number}"), Partition())
        body = b'{"choices": [{"index": 0, "message": {"content": "yes"}, "finish_reason": "stop"}]}'
        answer = Answer(body, time.time() - 10.0, None, 1, 2, compute_seconds=1.0)
        lines.append(line_of(key, answer, {"version": 1, "popularity": 1_000.0 - number}))
    return b"".join(lines)


def test_stages_go_on_only_when_what_was_warmed_is_asked_for(backend: Backend) -> None:
    """5, then 20, then 100 of a hundred, however many warm-ups there are; all without the backend."""
    with rig(backend) as one:
        assert send("POST", f"{one.address}/v1/cache/hot", content=hot_set(100)).json()["taken"] == 100
        backend.calls.clear()
        one.empty_upper()
        one.warm_up()
        ask_all(one.address, range(99, 100))  # something is asked for, but nothing that is warmed first
        until(lambda: one.told()["copied"] == 5)
        one.rounds()
        told = one.told()
        assert (told["copied"], told["warmed"], told["hit"], told["waiting"]) == (5, 5, 0, 5)
        assert told["stopped_rounds"] == told["rounds"]
        assert told["last_round"] == "0.0% of what was warmed was asked for, less than 50.0%"
        assert ask_all(one.address, range(3)) == ["hit-l1"] * 3
        until(lambda: one.told()["copied"] == 20)
        one.rounds()
        assert (one.told()["copied"], one.told()["hit"]) == (20, 3)
        assert ask_all(one.address, range(5, 15)) == ["hit-l1"] * 10
        until(lambda: one.told()["copied"] == 99)
        assert set(ask_all(one.address, range(100))) == {"hit-l1"}
        assert backend.calls == []
        assert metric(one.address, 'setpoint_warming_candidates_total{outcome="copied"}') == 99
        assert metric(one.address, "setpoint_warming_hit_total") == 99


def test_a_share_of_the_best_is_warmed_and_nothing_at_zero(backend: Backend) -> None:
    with rig(backend, replace(SETTINGS, rule=replace(RULE, least_used=0.0))) as one:
        send("POST", f"{one.address}/v1/cache/hot", content=hot_set(10))
        one.empty_upper()
        until(lambda: one.told()["state"] == "off")
        assert (one.entries(), one.told()["hot_keys"]) == (0, 10)
        one.warm_up(0.3)
        ask_all(one.address, range(9, 10))
        until(lambda: one.told()["copied"] == 3)
        assert one.entries() == 4  # with the one that was asked for
        assert ask_all(one.address, range(3)) == ["hit-l1"] * 3
        one.empty_upper()
        until(lambda: one.told()["state"] == "off")
        assert (one.told()["hit"], one.told()["useless"]) == (3, 0)


def test_what_nobody_asks_for_until_it_is_gone_was_useless(backend: Backend) -> None:
    with rig(backend, replace(SETTINGS, rule=replace(RULE, stages=(1.0,)))) as one:
        send("POST", f"{one.address}/v1/cache/hot", content=hot_set(4))
        one.empty_upper()
        one.warm_up()
        until(lambda: one.told()["copied"] == 4)
        ask_all(one.address, range(1))
        one.empty_upper()
        one.warm_up()
        until(lambda: one.told()["copied"] >= 8)
        assert one.told()["useless"] == 3
        assert metric(one.address, "setpoint_warming_useless_total") == 3


@pytest.mark.parametrize("fields", [{}, {"temperature": 1}])
def test_it_pauses_while_backend_calls_are_on_their_way(fields: dict[str, Any]) -> None:
    """Of requests that are cached, and of those that are not."""
    settings = replace(SETTINGS, busy_calls=0, rule=replace(RULE, least_used=0.0))
    with emulated(speed=1.0) as slow, rig(slow, settings) as one:
        send("POST", f"{one.address}/v1/cache/hot", content=hot_set(10))
        one.empty_upper()
        body = chat("a long story", stream=True, **LONG, **fields)
        with (
            httpx.Client(verify=False, timeout=20) as client,
            client.stream("POST", one.address + CHAT, json=body) as answer,
        ):
            pieces = answer.iter_raw()  # that is let go of closes the connection
            next(pieces)
            assert one.told()["backend_calls"] == 1
            one.warm_up()
            until(lambda: one.told()["paused_seconds"] >= 1.0)
            assert (one.told()["state"], one.entries()) == ("paused", 0)
            pieces.close()
        until(lambda: one.told()["backend_calls"] == 0)
        until(lambda: [ask(one.address, chat(max_tokens=1)), one.told()["copied"] == 10][-1], 30)
        assert metric(one.address, "setpoint_warming_paused_seconds_total") >= 1.0


def test_it_pauses_while_p99_is_high(backend: Backend) -> None:
    """And gives up in the end. Any response takes longer than a nanosecond."""
    settings = replace(SETTINGS, busy_p99_seconds=1e-9, rule=replace(RULE, patience_seconds=1.0))
    with rig(backend, settings) as one:
        send("POST", f"{one.address}/v1/cache/hot", content=hot_set(10))
        one.empty_upper()
        ask(one.address)
        one.warm_up()
        until(lambda: [ask(one.address), one.told()["stopped_rounds"]][-1], 30)
        told = one.told()
        assert told["last_round"] == "it was busy for 1 s"
        assert told["copied"] == 0
        assert told["p99_seconds"] > 1e-9


def test_the_backend_is_asked_with_the_gateways_own_key(backend: Backend) -> None:
    """What no tier has any more comes back by a call of its own, also of what was asked for as a stream."""
    settings = replace(SETTINGS, from_backend=True, rule=replace(RULE, stages=(1.0,)))
    with rig(backend, settings, upstream_key="ours") as one:
        bodies = [chat("whole"), chat("streamed", stream=True)]
        for body in bodies:
            ask(one.address, body, authorization="Bearer theirs", x_setpoint_namespace="support")
        assert one.told()["from_backend"] == "on"
        backend.calls.clear()
        one.empty_upper()
        one.lower.tier = MemoryTier(SPACE, "lower")
        one.warm_up()
        until(lambda: one.told()["renewed"] == 2)
        assert [(path, headers["authorization"]) for path, headers in backend.calls] == [(CHAT, "Bearer ours")] * 2
        hits = [outcome(ask(one.address, body, x_setpoint_namespace="support")) for body in bodies]
        assert hits == ["hit-l1"] * 2
        assert len(backend.calls) == 2


def test_a_backend_that_is_not_well_is_not_asked_ahead_of_requests() -> None:
    settings = replace(SETTINGS, from_backend=True, rule=replace(RULE, stages=(1.0,)))
    with ExitStack() as there:
        backend = there.enter_context(emulated())
        with rig(backend, settings, upstream_key="ours") as one:
            ask(one.address, chat("known"))
            there.close()
            assert ask(one.address, chat("unknown")).status_code == 502
            one.empty_upper()
            one.lower.tier = MemoryTier(SPACE, "lower")
            one.warm_up()
            one.rounds()
            assert one.told()["renewed"] == 0
            assert one.told()["left"] > 0
            assert metric(one.address, "setpoint_upstream_sent_total") == 2.0


@pytest.mark.parametrize(
    ("from_backend", "key", "told"), [(True, None, NO_KEY), (False, "ours", "off"), (False, None, "off")]
)
def test_without_a_key_of_its_own_it_asks_nobody_and_says_so(
    backend: Backend, from_backend: bool, key: str | None, told: str
) -> None:
    with rig(backend, replace(SETTINGS, from_backend=from_backend), upstream_key=key) as one:
        ask(one.address, chat("once"), authorization="Bearer theirs")
        backend.calls.clear()
        one.empty_upper()
        one.lower.tier = MemoryTier(SPACE, "lower")
        one.warm_up()
        one.rounds()
        assert one.told()["from_backend"] == told
        assert (one.told()["renewed"], backend.calls) == (0, [])


def test_bodies_are_kept_within_their_bytes() -> None:
    """The least recently asked go first; one that takes a twentieth of the room alone is not kept."""
    bodies = HotBodies(100 * (OVERHEAD_BYTES + 50))
    for number in range(150):
        bodies.keep(asked(f"question {number:03}", 40))
        bodies.keep(asked("question 000", 40))
    assert bodies.used_bytes <= 100 * (OVERHEAD_BYTES + 50)
    assert 90 < len(bodies) <= 100
    assert bodies.asked(asked("question 000", 40).key) is not None
    assert bodies.asked(asked("question 001", 40).key) is None
    found = bodies.asked(asked("question 149", 40).key)
    assert found is not None
    assert (found.body, found.wishes) == (chat("question 149"), Wishes(ttl_seconds=60.0))
    bodies.keep(asked("large", 6 * OVERHEAD_BYTES))
    assert bodies.asked(asked("large", 6 * OVERHEAD_BYTES).key) is None


def asked(question: str, spaces: int) -> Asked:
    body = chat(question)
    raw = httpx.Request("POST", "http://a", json=body).content
    key = request_key(Endpoint.CHAT, body, Partition())
    return Asked(Endpoint.CHAT, raw + b" " * spaces, body, key, Wishes(max_age_seconds=1.0, ttl_seconds=60.0))


@pytest.mark.parametrize("wrong", [{"every_seconds": 0}, {"busy_calls": -1}, {"imported_per_second": 0.0}])
def test_bad_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"warming.{next(iter(wrong))}: got"):
        WarmingSettings(**wrong)


async def test_a_namespace_is_warmed_from_its_own_tiers_only(backend: Backend) -> None:
    """Memory is shared; what lies in the other's lower tier stays there, though the key is known to be hot."""
    memory, near, far = (Place(MemoryTier(SPACE, name)) for name in ("memory", "near", "far"))
    with_near, with_far = Stack([memory, near]), Stack([memory, far])
    settings = GatewaySettings(backend.address)
    service = GatewayService(
        settings, Routing(ByName({"near": with_near, "far": with_far}, with_near)), upstream_client(settings)
    )
    rule = replace(RULE, stages=(1.0,))
    warming = GatewayWarming(service, Upstream(service.client, settings), replace(SETTINGS, rule=rule))
    now, size, ttl = time.time(), 1e7, 3_600.0
    keys = {name: request_key(Endpoint.CHAT, chat(name), Partition("t", name)) for name in ("near", "far")}
    answer = Answer(b"{}", now, compute_seconds=1.0)
    for key in keys.values():
        warming.hot.seen(key, answer, now)
        await far.tier.store(key, answer, now)
    await memory.tier.apply(KnobSettings(size, ttl, 1.0), now)
    async with warming.running():
        async with asyncio.timeout(30):
            while warming.counts().rounds < 4:
                await asyncio.sleep(0.01)
    assert not await memory.tier.holds(keys["near"], now)
    assert await memory.tier.holds(keys["far"], now)
    assert warming.counts().copied == 1
    await service.client.aclose()
