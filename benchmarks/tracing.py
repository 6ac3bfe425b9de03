"""What spans cost a request: hits in memory through a whole gateway, without tracing and with it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from api.gateway.app import create_gateway
from api.gateway.config_tracing import TracingConfig
from api.gateway.service import GatewayService
from api.gateway.settings import GatewaySettings
from api.gateway.stage_budget import budget_of, limited
from api.gateway.stages import Stages
from api.gateway.tracing import OtelTracing
from api.gateway.upstream import upstream_client
from benchmarks.harness import Benchmark, Report, Table, at_most, main, say
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.request_key import Partition
from caches.knobs import Knob, KnobSpace
from caches.place import Place
from caches.stack import Stack, StackRules
from caches.tiers.memory import MemoryTier
from caches.tiers.tier import Answer

SPACE = KnobSpace(
    Knob("cache_size", "bytes", 1.0, 1e12, 1e12, 1.0, "log"),
    Knob("ttl_seconds", "seconds", 1.0, 1e6, 1e6, 1.0, "log"),
    Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 1.0, "linear"),
)
ROUNDS, LIMIT_US = 21, 100.0
SHARES = {"timed, no spans sent": 0.0, "spans of 1 % sent": 0.01, "spans of all sent": 1.0}
BODY = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "." * 2_000}}]}).encode()
Ask = Callable[[bytes], Awaitable[None]]


class Encoded(SpanExporter):
    """Makes of spans what would be sent, and sends it nowhere."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        encode_spans(spans).SerializeToString()
        return SpanExportResult.SUCCESS


def measure(quick: bool) -> Report:
    requests = 100 if quick else 1_000
    say(f"{requests:,} hits, {ROUNDS} rounds")
    taken = asyncio.run(_taken(requests))
    plain = taken["no tracing"]
    return Report(
        [
            f"{requests:,} questions that a gateway has in memory, asked as its server asks it, here; {ROUNDS} "
            "rounds of all in turn. Each figure is the mean processor time of an answer in the best round, the thread "
            "that encodes spans included; sending them comes on top, and nobody waits for that.",
            "A hit has three spans: the request, its key and the tier. Without an endpoint a gateway calls the bare "
            "functions, so there is nothing to measure.",
        ],
        [
            Table(
                "Processor time of a hit, in microseconds",
                ("gateway", "a hit", "beyond no tracing"),
                [[what, microseconds, microseconds - plain] for what, microseconds in taken.items()],
            )
        ],
        [
            at_most(
                "what tracing with 1 % of the spans adds to a hit", LIMIT_US, taken["spans of 1 % sent"] - plain, "us"
            )
        ],
    )


async def _taken(requests: int) -> dict[str, float]:
    """Microseconds by gateway."""
    bodies = [_body(number) for number in range(requests)]
    with ExitStack() as closing:
        gateways = {"no tracing": await _gateway(bodies, None)}
        for what, share in SHARES.items():
            tracing = OtelTracing(TracingConfig(sample_ratio=share), BatchSpanProcessor(Encoded(), 65_536))
            closing.callback(tracing.close)
            gateways[what] = await _gateway(bodies, tracing)
        taken: dict[str, list[float]] = {what: [] for what in gateways}
        for _ in range(ROUNDS):
            for what, ask in gateways.items():
                began = time.process_time()
                for body in bodies:
                    await ask(body)
                taken[what].append((time.process_time() - began) / requests * 1e6)
    return {what: min(microseconds) for what, microseconds in taken.items()}


async def _gateway(bodies: Sequence[bytes], tracing: OtelTracing | None) -> Ask:
    settings, places = GatewaySettings("http://127.0.0.1:9"), [Place(MemoryTier(SPACE))]
    stages = None if tracing is None else Stages(tracing, budget_of(1.0, list(map(limited, places))))
    rules = StackRules(ttl_jitter=0.0, refresh_beta=0.0)
    stack = Stack(places, rules, look=Place.lookup if stages is None else stages.look)
    for body in bodies:
        key = request_key(Endpoint.CHAT, json.loads(body), Partition())
        await stack.store(key, Answer(BODY, time.time(), None, 1_020, 129, 0.7))
    app = create_gateway(GatewayService(settings, stack, upstream_client(settings), stages=stages))

    async def ask(body: bytes) -> None:
        headers: list[tuple[bytes, bytes]] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            headers.extend(message.get("headers", ()))

        await app(_scope(), receive, send)
        assert (b"x-setpoint-cache", b"hit-l1") in headers

    return ask


def _scope() -> dict[str, Any]:
    path = Endpoint.CHAT.value
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"gateway"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
    }


def _body(number: int) -> bytes:
    message = {"role": "user", "content": f"question {number}"}
    return json.dumps({"model": "m", "temperature": 0, "messages": [message]}).encode()


BENCHMARK = Benchmark("tracing", "Spans of requests", ("opentelemetry-sdk", "starlette"), measure)

if __name__ == "__main__":
    main(BENCHMARK)
