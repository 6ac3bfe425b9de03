"""How the backends are, as numbers of /metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from api.gateway.balancing import Backend

GAUGES = (
    ("healthy", "Whether nothing is known against a backend."),
    ("under_way", "Requests whose answer is not complete yet."),
)
COUNTERS = (
    ("sent", "Requests that were sent to a backend."),
    ("failed", "Requests that could not reach it, or broke off."),
)


class BackendCollector:
    """To be registered with a Prometheus registry."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = backends

    def collect(self) -> Iterable[Metric]:
        for name, told in GAUGES:
            yield self._filled(name, GaugeMetricFamily(f"setpoint_upstream_{name}", told, labels=["upstream"]))
        for name, told in COUNTERS:
            yield self._filled(name, CounterMetricFamily(f"setpoint_upstream_{name}", told, labels=["upstream"]))

    def _filled(self, name: str, family: GaugeMetricFamily | CounterMetricFamily) -> Metric:
        for backend in self._backends:
            family.add_metric([backend.shown], float(getattr(backend, name)))
        return family
