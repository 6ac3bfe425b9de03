"""What warming did, as numbers of /metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from api.gateway.warming import GatewayWarming

OUTCOMES = ("there", "copied", "renewed", "left")
COUNTED = (
    ("rounds", "Warm-ups that were gone through or stopped."),
    ("stopped_rounds", "Warm-ups that a gate or a busy gateway stopped."),
    ("paused_seconds", "Seconds that warming waited, since gateway or backend were busy."),
    ("hit", "Warmed entries that were asked for."),
    ("useless", "Warmed entries that were gone before anybody asked for them."),
)


class WarmingCollector:
    """To be registered with a Prometheus registry."""

    def __init__(self, warming: GatewayWarming) -> None:
        self._warming = warming

    def collect(self) -> Iterable[Metric]:
        counts = asdict(self._warming.counts()) | asdict(self._warming.uses())
        outcomes = CounterMetricFamily(
            "setpoint_warming_candidates",
            "Candidates that were gone through, by what became of them.",
            None,
            ["outcome"],
        )
        for outcome in OUTCOMES:
            outcomes.add_metric([outcome], counts[outcome])
        yield outcomes
        for name, told in COUNTED:
            yield CounterMetricFamily(f"setpoint_warming_{name}", told, counts[name])
        yield GaugeMetricFamily("setpoint_hot_keys", "Requests whose popularity is known.", len(self._warming.hot))
        yield GaugeMetricFamily("setpoint_backend_calls", "Backend calls on their way.", self._warming.load.calls)
