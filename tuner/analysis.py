"""Which arm is better: cost per request interval by interval, guard metrics, and whether the arms can be compared.

May be asked after every interval: a false BETTER or WORSE stays rarer than `alpha` however often one looks
(tuner/judging/confidence_sequence.py). What is compared, with what adjustments, and why: docs/experiments.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from tuner.experiment import ExperimentDesign
from tuner.judging.analysis_text import Findings, Guarded, cost_sentence, guard_sentence, numbers_of, ratio_sentence
from tuner.judging.confidence_sequence import prior_information
from tuner.judging.guard_metrics import GuardMetric, Latencies, guard_metrics, latencies_of
from tuner.judging.paired import NO_EFFECT, Assumed, Effect, Series, batch_length, batched, effect
from tuner.judging.pairs import Pairs, cost_differences, pairs_of
from tuner.judging.sample_ratio import Ratio, sample_ratio
from tuner.records import IntervalRecord, Outcome

Array = NDArray[Any]
DRIFT = (
    2.0  # how much further luck of the split goes over time than a lead-in shows; measured, benchmarks/experiments.py
)
EXPLAINED = 0.8  # of the variance by the covariate, from which on nothing is left to drift
NOTHING = 1e-9  # of the control's cost: smaller differences are rounding


@dataclass(frozen=True)
class AnalysisPlan:
    """design: of the experiment. began_index: the first interval of its lead-in."""

    design: ExperimentDesign
    began_index: int

    @property
    def treated_index(self) -> int:
        """The first interval with the challenger's settings."""
        return self.began_index + self.design.lead_in_intervals


@dataclass(frozen=True)
class Comparison:
    """outcome, reasons: as in tuner.records.Judgement; the first reason is the one to show. numbers: JSON, as in
    docs/experiments.md; None for what is not known."""

    outcome: Outcome
    reasons: tuple[str, ...]
    numbers: dict[str, object]


def compare(control: Sequence[IntervalRecord], treatment: Sequence[IntervalRecord], plan: AnalysisPlan) -> Comparison:
    """control, treatment: all intervals of each arm since the experiment began. What cannot be compared at all is ERROR
    with the reason; no data is PENDING, and INCONCLUSIVE when the time is over."""
    try:
        pairs = pairs_of(control, treatment, plan.design.stretches(plan.began_index))
        last = max((one.index for one in (*control, *treatment)), default=plan.began_index - 1)
        found = findings(pairs, plan.design, max(last + 1 - plan.treated_index, 0))
    except InputError as error:
        return Comparison(Outcome.ERROR, (f"The arms cannot be compared: {error}.",), {})
    outcome, reasons = _outcome(found, plan.design)
    return Comparison(outcome, tuple(reasons), numbers_of(found))


def findings(pairs: Pairs, design: ExperimentDesign, elapsed: int) -> Findings:
    """elapsed: intervals since treatment began. InputError where histograms of an arm do not fit together."""
    differences, covariate = cost_differences(pairs)
    batch = _batch(pairs, differences, design)
    unit = _control_usd(pairs)
    alpha = design.alpha * (1.0 - design.guard_alpha_share)
    luck = math.inf if not (design.luck_ratio and unit) else design.luck_ratio * unit
    explained = covariate is not None and covariate.explained >= EXPLAINED
    if explained and covariate is not None:
        luck = min(luck, covariate.left)  # what ghosts take away is none
    steady = explained or design.swap_every_intervals is not None
    judging = Judging(design, batch, alpha, Assumed(luck, 1.0 if steady else DRIFT, explained))
    # where ghosts tell the luck of every split, what is left over is not luck of one and the same at every share
    cost = _effect(pairs.series(differences, pairs.weight, pairs.compared if explained else None), judging)
    latencies = latencies_of(pairs)
    guards = _guards(pairs, latencies, batch, design)
    return Findings(pairs, elapsed, batch, covariate, unit, cost, guards, latencies, _ratio(pairs, design))


@dataclass(frozen=True)
class Judging:
    """How an effect is judged, by batches of so many intervals."""

    design: ExperimentDesign
    batch: int
    alpha: float
    assumed: Assumed

    @property
    def expected_information(self) -> float:
        """In batches, when half the time is over: where the sequence is to be narrowest."""
        half, before = max(self.design.max_intervals / 2.0, 1.0), float(self.design.lead_in_intervals)
        told_apart = half if not before or self.design.swap_every_intervals else half * before / (half + before)
        return told_apart / self.batch


def _batch(pairs: Pairs, differences: Array, design: ExperimentDesign) -> int:
    """Half a block of a crossover; without one, by the autocorrelation of the lead-in."""
    if design.batch_intervals is not None:
        return design.batch_intervals
    if design.swap_every_intervals is not None:
        return max((design.swap_every_intervals - design.washout_intervals) // 2, 1)
    lead_in = pairs.series(differences, pairs.weight * pairs.lead_in)
    return batch_length(lead_in) if len(lead_in) else 1


def _effect(series: Series, judging: Judging) -> Effect:
    """Weights count in multiples of the first ones', so that information is a number of batches."""
    batches = batched(series, judging.batch)
    if not len(batches):
        return NO_EFFECT
    first = batches.weight[: max(judging.design.lead_in_intervals // judging.batch, 1)].mean()
    scaled = Series(batches.difference, batches.weight / first, batches.sign, batches.stratum, batches.run)
    prior = prior_information(judging.expected_information / judging.assumed.widened**2, judging.alpha)
    return effect(scaled, prior, judging.alpha, judging.assumed)


def _guards(pairs: Pairs, latencies: Latencies, batch: int, design: ExperimentDesign) -> tuple[Guarded, ...]:
    margins = design.margins.model_dump()
    judged = sum(margin is not None for margin in margins.values())
    alpha = design.alpha * design.guard_alpha_share / max(judged, 1)
    judging = Judging(design, batch, alpha, Assumed(widened=1.0 if design.swap_every_intervals else DRIFT))
    return tuple(_guarded(pairs, metric, margins[metric.name], judging) for metric in guard_metrics(pairs, latencies))


def _guarded(pairs: Pairs, metric: GuardMetric, margin: float | None, judging: Judging) -> Guarded:
    some, whole = metric.counts[:, :, 0], metric.counts[:, :, 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = np.diff(some / whole, axis=1)[:, 0]
    weight = np.nan_to_num(whole.sum(axis=1) * pairs.share * (1.0 - pairs.share))
    worse = difference if metric.larger_is_worse else -difference
    known = np.isfinite(difference)
    return Guarded(
        metric,
        _effect(pairs.series(worse, weight), judging),
        margin,
        *(_under(pairs, some, whole, known, challenger) for challenger in (False, True)),
    )


def _under(pairs: Pairs, some: Array, whole: Array, known: Array, challenger: bool) -> float | None:
    """The share over the intervals of treatment, of the arm with or without the challenger's settings."""
    chosen = pairs.treated(challenger) & known[:, None]
    total = whole[chosen].sum()
    return float(some[chosen].sum() / total) if total > 0 else None


def _control_usd(pairs: Pairs) -> float | None:
    """What a request costs under the control's settings, beside treatment; before it begins, in the lead-in."""
    chosen = pairs.treated(False)
    if not chosen.any():
        chosen = np.ones_like(chosen)
    requests = pairs.requests[chosen].sum()
    return float(pairs.usd[chosen].sum() / requests) if requests > 0 else None


def _ratio(pairs: Pairs, design: ExperimentDesign) -> Ratio | None:
    """Of the share that the keys are split by now; None where past traffic did not say how concentrated it is."""
    if design.concentration is None or not len(pairs):
        return None
    now = pairs.share == pairs.share[-1]
    return sample_ratio(pairs.requests[now], float(pairs.share[-1]), design.concentration)


def _outcome(found: Findings, design: ExperimentDesign) -> tuple[Outcome, list[str]]:
    if found.ratio is not None and found.ratio.mismatch:
        return Outcome.ERROR, [ratio_sentence(found.ratio)]
    nothing = NOTHING * (found.control_usd or 0.0)
    costs_more, costs_less = found.cost.low > nothing, found.cost.high < -nothing
    worse = [guard_sentence(guard) for guard in found.guards if guard.worse]
    reasons = [cost_sentence(found, design.alpha * (1.0 - design.guard_alpha_share))]
    if worse or costs_more:
        return Outcome.WORSE, ([] if costs_more and not worse else worse) + reasons
    wanting = _wanting(found, design)
    if costs_less and not wanting:
        return Outcome.BETTER, reasons
    if found.elapsed >= design.max_intervals:
        over = f"The longest time, {design.max_intervals} intervals, is over without a result."
        return Outcome.INCONCLUSIVE, [over, *reasons, *(wanting if costs_less else [])]
    return Outcome.PENDING, [*reasons, *(wanting if costs_less else [])]


def _wanting(found: Findings, design: ExperimentDesign) -> list[str]:
    """What is still wanted before a saving counts."""
    pairs, wanting = found.pairs, []
    counted = int((pairs.sign != 0).sum())
    if counted < design.min_intervals:
        wanting.append(f"{counted} intervals are counted, {design.min_intervals} are wanted.")
    fewest = min(pairs.requests[pairs.treated(challenger)].sum() for challenger in (False, True))
    if fewest < design.min_requests:
        wanting.append(f"An arm has had {fewest:,.0f} requests, {design.min_requests:,} are wanted.")
    unknown = [guard.metric.what for guard in found.guards if guard.margin is not None and guard.treatment is None]
    return wanting + [f"Nothing is known of {what}, which has a margin to keep." for what in unknown]
