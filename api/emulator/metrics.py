"""The numbers of /metrics, under the names that vLLM gives them, read from the queue when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from api.emulator.queueing import Queue

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class QueueCollector:
    """A Prometheus collector over one queue. A request of several choices is several requests here, as in vLLM."""

    def __init__(self, queue: Queue, model: str) -> None:
        self.queue, self.model = queue, model

    def collect(self) -> Iterable[Metric]:
        queue = self.queue
        for name, told, value in (
            ("vllm:num_requests_running", "Sequences in a slot.", queue.running),
            ("vllm:num_requests_waiting", "Sequences that wait for a slot.", queue.waiting),
        ):
            gauge = GaugeMetricFamily(name, f"{told} Emulated.", labels=["model_name"])
            gauge.add_metric([self.model], value)
            yield gauge
        for name, told, value in (
            ("vllm:prompt_tokens", "Prompt tokens taken in.", queue.prompt_tokens),
            ("vllm:generation_tokens", "Tokens generated.", queue.generation_tokens),
        ):
            counter = CounterMetricFamily(name, f"{told} Emulated.", labels=["model_name"])
            counter.add_metric([self.model], value)
            yield counter


def metrics_page(queue: Queue, model: str) -> bytes:
    """The text that Prometheus reads. The registry holds nothing but this queue."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(QueueCollector(queue, model))
    return generate_latest(registry)
