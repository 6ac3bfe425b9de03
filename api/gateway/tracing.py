"""Spans by OpenTelemetry: the only file that knows it. It is imported when a tracer is made, and not before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from api.gateway.config_tracing import TracingConfig
from api.gateway.stages import Attributes, Span
from caches.errors import InputError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace import Tracer as OtelTracer

NAME = "setpoint.gateway"
SEND_SECONDS = 5.0  # for a batch; nobody waits for it but a gateway that stops


class OtelTracing:
    """Whether a request's spans are sent is decided by the client's `traceparent`, else by a share of the requests."""

    def __init__(self, config: TracingConfig, processor: SpanProcessor) -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create({"service.name": config.service_name})
        self._provider: TracerProvider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(config.sample_ratio)), resource=resource
        )
        self._provider.add_span_processor(processor)
        self._tracer: OtelTracer = self._provider.get_tracer(NAME)
        self._kind: type[SpanKind] = trace.SpanKind
        self._error = trace.Status, trace.StatusCode.ERROR
        self._inside: Callable[[OtelSpan], Context] = trace.set_span_in_context
        self._extract: Callable[[Mapping[str, str]], Context] = TraceContextTextMapPropagator().extract

    def request(self, name: str, headers: Mapping[str, str]) -> Span:
        return self._span(self._tracer.start_span(name, self._extract(headers), self._kind.SERVER))

    def stage(self, name: str, request: Span) -> Span:
        if not isinstance(request, _Sent):
            return request  # nothing of this request is sent
        return self._span(self._tracer.start_span(name, self._inside(request.span), self._kind.INTERNAL))

    def close(self) -> None:
        self._provider.shutdown()

    def _span(self, span: OtelSpan) -> Span:
        return _Sent(span, self._failed) if span.is_recording() else _NotSent()

    def _failed(self, span: OtelSpan, error: str) -> None:
        status, code = self._error
        span.set_status(status(code, error))


class _Sent:
    def __init__(self, span: OtelSpan, failed: Callable[[OtelSpan, str], None]) -> None:
        self.span, self._failed = span, failed

    def end(self, attributes: Attributes, error: str | None = None) -> None:
        self.span.set_attributes(attributes)
        if error is not None:
            self._failed(self.span, error)
        self.span.end()


class _NotSent:
    def end(self, attributes: Attributes, error: str | None = None) -> None:
        """There is nothing to end."""


def tracing_of(config: TracingConfig) -> OtelTracing | None:
    """None where no endpoint is set. Raises InputError where the library is missing."""
    if config.endpoint is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise InputError(f"tracing needs {error.name}: install it with pip install 'setpoint[otel]'") from error
    return OtelTracing(config, BatchSpanProcessor(OTLPSpanExporter(config.endpoint, timeout=SEND_SECONDS)))
