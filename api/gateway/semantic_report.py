"""How often answers by meaning are given, and how often they are wrong, as JSON and as numbers of /metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from api.gateway.cache_settings import threshold_told
from api.gateway.verifying import Verifying
from caches.keys.request_key import Partition
from caches.semantic.checking import HitChecker
from caches.semantic.verification import WrongShare

COUNTED = (
    ("equal_hits", "setpoint_semantic_equal_hits", "Hits of the semantic tier on equal requests."),
    ("semantic_hits", "setpoint_semantic_hits", "Hits of it on a question that means the same."),
    ("vetoes", "setpoint_semantic_vetoes", "Questions similar enough that the guard told apart."),
)
LABELS = ("tenant", "namespace")
OF_PARTITIONS = (
    ("verified_hits", "Hits by meaning that the backend was asked about too, the latest 10,000."),
    ("wrong_hits", "Those of them that were wrong."),
    ("wrong_share_low", "Lower end of the 95 % interval of the wrong share."),
    ("wrong_share_high", "Upper end of the 95 % interval of the wrong share."),
)


def told(verifying: Verifying) -> dict[str, Any]:
    """As JSON. verified: of each partition of which any hit was; the wrong share is that of all of them, also of those
    below the threshold that binds by now."""
    checker = verifying.checker
    return {
        **asdict(checker.tier.counts()),
        "verified_share": checker.verification.share,
        "verifications_failed": verifying.failed,
        "verifications_left_out": verifying.left_out,
        "partitions": [
            threshold_told(checker.tier, partition)
            | {
                "verified": share.verified,
                "wrong": share.wrong,
                "wrong_share": share.share,
                "wrong_share_95": [share.low, share.high],
            }
            for partition, share in _shares(checker)
        ],
    }


class SemanticCollector:
    """To be registered with a Prometheus registry."""

    def __init__(self, verifying: Verifying) -> None:
        self._verifying = verifying

    def collect(self) -> Iterable[Metric]:
        checker = self._verifying.checker
        counts = asdict(checker.tier.counts())
        for count, name, meaning in COUNTED:
            yield CounterMetricFamily(name, meaning, counts[count])
        yield CounterMetricFamily(
            "setpoint_semantic_verifications_failed", "Verifications without an answer.", self._verifying.failed
        )
        families = {
            name: GaugeMetricFamily(f"setpoint_semantic_{name}", meaning, labels=LABELS)
            for name, meaning in OF_PARTITIONS
        }
        for partition, share in _shares(checker):
            values = (share.verified, share.wrong, share.low, share.high)
            for (name, _), value in zip(OF_PARTITIONS, values, strict=True):
                families[name].add_metric([partition.tenant, partition.namespace], value)
        yield from families.values()


def _shares(checker: HitChecker) -> Iterable[tuple[Partition, WrongShare]]:
    for partition in sorted(checker.verification.partitions()):
        share = checker.verification.wrong_share(partition)
        if share is not None:
            yield partition, share
