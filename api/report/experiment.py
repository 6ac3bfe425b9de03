"""The report of an experiment as a page: outcome, what it saved, both arms, what was watched, how it was compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from api.report.arm_charts import COST, HITS, LATENCY, SIZE, TTFT, TTL, WARMUP, arms_picture, saving_picture
from api.report.arm_tables import NONE, intervals_table, totals_table
from api.report.page import Block, KeyFigure, Page, PageTable, Paragraph, Points, Section
from api.wording import OUTCOMES, band_text, moment, money, percent
from caches.target import Arm
from tuner.account import Totals, of_arm, totals
from tuner.records import Judgement, Outcome
from tuner.savings import Band, predicted_usd_per_1000, saved_percent, saved_usd_per_1000
from tuner.service import Account

MOST_ROWS = 48
STATIC = "the operator's static settings"


@dataclass(frozen=True)
class Reckoning:
    """An experiment in figures. judgement: the last one. compared: the last one with numbers; once a treatment has all
    keys there is nobody to compare it with. saved_usd_per_1000, saved_percent: realised, by the analysis; None while
    nothing can be said. predicted_usd_per_1000: by the decisions."""

    account: Account
    judgement: Judgement | None
    compared: Judgement | None
    arms: Mapping[Arm, Totals]
    saved_usd_per_1000: Band | None
    saved_percent: Band | None
    predicted_usd_per_1000: float | None

    @property
    def outcome(self) -> Outcome | None:
        """None before the first judgement."""
        ended = self.account.experiment.outcome
        return ended if ended is not None or self.judgement is None else self.judgement.outcome

    @property
    def saved_usd(self) -> Band | None:
        """By all requests of the treatment arm so far."""
        requests = self.arms[Arm.TREATMENT].requests
        if self.saved_usd_per_1000 is None or requests is None:
            return None
        return self.saved_usd_per_1000.times(requests / 1000.0)


def reckoning(account: Account) -> Reckoning:
    judgement = account.judgements[-1] if account.judgements else None
    compared = next((one for one in reversed(account.judgements) if one.numbers), None)
    return Reckoning(
        account,
        judgement,
        compared,
        {arm: totals([one for one in of_arm(account.intervals, arm) if one.share > 0.0]) for arm in Arm},
        saved_usd_per_1000(compared),
        saved_percent(compared),
        predicted_usd_per_1000(account.decisions, account.intervals),
    )


def experiment_page(found: Reckoning) -> Page:
    experiment = found.account.experiment
    return Page(
        title=f"Experiment {experiment.id}: {_outcome(found)}",
        kicker=f"Setpoint · experiment on {experiment.cache}",
        lead=tuple(_lead(found)),
        figures=tuple(figures(found)),
        sections=(
            Section("What it saved", tuple(_saving(found))),
            Section("Both arms", tuple(_arms(found))),
            Section("What must not get worse", tuple(_guards(found))),
            Section("How the arms were compared", tuple(_comparison(found))),
        ),
        footer=tuple(_provenance(found)),
    )


def figures(found: Reckoning) -> Iterator[KeyFigure]:
    """Realised beside predicted. What is not known is said to be so."""
    unit = "USD per 1,000 requests"
    percents = found.saved_percent
    if percents is None:
        yield KeyFigure("Saving, realised", "not known yet", "the analysis cannot tell it from chance so far")
    else:
        ends = "its interval is unbounded so far"
        if percents.low is not None and percents.high is not None:
            ends = f"{percents.low:.2f} to {percents.high:.2f} %, valid at every look"
        yield KeyFigure("Saving, realised", f"{percents.mean:.2f} %", ends)
    saved = found.saved_usd_per_1000
    if saved is not None:
        yield KeyFigure("Realised, per 1,000 requests", money(saved.mean), band_text(saved, unit))
    if found.predicted_usd_per_1000 is None:
        yield KeyFigure("Saving, predicted", "none", "no decision came with a prediction")
    else:
        yield KeyFigure("Predicted, per 1,000 requests", money(found.predicted_usd_per_1000), "by the shadow caches")
    total = found.saved_usd
    if total is not None:
        requests = found.arms[Arm.TREATMENT].requests or 0.0
        yield KeyFigure("Saved so far", money(total.mean), f"{band_text(total, 'USD')}, {requests:,.0f} requests")


def version_text(version: int | None) -> str:
    return STATIC if version is None else f"version {version}"


def _outcome(found: Reckoning) -> str:
    return "not judged yet" if found.outcome is None else found.outcome.value


def _lead(found: Reckoning) -> Iterator[str]:
    experiment = found.account.experiment
    yield (
        f"{_capital(version_text(experiment.challenger))} was tried against {version_text(experiment.champion)}"
        f"{'' if experiment.ended_seconds is not None else ', and the experiment still runs'}."
    )
    if found.outcome is not None:
        yield f"Outcome: {OUTCOMES[found.outcome]}."
    if found.judgement is not None and found.judgement.reasons:
        yield found.judgement.reasons[0]
    if experiment.answer and (found.judgement is None or experiment.answer not in found.judgement.reasons):
        yield experiment.answer


def _saving(found: Reckoning) -> Iterator[Block]:
    account = found.account
    picture = saving_picture(account.judgements, account.intervals, account.decisions)
    if picture is None:
        yield Paragraph("Nothing can be said of the saving yet.", strong=True)
    else:
        yield picture
    if found.compared is not None and len(found.compared.reasons) > 1:
        yield Points(found.compared.reasons[1:])
    yield Paragraph(
        "Realised is what the arms cost, compared interval by interval. Predicted is what the daemon's shadow caches "
        "said that the challenger's settings would save, before. If they differ by more than the interval, believe the "
        "realised one."
    )


def _arms(found: Reckoning) -> Iterator[Block]:
    records = found.account.intervals
    yield totals_table(dict(found.arms))
    for shown, what in (
        ((COST,), "Cost"),
        ((HITS, TTFT, LATENCY), "Hits and latency"),
        ((SIZE, TTL, WARMUP), "Settings"),
    ):
        picture = arms_picture(records, shown, what)
        if picture is not None:
            yield picture
    if records:
        yield intervals_table(records, MOST_ROWS)
    else:
        yield Paragraph("No interval of it is over yet.")


def _guards(found: Reckoning) -> Iterator[Block]:
    guards = {} if found.compared is None else found.compared.numbers.get("guards")
    rows = [_guard_row(one) for one in guards.values()] if isinstance(guards, Mapping) else []
    if not rows:
        yield Paragraph("Nothing of this was measured yet.")
        return
    columns = ("share of …", "control", "treatment", "worse by", "interval of that", "margin")
    yield PageTable("Shares, in percent; worse by: in percentage points", columns, tuple(rows))
    yield Paragraph(
        "A measure is worse when its whole interval lies above the margin. A dash: not measured or not judged."
    )


def _guard_row(guard: object) -> tuple[str, ...]:
    assert isinstance(guard, Mapping)  # tuner/judging/analysis_text.py writes it so
    effect = guard.get("worse_by")
    mean, low, high = (
        (None,) * 3 if not isinstance(effect, Mapping) else (effect.get(n) for n in ("mean", "low", "high"))
    )
    bounds = NONE if low is None or high is None else f"{100 * low:.3f} to {100 * high:.3f}"
    return (
        str(guard.get("what", NONE)),
        *(_percent(guard.get(name)) for name in ("control", "treatment")),
        _percent(mean),
        bounds,
        _percent(guard.get("margin")),
    )


def _percent(share: object) -> str:
    return f"{100 * share:.3f}" if isinstance(share, int | float) else NONE


def _comparison(found: Reckoning) -> Iterator[Block]:
    numbers = {} if found.compared is None else found.compared.numbers
    told = numbers.get("intervals")
    if isinstance(told, Mapping):
        dropped = told.get("dropped")
        left_out = dropped if isinstance(dropped, Mapping) and dropped else {"none": 0}
        yield Points(
            (
                f"Lead-in, both arms alike: {told.get('lead_in', NONE)} intervals.",
                f"Treated: {told.get('treated', NONE)} intervals; with the arms swapped: {told.get('swapped', NONE)}.",
                "Left out: " + ", ".join(f"{name} {many}" if many else name for name, many in left_out.items()) + ".",
                f"Intervals per batch: {numbers.get('batch_intervals', NONE)}.",
                f"Looked at {len(found.account.judgements):,} times.",
            )
        )
    design = found.account.experiment.design
    if design:
        rows = tuple(_flat(design))
        yield PageTable("The design, fixed before it began", ("setting", "value"), rows, frozenset({"value"}))
    else:
        yield Paragraph("The design is the daemon's default.")


def _flat(design: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in design.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", "not set" if value in (None, "") else str(value)


def _provenance(found: Reckoning) -> Iterator[tuple[str, str]]:
    experiment = found.account.experiment
    yield "Cache", experiment.cache
    yield "Challenger", version_text(experiment.challenger)
    yield "Control", version_text(experiment.champion)
    yield "Began", f"{moment(experiment.began_seconds)} UTC"
    yield "Ended", "it runs" if experiment.ended_seconds is None else f"{moment(experiment.ended_seconds)} UTC"
    shares = {one.share for one in found.account.intervals if one.arm is Arm.TREATMENT and one.share > 0.0}
    if shares:
        yield "Treatment's share of the keys", ", ".join(percent(share) for share in sorted(shares))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
