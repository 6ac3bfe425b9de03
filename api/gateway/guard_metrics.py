"""What the guard does, as numbers of /metrics and of /v1/cache/stats."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from api.gateway.guarding import Guard
from caches.guards.health import Condition
from caches.guards.ladder import Rung, Why
from caches.guards.latency import LatencyBreaker

NOBODY = "nobody"


class GuardCollector:
    """To be registered with a Prometheus registry."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def collect(self) -> Iterable[Metric]:
        guard = self._guard
        refused = CounterMetricFamily("setpoint_guard_refused", "Calls that were not made.", labels=["why"])
        for why in Why:
            refused.add_metric([why.value], guard.refused[why])
        instead = CounterMetricFamily(
            "setpoint_guard_instead", "Requests that the backend did not answer, by who did.", labels=["why", "rung"]
        )
        for why, rung in product(Why, (*Rung, None)):
            instead.add_metric([why.value, NOBODY if rung is None else rung.value], guard.instead[why, rung])
        yield refused
        yield instead
        condition = GaugeMetricFamily(
            "setpoint_guard_condition",
            "What is known of a tier, upstream or fallback: 0 well, 1 slow, 2 down.",
            labels=["of"],
        )
        for name, found in guard.conditions().items():
            condition.add_metric([name], float(found))
        yield condition
        level = guard.tokens_left()
        if level is not None:
            yield GaugeMetricFamily("setpoint_guard_tokens", "Left in the whole backend's bucket.", value=level)
        if guard.negatives is not None:
            yield CounterMetricFamily(
                "setpoint_guard_negatives",
                "Errors that were repeated without the backend.",
                value=guard.negatives.served,
            )


def told(guard: Guard) -> dict[str, Any]:
    """For /v1/cache/stats."""
    negatives, now = guard.negatives, guard.ticks()
    return {
        "refused": {why.value: count for why, count in guard.refused.items()},
        "instead": [
            {"why": why.value, "by": None if rung is None else rung.value, "requests": count}
            for (why, rung), count in guard.instead.items()
        ],
        "conditions": {name: found.name.lower() for name, found in guard.conditions().items()},
        "upstreams": [
            {
                "upstream": backend.shown,
                "condition": backend.health.condition(now).name.lower(),
                "first_byte_p95_seconds": _p95(backend.health.latencies.get(True), now),
                "whole_p95_seconds": _p95(backend.health.latencies.get(False), now),
                "opened": 0 if backend.health.failures is None else backend.health.failures.opened,
            }
            for backend in guard.backends
        ],
        "classes": [
            {
                "name": one.rule.name,
                "asked": one.asked,
                "kept_back": one.rule.refused or one.health.condition(now) is not Condition.HEALTHY,
            }
            for one in guard.classes.classes
        ],
        "tokens_left": guard.tokens_left(),
        "negatives": None if negatives is None else {"kept": len(negatives), "served": negatives.served},
    }


def _p95(breaker: LatencyBreaker | None, now: float) -> float | None:
    """Of the last while, as long as it is not over the limit; None where it is not watched or nothing is known."""
    return None if breaker is None else breaker.window.p95_seconds(now)
