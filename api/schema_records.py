"""Records of the ledger as JSON: what is not finite is null, since JSON has no word for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from caches.knobs import KnobSettings
from caches.target import Arm, Histogram
from tuner.account import usd_per_1000
from tuner.records import (
    Decision,
    ExperimentRecord,
    IntervalRecord,
    Judgement,
    Mode,
    Outcome,
    Verdict,
    Wish,
    WishKind,
)

SETTINGS: dict[str, JsonValue] = {
    "cache_size_bytes": 268_435_456.0,
    "ttl_seconds": 3_600.0,
    "warmup_ratio": 0.0,
    "eviction_policy": None,
}


class Out(BaseModel):
    """Of answers."""

    model_config = ConfigDict(frozen=True)


class SettingsOut(Out):
    """eviction_policy: by its name; null for that which the cache was made with."""

    model_config = ConfigDict(json_schema_extra={"examples": [SETTINGS]})

    cache_size_bytes: float
    ttl_seconds: float
    warmup_ratio: float
    eviction_policy: str | None = None

    @staticmethod
    def of(settings: KnobSettings) -> SettingsOut:
        return SettingsOut(
            cache_size_bytes=settings.cache_size,
            ttl_seconds=settings.ttl_seconds,
            warmup_ratio=settings.warmup_ratio,
            eviction_policy=settings.eviction_policy,
        )


class HistogramOut(Out):
    """bounds: upper ends. counts: one more; the last is of what is above all bounds."""

    bounds: list[float]
    counts: list[int]
    total: float

    @staticmethod
    def of(histogram: Histogram | None) -> HistogramOut | None:
        if histogram is None:
            return None
        return HistogramOut(bounds=list(histogram.bounds), counts=list(histogram.counts), total=histogram.total)


class IntervalOut(Out):
    """One arm over one interval that is over. window: what was counted, null for what is not known; the whole is null
    where nothing can be said of the interval, and `reason` then says why. usd_per_1000_requests: what they cost."""

    cache: str = Field(examples=["gateway"])
    index: int = Field(examples=[1_186])
    arm: Arm
    began_seconds: float = Field(examples=[1_795_999_940.0])
    ended_seconds: float = Field(examples=[1_796_000_000.0])
    settings: SettingsOut
    share: float = Field(examples=[0.95])
    usd_per_1000_requests: float | None = Field(examples=[0.0431])
    reference_usd: float | None = Field(examples=[0.021])
    reward: float | None = Field(examples=[0.04])
    window: dict[str, float | None] | None = Field(examples=[{"requests": 512.0, "hit_ratio": 0.61}])
    reason: str | None
    ttft_seconds: HistogramOut | None = Field(None, description="Only where histograms were asked for.")
    latency_seconds: HistogramOut | None = Field(None, description="Only where histograms were asked for.")

    @staticmethod
    def of(record: IntervalRecord, histograms: bool = False) -> IntervalOut:
        window = record.window
        return IntervalOut(
            cache=record.cache,
            index=record.index,
            arm=record.arm,
            began_seconds=record.began_seconds,
            ended_seconds=record.ended_seconds,
            settings=SettingsOut.of(record.settings),
            share=record.share,
            usd_per_1000_requests=finite(usd_per_1000(record)),
            reference_usd=finite(record.reference_usd),
            reward=finite(record.reward),
            window=None if window is None else {name: finite(value) for name, value in window.items()},
            reason=record.reason,
            ttft_seconds=HistogramOut.of(record.ttft_seconds) if histograms else None,
            latency_seconds=HistogramOut.of(record.latency_seconds) if histograms else None,
        )


class DecisionOut(Out):
    """Of one arm, for the interval `index` that begins with it. proposed: by the policy; limited: after ranges, largest
    steps and guardrails; applied: what the cache took, null until that is known and always in shadow. reasons: the
    first is the one to show. predicted_usd_per_1000: what it should save against the control settings."""

    cache: str = Field(examples=["gateway"])
    index: int = Field(examples=[1_187])
    arm: Arm
    at_seconds: float = Field(examples=[1_796_000_000.0])
    policy: str = Field(examples=["ppo"])
    version: int | None = Field(examples=[4])
    mode: Mode
    verdict: Verdict
    reasons: list[str] = Field(examples=[["Moves the lifetime from 1 h to 1.2 h: that was cheapest lately."]])
    proposed: SettingsOut | None
    limited: SettingsOut
    applied: SettingsOut | None
    predicted_usd_per_1000: float | None = Field(examples=[0.0012])

    @staticmethod
    def of(decision: Decision) -> DecisionOut:
        return DecisionOut(
            cache=decision.cache,
            index=decision.index,
            arm=decision.arm,
            at_seconds=decision.at_seconds,
            policy=decision.policy,
            version=decision.version,
            mode=decision.mode,
            verdict=decision.verdict,
            reasons=list(decision.reasons),
            proposed=None if decision.proposed is None else SettingsOut.of(decision.proposed),
            limited=SettingsOut.of(decision.limited),
            applied=None if decision.applied is None else SettingsOut.of(decision.applied),
            predicted_usd_per_1000=finite(decision.predicted_usd_per_1000),
        )


class WishOut(Out):
    """done_index: of the interval whose tick acted on it; null while it is open. answer: what came of it."""

    id: int = Field(examples=[17])
    cache: str = Field(examples=["gateway"])
    kind: WishKind
    by: str = Field(examples=["ana"])
    at_seconds: float = Field(examples=[1_796_000_003.0])
    reason: str = Field(examples=["The backend is being upgraded."])
    arguments: dict[str, Any] = Field(examples=[{}])
    done_index: int | None
    answer: str | None

    @staticmethod
    def of(wish: Wish) -> WishOut:
        assert wish.id is not None  # the ledger gave it one
        return WishOut(
            id=wish.id,
            cache=wish.cache,
            kind=wish.kind,
            by=wish.by,
            at_seconds=wish.at_seconds,
            reason=wish.reason,
            arguments=dict(plain(wish.arguments)),
            done_index=wish.done_index,
            answer=wish.answer,
        )


class JudgementOut(Out):
    """What the analysis said at the end of an interval."""

    index: int = Field(examples=[1_186])
    outcome: Outcome
    reasons: list[str] = Field(examples=[["The saving's interval reaches zero: more traffic is needed."]])
    numbers: dict[str, Any] = Field(examples=[{}])

    @staticmethod
    def of(judgement: Judgement) -> JudgementOut:
        return JudgementOut(
            index=judgement.index,
            outcome=judgement.outcome,
            reasons=list(judgement.reasons),
            numbers=dict(plain(judgement.numbers)),
        )


class ExperimentOut(Out):
    """champion, challenger: versions in the registry, null for the operator's static settings. ended_seconds, outcome,
    answer: null while it runs."""

    id: str = Field(examples=["2026-11-30-a"])
    cache: str = Field(examples=["gateway"])
    began_seconds: float = Field(examples=[1_795_990_000.0])
    champion: int | None = Field(examples=[3])
    challenger: int | None = Field(examples=[4])
    design: dict[str, Any] = Field(examples=[{}])
    ended_seconds: float | None
    outcome: Outcome | None
    answer: str | None

    @staticmethod
    def of(record: ExperimentRecord) -> ExperimentOut:
        return ExperimentOut(
            id=record.id,
            cache=record.cache,
            began_seconds=record.began_seconds,
            champion=record.champion,
            challenger=record.challenger,
            design=dict(plain(record.design)),
            ended_seconds=record.ended_seconds,
            outcome=record.outcome,
            answer=record.answer,
        )


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def plain(value: Any) -> Any:
    """JSON without NaN and infinity."""
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return [plain(one) for one in value]
    return finite(value) if isinstance(value, float) else value
