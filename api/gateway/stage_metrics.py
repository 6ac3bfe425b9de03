"""What the stages of a request's path take, as numbers of /metrics; of a gateway with `[tracing]` only."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from api.gateway.metrics import SECONDS
from api.gateway.stage_budget import Budget, Stage


class StageMetrics:
    """label: stage."""

    def __init__(self, registry: CollectorRegistry, budget: Budget) -> None:
        labels = ("stage",)
        name, told = "setpoint_gateway_stage_seconds", "What a pass through the stage takes."
        timed = Histogram(name, told, labels, buckets=SECONDS, registry=registry)
        over = Counter(
            "setpoint_gateway_stage_over_budget",
            "Passes that took longer than their budget.",
            labels,
            registry=registry,
        )
        allowed = Gauge("setpoint_gateway_stage_budget_seconds", "What a pass should take.", labels, registry=registry)
        self._of = {stage: (timed.labels(stage.value), over.labels(stage.value)) for stage in budget.stages}
        for stage, seconds in budget.stages.items():
            allowed.labels(stage.value).set(seconds)

    def timed(self, stage: Stage, seconds: float, over: bool) -> None:
        histogram, counter = self._of[stage]
        histogram.observe(seconds)
        if over:
            counter.inc()
