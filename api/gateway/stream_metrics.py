"""What becomes of streams that are kept while they come, as numbers of /metrics."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from api.gateway.resuming import Resuming

SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.03, 0.06, 0.12, 0.25, 0.5, 1)
RECORDED = (
    ("recorded", "Streams that were written down as they came."),
    ("lost", "Of these, those of which the log does not have all."),
    ("joined", "Streams of other gateways that were passed on here."),
)
RESUMED = (
    ("resumed", "Requests that got the rest of a stream."),
    ("refused", "Requests for the rest of a stream that is not there, or not theirs."),
    ("resumed_bytes", "Bytes of these rests."),
)


def register(registry: CollectorRegistry, resuming: Resuming) -> None:
    """From now on appends are timed."""
    registry.register(_Counts(resuming))
    append = Histogram(
        "setpoint_stream_append_seconds", "What an append to the log takes.", buckets=SECONDS, registry=registry
    )
    resuming.streams.timed = append.observe


class _Counts:
    """A Prometheus collector."""

    def __init__(self, resuming: Resuming) -> None:
        self._resuming = resuming

    def collect(self) -> Iterable[Metric]:
        streams = self._resuming.streams
        for name, told in RECORDED:
            yield CounterMetricFamily(f"setpoint_streams_{name}", told, getattr(streams.counts, name))
        for name, told in RESUMED:
            yield CounterMetricFamily(f"setpoint_streams_{name}", told, getattr(self._resuming.counts, name))
        yield GaugeMetricFamily("setpoint_streams_running", "Streams that are being written down now.", streams.running)
