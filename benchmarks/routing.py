"""What two arms cost a request: the draw of its arm, a tier of two arms, and the counting by arm."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import orjson
from fastapi import Request
from fastapi.responses import Response

from api.gateway.access_log import VISIT, Visit
from api.gateway.arm_counting import ArmCounting
from api.gateway.asked import Asked, Wishes
from benchmarks.harness import Benchmark, Report, Table, at_most, main, say
from caches.flight import Flight
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.request_key import Partition, RequestKey
from caches.knobs import Knob, KnobSpace
from caches.stack import Served
from caches.target import Split
from caches.tiers.memory import MemoryTier
from caches.tiers.split import SplitTier
from caches.tiers.tier import Answer, Tier
from tuner.router import assigner

SPACE = KnobSpace(
    Knob("cache_size", "bytes", 1.0, 1e12, 1e12, 1.0, "log"),
    Knob("ttl_seconds", "seconds", 1.0, 1e6, 1e6, 1.0, "log"),
    Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 1.0, "linear"),
)
SPLIT, NOW, BODY = Split("salt", 0.2), 1e9, b"." * 2_000
ROUNDS, LIMIT_US = 41, 5.0
Works = dict[str, Callable[[], Awaitable[object]]]


def measure(quick: bool) -> Report:
    entries = 200 if quick else 2_000
    say(f"{entries:,} requests, {ROUNDS} rounds")
    taken = asyncio.run(_taken(entries))
    tier, counted = (
        taken["hit of two arms"] - taken["hit"],
        taken["hit of two arms, counted"] - taken["hit of two arms"],
    )
    stored, called = taken["store of two arms"] - taken["store"], taken["call, counted"] - taken["call"]
    missed = tier + counted + stored + taken["draw"] + called
    return Report(
        [
            f"{entries:,} keys, a fifth of them of the treatment arm, in turn; {ROUNDS} rounds of all parts in turn. "
            "Each figure is the mean processor time of a call in the best round: what else the machine does only adds.",
            "A hit is a lookup in memory and a handler that returns. While a miss waits for the backend others are "
            "drawn, so it is drawn anew for the store, the call and the count.",
        ],
        [
            Table(
                "Microseconds for each call",
                ("what", "us"),
                [[what, microseconds] for what, microseconds in taken.items()],
            ),
            Table(
                "What arms add to a request, in microseconds",
                ("request", "the tier", "counting", "together"),
                [
                    ["hit", tier, counted, tier + counted],
                    ["miss", tier + stored, counted + taken["draw"] + called, missed],
                ],
            ),
        ],
        [
            at_most(
                "what arms add to a hit in memory, the draw and the counting included", LIMIT_US, tier + counted, "us"
            )
        ],
    )


async def _taken(entries: int) -> dict[str, float]:
    """Microseconds by part."""
    works = _works([_asked(number) for number in range(entries)])
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            began = time.thread_time()
            await work()
            taken[name].append((time.thread_time() - began) / entries * 1e6)
    return {name: min(microseconds) for name, microseconds in taken.items()}


def _works(asked: Sequence[Asked]) -> Works:
    """Each goes through all requests once."""
    keys = [one.key for one in asked]
    plain, split = MemoryTier(SPACE), SplitTier(SPACE, assigner)
    split.aim(replace(split.plan, split=SPLIT), NOW)
    counting, draw = ArmCounting(split), assigner(SPLIT)
    served = Served(_answer(), "memory", 12.0, level=1)

    async def handler(request: Request) -> Response:
        visit: Visit = request.scope.setdefault(VISIT, Visit())
        visit.asked, visit.served = request.scope["asked"], served
        await request.scope["tier"].lookup(visit.asked.key, NOW)
        return response

    async def draws() -> None:
        for key in keys:
            draw(key.id)

    response, counted = Response(b"", 200), counting.handling(handler)
    call, counted_call = _call, counting.missed
    return {  # stores come first, so that the others hit
        "draw": draws,
        "store": lambda: _stores(plain, keys),
        "store of two arms": lambda: _stores(split, keys),
        "hit": lambda: _answers(handler, asked, plain),
        "hit of two arms": lambda: _answers(handler, asked, split),
        "hit of two arms, counted": lambda: _answers(counted, asked, split),
        "call": lambda: _calls(keys, lambda _key: call),
        "call, counted": lambda: _calls(keys, lambda key: counted_call(key, call)),
    }


async def _stores(tier: Tier, keys: Sequence[RequestKey]) -> None:
    answer = _answer()
    for key in keys:
        await tier.store(key, answer, NOW)


async def _answers(handler: Callable[[Request], Awaitable[Response]], asked: Sequence[Asked], tier: Tier) -> None:
    for one in asked:
        await handler(Request({"type": "http", "asked": one, "tier": tier}))


async def _call(_flight: Flight[Served]) -> Answer:
    return ANSWER


async def _calls(
    keys: Sequence[RequestKey], of: Callable[[RequestKey], Callable[[Flight[Served]], Awaitable[Answer]]]
) -> None:
    flight: Flight[Served] = Flight()
    for key in keys:
        await of(key)(flight)


def _asked(number: int) -> Asked:
    body = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": f"question {number}"}]}
    key = request_key(Endpoint.CHAT, body, Partition())
    return Asked(Endpoint.CHAT, orjson.dumps(body), body, key, Wishes())


def _answer() -> Answer:
    return Answer(BODY, NOW, None, 100, 50, 0.5)


ANSWER = _answer()

if __name__ == "__main__":
    main(Benchmark("routing", "Arms: what they cost a request", ("setpoint",), measure))
