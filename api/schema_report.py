"""The report of an experiment as JSON."""

from __future__ import annotations

from pydantic import Field

from api.report.experiment import Reckoning
from api.schema_records import ExperimentOut, JudgementOut, Out, finite
from caches.target import Arm
from tuner.account import Totals
from tuner.records import Outcome
from tuner.savings import Band


class BandOut(Out):
    """An estimate and the ends of its confidence sequence, null while they are infinite."""

    mean: float = Field(examples=[0.0013])
    low: float | None = Field(examples=[0.0004])
    high: float | None = Field(examples=[0.0022])

    @staticmethod
    def of(band: Band | None) -> BandOut | None:
        return None if band is None else BandOut(mean=band.mean, low=band.low, high=band.high)


class TotalsOut(Out):
    """Of one arm. known: in how many of the intervals cost and requests are known; all else is over these."""

    intervals: int = Field(examples=[60])
    known: int = Field(examples=[58])
    requests: float | None = Field(examples=[31_200.0])
    usd: float | None = Field(examples=[1.31])
    usd_per_1000_requests: float | None = Field(examples=[0.042])
    usd_by_cause: dict[str, float] | None = Field(examples=[{"compute": 1.1, "memory": 0.2}])
    hit_ratio: float | None = Field(examples=[0.61])
    stale_ratio: float | None = Field(examples=[0.002])
    p99_ttft_seconds: float | None = Field(examples=[0.8])
    p99_latency_seconds: float | None = Field(examples=[2.4])

    @staticmethod
    def of(totals: Totals) -> TotalsOut:
        return TotalsOut(
            intervals=totals.intervals,
            known=totals.known,
            requests=finite(totals.requests),
            usd=finite(totals.usd),
            usd_per_1000_requests=finite(totals.usd_per_1000),
            usd_by_cause=totals.usd_by_cause,
            hit_ratio=finite(totals.hit_ratio),
            stale_ratio=finite(totals.stale_ratio),
            p99_ttft_seconds=finite(totals.p99_ttft_seconds),
            p99_latency_seconds=finite(totals.p99_latency_seconds),
        )


class SavingOut(Out):
    """realised: by the analysis of the arms. predicted: by the decisions, beforehand. Null: nothing can be said."""

    realised_percent: BandOut | None
    realised_usd_per_1000_requests: BandOut | None
    realised_usd: BandOut | None
    predicted_usd_per_1000_requests: float | None = Field(examples=[0.0011])


class ReportOut(Out):
    """outcome: of the experiment so far; null before it was judged. judgement: the last one."""

    experiment: ExperimentOut
    outcome: Outcome | None
    saving: SavingOut
    control: TotalsOut
    treatment: TotalsOut
    judgement: JudgementOut | None
    looks: int = Field(description="How often it was judged.", examples=[42])

    @staticmethod
    def of(found: Reckoning) -> ReportOut:
        return ReportOut(
            experiment=ExperimentOut.of(found.account.experiment),
            outcome=found.outcome,
            saving=SavingOut(
                realised_percent=BandOut.of(found.saved_percent),
                realised_usd_per_1000_requests=BandOut.of(found.saved_usd_per_1000),
                realised_usd=BandOut.of(found.saved_usd),
                predicted_usd_per_1000_requests=finite(found.predicted_usd_per_1000),
            ),
            control=TotalsOut.of(found.arms[Arm.CONTROL]),
            treatment=TotalsOut.of(found.arms[Arm.TREATMENT]),
            judgement=None if found.judgement is None else JudgementOut.of(found.judgement),
            looks=len(found.account.judgements),
        )
