"""The daemon's page of metrics for Prometheus, over HTTP. The only file of the tuner that knows prometheus_client."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Histogram, start_http_server
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from caches.errors import InputError
from tuner.exporting.metric_table import MEASURES, TICK, Kind
from tuner.exporting.metrics import Sample

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)  # a tick is meant to take 0.2


class MetricsPage(Collector):
    """What `show` was told last, beside the durations of ticks. It may be read by any thread.

    port: 0 for any that is free; `port` says which. Raises InputError where it cannot be had.
    """

    def __init__(self, cache: str, host: str, port: int) -> None:
        self._cache = cache
        self._samples: Sequence[Sample] = ()
        registry = CollectorRegistry(auto_describe=False)
        self._ticks = Histogram(TICK.name, TICK.help, TICK.all_labels, buckets=SECONDS, registry=registry)
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise InputError(
                f"control.metrics_port: got {host}, {port}, expected a free address: {error.strerror}"
            ) from error
        self.port = int(self._server.server_port)

    def ticked(self, did: str, seconds: float) -> None:
        self._ticks.labels(self._cache, did).observe(seconds)

    def show(self, samples: Sequence[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        samples = self._samples
        for measure in MEASURES:
            found = [sample for sample in samples if sample.measure is measure]
            if not found:
                continue
            family = CounterMetricFamily if measure.kind is Kind.COUNTER else GaugeMetricFamily
            metric = family(measure.name, measure.help, labels=measure.all_labels)
            for sample in found:
                metric.add_metric((self._cache, *sample.labels), sample.value)
            yield metric

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        if self._thread is not threading.current_thread():
            self._thread.join()
