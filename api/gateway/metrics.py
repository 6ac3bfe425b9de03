"""The numbers of /metrics: what the gateway answered and how, and what its tiers count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from caches.place import Place, PlaceStats
from caches.stats import CacheStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
COUNTED = (
    ("hits", "Lookups that found an answer."),
    ("misses", "Lookups that did not."),
    ("evictions", "Entries removed for space."),
    ("expirations", "Entries removed because of their age."),
    ("refusals", "Answers larger than the whole tier."),
)
HELD = (("entries", "Entries held now."), ("used_bytes", "Bytes held now."))
KEPT_BACK = (
    ("failed", "Calls that failed or took too long."),
    ("skipped", "Calls that the breaker kept back."),
    ("passed_by", "Lookups that would not have paid."),
    ("kept_out", "Answers that the admission rule did not take in."),
)


@dataclass(frozen=True)
class TierCounts:
    """stats: None where the tier could not be asked."""

    name: str
    stats: CacheStats | None
    place: PlaceStats


async def tier_counts(places: Sequence[Place]) -> list[TierCounts]:
    return [TierCounts(place.tier.name, await place.ask(place.tier.stats), place.stats) for place in places]


class GatewayMetrics:
    """Of one application. endpoint: a path that is cached, or "other". outcome: hit-TIER, miss, bypass, or refused for
    what the gateway answered by itself."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        labels = ("endpoint", "outcome")
        self._requests = Counter(
            "setpoint_gateway_requests", "Requests that were answered.", labels, registry=self.registry
        )
        self._seconds = Histogram(
            "setpoint_gateway_response_seconds",
            "From a request to its answer; of a stream, to its beginning.",
            labels,
            buckets=SECONDS,
            registry=self.registry,
        )
        self._refreshes = Counter(
            "setpoint_gateway_refreshes", "Entries renewed before their end.", ("outcome",), registry=self.registry
        )

    def answered(self, endpoint: str, outcome: str, seconds: float) -> None:
        self._requests.labels(endpoint, outcome).inc()
        self._seconds.labels(endpoint, outcome).observe(seconds)

    def refreshed(self, outcome: str) -> None:
        self._refreshes.labels(outcome).inc()

    def page(self, tiers: Sequence[TierCounts]) -> bytes:
        """The text that Prometheus reads."""
        snapshot = CollectorRegistry(auto_describe=False)
        snapshot.register(_Tiers(tiers))
        return generate_latest(self.registry) + generate_latest(snapshot)


class _Tiers:
    """A Prometheus collector over counts that were taken already: tiers are asked asynchronously."""

    def __init__(self, tiers: Sequence[TierCounts]) -> None:
        self._tiers = tiers

    def collect(self) -> Iterable[Metric]:
        for name, told in COUNTED:
            yield self._counter(name, told, [(tier.name, _of(tier.stats, name)) for tier in self._tiers])
        for name, told in KEPT_BACK:
            yield self._counter(name, told, [(tier.name, _of(tier.place, name)) for tier in self._tiers])
        for name, told in HELD:
            gauge = GaugeMetricFamily(f"setpoint_tier_{name}", told, labels=["tier"])
            for tier in self._tiers:
                value = _of(tier.stats, name)
                if value is not None:
                    gauge.add_metric([tier.name], value)
            yield gauge

    def _counter(self, name: str, told: str, values: Sequence[tuple[str, float | None]]) -> Metric:
        counter = CounterMetricFamily(f"setpoint_tier_{name}", told, labels=["tier"])
        for tier, value in values:
            if value is not None:
                counter.add_metric([tier], value)
        return counter


def _of(counts: CacheStats | PlaceStats | None, name: str) -> float | None:
    return None if counts is None else float(getattr(counts, name))
