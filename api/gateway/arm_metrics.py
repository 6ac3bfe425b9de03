"""The arms of the tuned tier, as numbers of /metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from api.gateway.arms import LiveArms
from caches.target import Arm, Counted, Histogram, Standing

COUNTED = (
    ("requests", "Requests that the cache may answer."),
    ("hits", "Of these, those that the backend did not answer."),
    ("errors", "Of these, those without an answer, for a reason other than the client's."),
    ("verified_hits", "Hits by meaning that the backend was asked about too."),
    ("wrong_hits", "Those of them that were wrong."),
    ("hit_bytes", "Bytes of answers from the cache."),
    ("miss_bytes", "Bytes of answers of the backend."),
    ("hit_tokens", "Prompt and output tokens of answers from the cache."),
    ("tokens", "Prompt and output tokens of all answers."),
    ("miss_prompt_tokens", "Prompt tokens of the backend's calls for requests."),
    ("miss_output_tokens", "Output tokens of the backend's calls for requests."),
    ("warmups", "Answers of the backend that no request waited for."),
    ("warmup_prompt_tokens", "Prompt tokens of these."),
    ("warmup_output_tokens", "Output tokens of these."),
    ("expirations", "Entries of the tuned tier removed because of their age."),
    ("evictions", "Entries of the tuned tier removed for space."),
)
OWN = (
    ("hits", "Lookups that the tuned tier itself could answer."),
    ("misses", "Lookups that it could not."),
)
HELD = (
    ("entries", "Entries that the tuned tier holds now."),
    ("used_bytes", "Bytes that it holds now."),
)
# Prometheus keeps a series for each bucket: every fourth or fifth one here, all of them in /v1/cache/arms.
SEEN = (
    ("ttft_seconds", "From a request to its answer; of a stream, to its beginning.", 4),
    ("latency_seconds", "From a request to its answer; of a stream, to its end.", 4),
    ("hit_age_seconds", "How long before a hit its answer was written.", 5),
)
BINDING = (
    ("cache_size", "cache_size_bytes", "Capacity that binds, stated for the whole cache."),
    ("ttl_seconds", "ttl_seconds", "Lifetime of an entry."),
    ("warmup_ratio", "warmup_ratio", "Share of the remembered requests that are fetched ahead."),
)


class ArmsCollector:
    """To be registered with a Prometheus registry. label: arm."""

    def __init__(self, arms: LiveArms) -> None:
        self._arms = arms

    def collect(self) -> Iterable[Metric]:
        counted, standing, own = self._arms.counted(), self._arms.standing(), self._arms.tier.arm_stats()
        for name, told in COUNTED:
            yield _counter(name, told, {arm: getattr(one, name) for arm, one in counted.arms.items()})
        for name, told in OWN:
            yield _counter(f"tier_{name}", told, {arm: getattr(one, name) for arm, one in own.items()})
        for name, told in HELD:
            yield _gauge(name, told, {arm: getattr(one, name) for arm, one in counted.arms.items()})
        for name, told, every in SEEN:
            yield _histogram(name, told, every, {arm: getattr(one, name) for arm, one in counted.arms.items()})
        yield from _standing(standing, counted)


def _standing(standing: Standing, counted: Counted) -> Iterable[Metric]:
    shares = {arm: standing.plan.split.share(arm) for arm in counted.arms}
    yield _gauge("share_ratio", "Share of the keys.", shares)
    for name, metric, told in BINDING:
        yield _gauge(metric, told, {arm: getattr(one, name) for arm, one in standing.binding.items()})
    yield GaugeMetricFamily("setpoint_arms_fence", "The highest fence seen.", standing.fence)
    yield GaugeMetricFamily("setpoint_arms_start_time_seconds", "When counting began.", standing.began_seconds)


def _counter(name: str, told: str, values: Mapping[Arm, int]) -> Metric:
    family = CounterMetricFamily(f"setpoint_arm_{name}", told, labels=["arm"])
    for arm, value in values.items():
        family.add_metric([arm.value], value)
    return family


def _gauge(name: str, told: str, values: Mapping[Arm, float]) -> Metric:
    family = GaugeMetricFamily(f"setpoint_arm_{name}", told, labels=["arm"])
    for arm, value in values.items():
        family.add_metric([arm.value], value)
    return family


def _histogram(name: str, told: str, every: int, values: Mapping[Arm, Histogram]) -> Metric:
    family = HistogramMetricFamily(f"setpoint_arm_{name}", told, labels=["arm"])
    for arm, value in values.items():
        family.add_metric([arm.value], _cumulative(value, every), value.total)
    return family


def _cumulative(histogram: Histogram, every: int) -> list[tuple[str, float]]:
    """As Prometheus has it: how many are not above each bound."""
    below = list(accumulate(histogram.counts))
    told = [(str(bound), float(seen)) for bound, seen in zip(histogram.bounds, below, strict=False)]
    return [*told[::every], ("+Inf", float(below[-1]))]
