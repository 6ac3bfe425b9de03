"""Freshness in /metrics: calls asked again, change rates, drift, epochs and feedback."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

PREFIX = "setpoint_freshness_"
COUNTED = (
    ("asked_again", "Hits that the backend was asked about, to see whether the answer had changed."),
    ("changed", "Those of them whose answer had changed."),
    ("asked_again_failed", "Such calls that the backend did not answer."),
    ("asked_again_left_out", "Hits that were drawn and not asked about, since there was too much to do."),
    ("not_kept", "Answers that were not kept because the model was too unsure of them."),
    ("compared", "Pairs of an old and a new answer to one request that were compared."),
    ("shifts", "Those of them that say something else."),
    ("flushed", "Families of answers that drifted and were flushed."),
    ("epoch_stores_failed", "Calls of a store of epochs that did not get through."),
)
VERDICTS = ("useful", "wrong", "stale")


class FreshnessCollector:
    """To be registered with a Prometheus registry. told: as in /v1/cache/stats; what is off is absent."""

    def __init__(self, told: Callable[[], dict[str, Any]]) -> None:
        self._told = told

    def collect(self) -> Iterable[Metric]:
        told = self._told()
        for name, meaning in COUNTED:
            if name in told:
                yield CounterMetricFamily(PREFIX + name, meaning, told[name])
        yield GaugeMetricFamily(f"{PREFIX}epochs", "Flushes that lookups still go by.", told["epochs"])
        if "change" in told:
            yield _rates(told["change"])
            yield GaugeMetricFamily(f"{PREFIX}shifted", "Families of answers that drift now.", len(told["shifted"]))
            yield _verdicts(told["feedback"])


def _rates(change: list[dict[str, Any]]) -> Metric:
    """Of several tenants the highest; absent where nothing was found yet, or everything had changed."""
    highest: dict[str, float] = {}
    for one in change:
        high = (one["changes_per_day_95"] or (None, None))[1]
        if high is not None:
            highest[one["namespace"]] = max(high, highest.get(one["namespace"], 0.0))
    meaning = "Upper end of the 95 % interval of how often an answer changes in a day."
    gauge = GaugeMetricFamily(f"{PREFIX}changes_per_day_high", meaning, labels=["namespace"])
    for namespace, value in sorted(highest.items()):
        gauge.add_metric([namespace], value)
    return gauge


def _verdicts(feedback: list[dict[str, Any]]) -> Metric:
    counter = CounterMetricFamily(f"{PREFIX}verdicts", "What clients said of answers.", labels=["verdict"])
    for verdict in VERDICTS:
        counter.add_metric([verdict], sum(one[verdict] for one in feedback))
    return counter
