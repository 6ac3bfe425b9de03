"""What an analysis found, as sentences that a person understands and as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass

from caches.histograms import quantile
from tuner.judging.guard_metrics import Buckets, GuardMetric, Latencies
from tuner.judging.paired import Effect
from tuner.judging.pairs import Covariate, Pairs
from tuner.judging.sample_ratio import Ratio


@dataclass(frozen=True)
class Guarded:
    """A guard metric so far. effect: of the treatment on it, such that more is worse. margin: None where it is only
    measured. control, treatment: its value in the intervals of treatment, None where it was not measured."""

    metric: GuardMetric
    effect: Effect
    margin: float | None
    control: float | None
    treatment: float | None

    @property
    def worse(self) -> bool:
        return self.margin is not None and self.effect.low > self.margin


@dataclass(frozen=True)
class Findings:
    """Everything that an outcome is decided by. elapsed: intervals since treatment began. covariate: None where
    ghosts did not tell. control_usd: per request. cost: the effect, USD per request. ratio: None
    where the arms' shares of the requests could not be checked."""

    pairs: Pairs
    elapsed: int
    batch: int
    covariate: Covariate | None
    control_usd: float | None
    cost: Effect
    guards: tuple[Guarded, ...]
    latencies: Latencies
    ratio: Ratio | None


def cost_sentence(found: Findings, alpha: float) -> str:
    cost, unit = found.cost, found.control_usd
    counted = int((found.pairs.sign != 0).sum())
    if cost.mean is None or not unit:
        return f"What the treatment costs cannot be told yet from {counted} intervals of treatment."
    if not math.isfinite(cost.high):
        return f"Too little is known of what the treatment costs: {counted} intervals of treatment."
    more = "less" if cost.mean < 0 else "more"
    bounds = sorted((-100.0 * cost.low / unit, -100.0 * cost.high / unit))
    return (
        f"The treatment costs {abs(1000.0 * cost.mean):.3g} USD {more} per 1,000 requests than the control's "
        f"{1000.0 * unit:.3g}: it saves {-100.0 * cost.mean / unit:.2f} % "
        f"({100.0 * (1.0 - alpha):g} % confidence sequence {bounds[0]:.2f} to {bounds[1]:.2f} %), "
        f"by {counted} intervals of treatment."
    )


def guard_sentence(guard: Guarded) -> str:
    """Of one that is worse."""
    values = (
        ""
        if guard.control is None or guard.treatment is None
        else (f"{100.0 * guard.treatment:.3g} % in place of {100.0 * guard.control:.3g} % ")
    )
    direction = "more" if guard.metric.larger_is_worse else "fewer"
    return (
        f"The treatment has {direction} {guard.metric.what}: {values}"
        f"(by at least {100.0 * guard.effect.low:.2g} percentage points, margin {100.0 * (guard.margin or 0.0):.2g})."
    )


def ratio_sentence(ratio: Ratio) -> str:
    return (
        f"The treatment arm had {100.0 * ratio.found:.2f} % of the requests, expected {100.0 * ratio.expected:.2f} % "
        f"give or take {100.0 * ratio.allowed:.2f}: something is wrong with the split, and the arms cannot be compared."
    )


def numbers_of(found: Findings) -> dict[str, object]:
    """As documented in docs/experiments.md. Infinite bounds are None."""
    pairs, unit = found.pairs, found.control_usd
    return {
        "intervals": {
            "lead_in": int(pairs.lead_in.sum()),
            "treated": int((pairs.sign > 0).sum()),
            "swapped": int((pairs.sign < 0).sum()),
            "since_treatment": found.elapsed,
            "dropped": dict(pairs.dropped),
        },
        "requests": {name: float(pairs.requests[:, arm].sum()) for arm, name in enumerate(("control", "treatment"))},
        "control_usd_per_1000": None if unit is None else 1000.0 * unit,
        "cost_usd_per_1000": effect_numbers(found.cost, 1000.0),
        "saving_percent": None if not unit else effect_numbers(found.cost, -100.0 / unit),
        "batch_intervals": found.batch,
        "covariate": None if found.covariate is None else _covariate(found.covariate),
        "guards": {
            guard.metric.name: {
                "what": guard.metric.what,
                "control": guard.control,
                "treatment": guard.treatment,
                "margin": guard.margin,
                "worse_by": effect_numbers(guard.effect, 1.0),
            }
            for guard in found.guards
        },
        "p99_seconds": {
            "ttft": _p99(pairs, found.latencies.ttft),
            "latency": _p99(pairs, found.latencies.latency),
        },
        "request_share": None if found.ratio is None else dict(vars(found.ratio)),
    }


def effect_numbers(effect: Effect, factor: float) -> dict[str, float | int | None]:
    """In another unit; a negative factor turns the bounds round."""
    ends = sorted((effect.low * factor, effect.high * factor))
    low, high = (end if math.isfinite(end) else None for end in ends)
    error = effect.standard_error
    return {
        "mean": None if effect.mean is None else effect.mean * factor,
        "low": low,
        "high": high,
        "standard_error": None if error is None else error * abs(factor),
        "log_evidence": effect.log_evidence,
        "batches": effect.batches,
        "degrees_of_freedom": effect.degrees,
        "autocorrelation": effect.autocorrelation,
    }


def _p99(pairs: Pairs, buckets: Buckets | None) -> dict[str, float | None]:
    """With and without the challenger's settings, over the intervals of treatment."""
    return {
        name: None if buckets is None else quantile(buckets.pooled(pairs.treated(challenger)), 0.99)
        for name, challenger in (("control", False), ("treatment", True))
    }


def _covariate(found: Covariate) -> dict[str, float | None]:
    left = 1000.0 * found.left if math.isfinite(found.left) else None
    return {"coefficient": found.coefficient, "explained": found.explained, "left_usd_per_1000": left}
