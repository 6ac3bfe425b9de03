"""Spans of real requests through real gateways: in memory, and at a real OTLP receiver."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from api.gateway.app import create_gateway
from api.gateway.config_tracing import TracingConfig
from api.gateway.service import GatewayService
from api.gateway.settings import GatewaySettings
from api.gateway.stage_budget import Budget, Stage, budget_of, limited
from api.gateway.stages import Stages
from api.gateway.tracing import SEND_SECONDS, OtelTracing, tracing_of
from api.gateway.upstream import upstream_client
from caches.errors import InputError
from caches.place import Place
from caches.stack import Stack
from caches.tiers.disk import DiskTier
from caches.tiers.memory import MemoryTier
from tests.api.gateway.conftest import (
    SPACE,
    Backend,
    ask,
    chat,
    configured,
    emulated,
    metric,
    outcome,
    send,
    serving,
    until,
)
from tests.api.gateway.tuned import QUIET
from tests.servers import free_port

ALL = TracingConfig(endpoint="http://127.0.0.1:1/v1/traces", sample_ratio=1.0)
NONE = ALL.model_copy(update={"sample_ratio": 0.0})
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"  # of the W3C's recommendation: sampled
SECRET = "the patient's name is Ada"


@contextmanager
def traced(
    upstream: str, folder: Path, config: TracingConfig = ALL, change: Callable[[Budget], Budget] = lambda one: one
) -> Iterator[tuple[str, InMemorySpanExporter]]:
    """A gateway with a tier in memory and one on disk, and the spans that it ended."""
    spans, settings = InMemorySpanExporter(), GatewaySettings(upstream)
    places = [Place(MemoryTier(SPACE)), Place(DiskTier(folder / "cache.db", SPACE), 10.0)]
    budget = change(budget_of(config.objective_ms / 1000.0, list(map(limited, places))))
    stages = Stages(OtelTracing(config, SimpleSpanProcessor(spans)), budget)
    stack = Stack(places, look=stages.look)
    service = GatewayService(settings, stack, upstream_client(settings), stages=stages)
    with serving(create_gateway(service), "on") as address:
        yield address, spans


def path_of(spans: InMemorySpanExporter, count: int) -> list[ReadableSpan]:
    """The spans of one request, in order of their beginnings, the request's own first."""
    until(lambda: len(spans.get_finished_spans()) >= count)
    found = sorted(spans.get_finished_spans(), key=lambda span: span.start_time or 0)
    spans.clear()
    return found


def names(spans: Sequence[ReadableSpan]) -> list[str]:
    return [span.name for span in spans]


def attribute(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {})[name]


@pytest.fixture(scope="module")
def front(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, InMemorySpanExporter]]:
    with traced(backend.address, tmp_path_factory.mktemp("traced")) as made:
        yield made


ROOT = "POST /v1/chat/completions"
MISS_PATH = [ROOT, "cache.key", "cache.l1", "cache.l2", "backend"]


def test_a_miss_passes_through_all_stages(front: tuple[str, InMemorySpanExporter]) -> None:
    address, spans = front
    response = ask(address, chat("a miss"))
    assert outcome(response) == "miss"
    root, *stages = path_of(spans, 5)
    assert names([root, *stages]) == MISS_PATH
    assert {span.parent.span_id for span in stages if span.parent} == {root.context.span_id}
    assert attribute(root, "gen.cache.hit") is False
    assert attribute(root, "http.response.status_code") == 200
    key = response.headers["x-setpoint-key"]
    assert [attribute(span, "gen.prompt.hash") for span in (root, *stages)] == [key] * 5
    assert [attribute(span, "gen.cache.stage") for span in stages] == ["key", "l1", "l2", "backend"]
    assert [attribute(span, "gen.cache.hit") for span in stages[1:3]] == [False, False]
    latencies = [attribute(span, "gen.latency_ms") for span in stages]
    assert all(latency > 0 for latency in latencies)
    assert attribute(root, "gen.latency_ms") >= max(latencies)


def test_a_hit_ends_at_the_tier_that_has_it(front: tuple[str, InMemorySpanExporter]) -> None:
    address, spans = front
    ask(address, chat("a hit"))
    path_of(spans, 5)
    assert outcome(ask(address, chat("a hit"))) == "hit-l1"
    root, *stages = path_of(spans, 3)
    assert names(stages) == ["cache.key", "cache.l1"]
    assert attribute(root, "gen.cache.hit") is True
    assert attribute(stages[1], "gen.cache.hit") is True
    assert attribute(root, "gen.cache.outcome") == "hit-l1"


def test_a_stream_ends_with_its_last_piece(front: tuple[str, InMemorySpanExporter]) -> None:
    address, spans = front
    assert outcome(ask(address, chat("a stream", stream=True))) == "miss"
    root, *stages = path_of(spans, 5)
    assert names([root, *stages]) == MISS_PATH
    assert root.end_time is not None
    assert all(span.end_time is not None and span.end_time <= root.end_time for span in stages)


def test_no_text_of_a_prompt_is_told(front: tuple[str, InMemorySpanExporter]) -> None:
    address, spans = front
    ask(address, chat(SECRET))
    told = json.dumps([json.loads(span.to_json()) for span in path_of(spans, 5)])
    assert "Ada" not in told
    assert "patient" not in told


def test_a_clients_trace_goes_on(front: tuple[str, InMemorySpanExporter]) -> None:
    address, spans = front
    ask(address, chat("traced by its client"), traceparent=PARENT)
    root, *_ = path_of(spans, 5)
    assert format(root.context.trace_id, "032x") == PARENT.split("-")[1]
    assert root.parent is not None
    assert format(root.parent.span_id, "016x") == PARENT.split("-")[2]


def test_a_backend_that_fails_is_an_error_of_its_stage(tmp_path: Path) -> None:
    with emulated(fail_ratio=1.0) as failing, traced(failing.address, tmp_path) as (address, spans):
        assert ask(address, chat("it fails")).status_code >= 400
        path = path_of(spans, 5)
    assert names(path) == MISS_PATH
    assert path[-1].status.description == "NotStored"
    assert [span.status.is_ok for span in path[1:4]] == [True] * 3


def test_of_requests_that_are_not_sampled_nothing_is_sent_but_all_are_timed(backend: Backend, tmp_path: Path) -> None:
    with traced(backend.address, tmp_path, NONE) as (address, spans):
        for _ in range(2):
            ask(address, chat("not sampled"))
        assert spans.get_finished_spans() == ()
        counts = {stage: metric(address, f'setpoint_gateway_stage_seconds_count{{stage="{stage}"}}') for stage in Stage}
    assert counts == {Stage.KEY: 2, Stage.L1: 2, Stage.L2: 1, Stage.L3: 0, Stage.BACKEND: 1}


def test_what_takes_longer_than_its_budget_is_marked_and_counted(backend: Backend, tmp_path: Path) -> None:
    """With a budget of nothing for the backend, and of ages for all else."""

    def change(budget: Budget) -> Budget:
        return Budget(1e6, {stage: 0.0 if stage is Stage.BACKEND else 1e6 for stage in budget.stages})

    with traced(backend.address, tmp_path, change=change) as (address, spans):
        ask(address, chat("too long"))
        root, *stages = path_of(spans, 5)
        over = {
            stage: metric(address, f'setpoint_gateway_stage_over_budget_total{{stage="{stage}"}}') for stage in Stage
        }
    assert [attribute(span, "gen.over_budget") for span in (root, *stages)] == [False] * 4 + [True]
    assert over == {Stage.KEY: 0, Stage.L1: 0, Stage.L2: 0, Stage.L3: 0, Stage.BACKEND: 1}


class Receiver:
    """An OTLP receiver over HTTP, as an application; it keeps what it was sent."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self._lock = threading.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        assert (scope["path"], dict(scope["headers"])[b"content-type"]) == ("/v1/traces", b"application/x-protobuf")
        with self._lock:
            self.requests.append(ExportTraceServiceRequest.FromString(body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def test_a_gateway_by_its_settings_sends_to_a_receiver(backend: Backend, tmp_path: Path) -> None:
    """What is left is sent when the gateway stops."""
    receiver = Receiver()
    with serving(receiver) as collector:
        text = f'[tracing]\nendpoint = "{collector}/v1/traces"\nsample_ratio = 1.0\nservice_name = "front"\n'
        with configured(backend.address, tmp_path / "serve.toml", QUIET + text) as address:
            key = ask(address, chat("sent")).headers["x-setpoint-key"]
            budget = 'setpoint_gateway_stage_budget_seconds{stage="backend"}'
            assert metric(address, budget) == pytest.approx(0.98)  # 1 s, less 1 % each for the key and for memory
        resources = [resource for request in receiver.requests for resource in request.resource_spans]
    spans = [span for resource in resources for scope in resource.scope_spans for span in scope.spans]
    assert sorted(span.name for span in spans) == sorted([ROOT, "cache.key", "cache.l1", "backend"])
    told = {one.key: one.value.string_value for resource in resources for one in resource.resource.attributes}
    assert told["service.name"] == "front"
    hashes = {one.value.string_value for span in spans for one in span.attributes if one.key == "gen.prompt.hash"}
    assert hashes == {key}


def test_without_an_endpoint_nothing_is_watched(backend: Backend, tmp_path: Path) -> None:
    assert tracing_of(TracingConfig()) is None
    with configured(backend.address, tmp_path / "serve.toml", QUIET) as address:
        ask(address, chat("plain"))
        assert "setpoint_gateway_stage" not in send("GET", f"{address}/metrics").text


def test_an_endpoint_is_a_url(backend: Backend, tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"tracing.endpoint"),
        configured(backend.address, tmp_path / "serve.toml", '[tracing]\nendpoint = "localhost:4317"\n'),
    ):
        """It is not made."""


def test_a_receiver_that_is_not_there_keeps_nobody_waiting(backend: Backend, tmp_path: Path) -> None:
    """Requests are answered as always, and the gateway stops without its spans."""
    text = f'[tracing]\nendpoint = "http://127.0.0.1:{free_port()}/v1/traces"\nsample_ratio = 1.0\n'
    with configured(backend.address, tmp_path / "serve.toml", QUIET + text) as address:
        assert [outcome(ask(address, chat("to nobody"))) for _ in range(2)] == ["miss", "hit-l1"]
        began = time.monotonic()
    assert time.monotonic() - began < 10 + 2 * SEND_SECONDS  # it tries for so long; the rest is the server's
