"""An evaluation as a table and as plain sentences: the same on the terminal, in MLflow and in the first run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agents.results import Evaluation, PolicyResult, SeedsResult
from agents.tracks import RUNNABLE
from agents.uncertainty import Estimate, Spread
from agents.units import readable, usd
from caches.knobs import KNOB_NAMES
from envs.reward import CAUSES

_KNOB_UNITS = dict(zip(KNOB_NAMES, ("bytes", "seconds", "share"), strict=True))
NONE = "–"
PPO, SEED = "PPO", " seed "  # as in "PPO seed 3"


@dataclass(frozen=True)
class Table:
    """Texts; one row per policy."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def by_column(self) -> Mapping[str, Sequence[str]]:
        return {name: [row[index] for row in self.rows] for index, name in enumerate(self.columns)}


def comparison(evaluation: Evaluation) -> Table:
    """Cost, saving against best static and how sure it is, headroom captured, changes of settings per day, intervals
    in 1,000 that broke any constraint."""
    sure = ("95 % over time", "95 % over seeds")
    columns = ("policy", "USD/1,000", "saves %", *sure, "headroom", "changes/day", "unsafe/1,000")
    return _table(columns, evaluation, _compared, _compared_together)


def behaviour(evaluation: Evaluation) -> Table:
    """Hit ratios, the median over intervals of P99 TTFT, the intervals in 1,000 that violated each constraint, and how
    many intervals of training it took to come within 1 % of the saving in the end."""
    names = evaluation.policies[0].violated_intervals
    violated = (f"{name} violated/1,000" for name in names)
    columns = ("policy", "hit ratio", "token hit ratio", "P99 TTFT, s", *violated, "learned within")
    return _table(columns, evaluation, _behaved, _behaved_together)


def causes(evaluation: Evaluation) -> Table:
    """USD per 1,000 requests by cause."""
    rows = tuple(
        (_name(policy), *(usd(policy.usd_by_cause_per_1000[cause]) for cause in CAUSES), usd(policy.usd_per_1000))
        for policy in evaluation.policies
    )
    return Table(("USD/1,000", *CAUSES, "total"), rows)


def sentences(evaluation: Evaluation) -> tuple[str, ...]:
    """What you pay now, what best static costs, what learning adds, how sure that is, where it adds nothing, and what
    is cheapest of all."""
    parts = [*_static_sentences(evaluation), *_learned_sentences(evaluation), *_cheapest(evaluation)]
    return (*parts, *evaluation.warnings)


def _static_sentences(evaluation: Evaluation) -> Iterator[str]:
    best, default = evaluation.one("best static"), evaluation.one("default")
    assert best is not None  # evaluate() takes no tracks without it
    settings = ", ".join(
        f"{name} {readable(value, _KNOB_UNITS[name])}" for name, value in evaluation.setting.best_static.items()
    )
    if default is not None:
        yield f"At the default settings the cache costs {usd(default.usd_per_1000)} USD per 1,000 requests here."
    fitted = f"The best static setting of the training traffic ({settings}) costs {usd(best.usd_per_1000)}"
    change = None if default is None or default.usd_per_1000 <= 0 else best.usd_per_1000 / default.usd_per_1000 - 1
    yield f"{fitted}." if change is None else f"{fitted}, {_percent(-100 * change)} than the default."


def _learned_sentences(evaluation: Evaluation) -> Iterator[str]:
    together = evaluation.learned
    if together is None:
        return
    seeds = len(together.seeds)
    who = "The learned policy costs" if seeds == 1 else f"The learned policies cost, as a mean of {seeds} seeds,"
    if _judged(evaluation) != PPO:
        who = f"{_judged(evaluation)} costs"
    saving = together.saving.percent
    cost = f"{who} {usd(together.usd_per_1000.mean)} USD per 1,000 requests"
    compared = (
        "" if saving is None else f", {_percent(saving.mean)} than best static ({_per_day(evaluation, together)})"
    )
    yield f"{cost}{compared}."
    yield _how_sure(_judged(evaluation), together)
    yield from _headroom(evaluation, together)
    yield from _simpler(evaluation, together)
    yield from _violations(evaluation)


def _judged(evaluation: Evaluation) -> str:
    """What a sentence calls the policy that is judged: PPO, or what it is instead."""
    name = next(policy.name for policy in evaluation.policies if policy.role == "learned").partition(SEED)[0]
    return name if name == PPO else f"The {name}"


def _how_sure(who: str, together: SeedsResult) -> str:
    time, seeds = together.saving.usd_per_1000, together.saving_usd_per_1000
    low = time.low if seeds.low is None else min(time.low, seeds.low)
    where = _bounds(together)
    if low > 0:
        return f"The saving is above zero within its 95 % intervals ({where})."
    if time.mean < 0:
        return f"{who} adds nothing here: it costs more than best static ({where})."
    if time.mean == 0:
        return f"{who} adds nothing here: it costs exactly what best static costs."
    return f"{who} is not shown to add anything here: a 95 % interval of the saving reaches below zero ({where})."


def _bounds(together: SeedsResult) -> str:
    percent, over_seeds = together.saving.percent, together.saving_percent
    if percent is None:
        return "no percentages, because best static costs nothing"
    text = f"{percent.low:.2f} to {percent.high:.2f} % over time"
    if over_seeds is not None and over_seeds.low is not None and over_seeds.high is not None:
        text += f", {over_seeds.low:.2f} to {over_seeds.high:.2f} % over seeds"
    return text


def _headroom(evaluation: Evaluation, together: SeedsResult) -> Iterator[str]:
    bound, captured = evaluation.one("bound"), together.headroom_captured
    if bound is None or bound.saving is None or bound.saving.percent is None:
        return
    if captured is None:
        yield "The clairvoyant bound saves nothing over best static: there is nothing to gain by moving."
        return
    yield (
        f"The clairvoyant bound saves {bound.saving.percent.mean:.2f} % over best static; of this headroom "
        f"{captured.mean:.2f} is captured."
    )


def _cheapest(evaluation: Evaluation) -> Iterator[str]:
    """Of what an operator can run, seeds as their mean: nobody knows beforehand which one is lucky."""
    groups: dict[str, list[PolicyResult]] = {}
    for policy in evaluation.policies:
        if policy.role in RUNNABLE:
            groups.setdefault(policy.name.partition(SEED)[0], []).append(policy)
    costs = [_together(name, policies) for name, policies in groups.items()]
    limit = float(evaluation.setting.constraints.get("max_unsafe_per_1000", math.inf))
    least = min(costs)
    allowed = min((one for one in costs if one[2] <= limit), default=None)
    what = "Of everything that can be run here, the cheapest is"
    yield f"{what} {least[1]}, at {usd(least[0])} USD per 1,000 requests{_unsafe(least[2], limit)}."
    if allowed is None:
        yield f"Nothing that can be run keeps the constraints in all but {limit:g} of 1,000 intervals."
    elif allowed != least:
        yield f"Of what keeps them, it is {allowed[1]}, at {usd(allowed[0])}."


def _together(name: str, policies: Sequence[PolicyResult]) -> tuple[float, str, float]:
    """USD per 1,000 requests, name and unsafe intervals per 1,000."""
    count = len(policies)
    usd_per_1000 = sum(policy.usd_per_1000 for policy in policies) / count
    unsafe = sum(policy.unsafe_per_1000_intervals for policy in policies) / count
    return usd_per_1000, name if count == 1 else f"{name}, mean of {count} seeds", unsafe


def _unsafe(per_1000: float, limit: float) -> str:
    return "" if per_1000 <= limit else f", which breaks constraints in {per_1000:.1f} of 1,000 intervals"


def _simpler(evaluation: Evaluation, together: SeedsResult) -> Iterator[str]:
    """The policies without learning that do no worse."""
    cheaper = [
        policy.name
        for policy in evaluation.policies
        if policy.role in ("default", "baseline") and policy.usd_per_1000 <= together.usd_per_1000.mean
    ]
    if cheaper:
        *others, last = cheaper
        names = f"{', '.join(others)} and {last}" if others else last
        yield f"Without learning, {names} {'are' if others else 'is'} at least as cheap."


def _violations(evaluation: Evaluation) -> Iterator[str]:
    best = evaluation.one("best static")
    learned = [policy for policy in evaluation.policies if policy.role == "learned"]
    for name in learned[0].violated_intervals:
        worst = max(policy.violated_intervals[name] for policy in learned)
        if worst and best is not None:
            yield (
                f"{name} is violated in up to {worst} of {evaluation.intervals} intervals by a learned policy, in "
                f"{best.violated_intervals[name]} by best static."
            )


def _percent(less: float) -> str:
    return f"{abs(less):.2f} % {'less' if less >= 0 else 'more'}"


def _per_day(evaluation: Evaluation, together: SeedsResult) -> str:
    saved = together.saving.usd_per_1000.mean * evaluation.requests / 1000
    days = evaluation.intervals * evaluation.setting.interval_seconds / 86_400
    return f"{usd(abs(saved) / days)} USD a day {'saved' if saved >= 0 else 'lost'} at this traffic's rate"


def _table(
    columns: tuple[str, ...],
    evaluation: Evaluation,
    cells: Callable[[PolicyResult], tuple[str, ...]],
    together: Callable[[SeedsResult, Sequence[PolicyResult]], tuple[str, ...]],
) -> Table:
    """A row per policy; before the first learned one the row of all learned ones together, where there are several."""
    learned = [policy for policy in evaluation.policies if policy.role == "learned"]
    rows = []
    for policy in evaluation.policies:
        if evaluation.learned is not None and len(learned) > 1 and policy is learned[0]:
            rows.append((f"learned, mean of {len(learned)} seeds", *together(evaluation.learned, learned)))
        rows.append((_name(policy), *cells(policy)))
    return Table(columns, tuple(rows))


def _compared(policy: PolicyResult) -> tuple[str, ...]:
    percent = None if policy.saving is None else policy.saving.percent
    return (
        usd(policy.usd_per_1000),
        NONE if percent is None else f"{percent.mean:.2f}",
        _interval(percent),
        NONE,
        _number(policy.headroom_captured, ".2f"),
        _number(None if policy.changes is None else policy.changes.per_day, ".1f"),
        f"{policy.unsafe_per_1000_intervals:.1f}",
    )


def _compared_together(together: SeedsResult, learned: Sequence[PolicyResult]) -> tuple[str, ...]:
    percent, captured = together.saving.percent, together.headroom_captured
    return (
        usd(together.usd_per_1000.mean),
        NONE if percent is None else f"{percent.mean:.2f}",
        _interval(percent),
        _interval(together.saving_percent),
        NONE if captured is None else f"{captured.mean:.2f}",
        _mean([None if policy.changes is None else policy.changes.per_day for policy in learned], ".1f"),
        _mean([policy.unsafe_per_1000_intervals for policy in learned], ".1f"),
    )


def _behaved(policy: PolicyResult) -> tuple[str, ...]:
    return _behaved_together(None, [policy])


def _behaved_together(_: SeedsResult | None, policies: Sequence[PolicyResult]) -> tuple[str, ...]:
    names = policies[0].violations_per_1000_intervals
    return (
        _mean([policy.hit_ratio for policy in policies], ".4f"),
        _mean([policy.token_hit_ratio for policy in policies], ".4f"),
        _mean([policy.median_p99_ttft_seconds for policy in policies], ".3f"),
        *(_mean([policy.violations_per_1000_intervals[name] for policy in policies], ".1f") for name in names),
        _mean([policy.learned_within for policy in policies], ",.0f"),
    )


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):{form}}" if known else NONE


def _name(policy: PolicyResult) -> str:
    version = policy.version if policy.role != "champion" else None
    return policy.name if version is None else f"{policy.name} (version {version})"


def _interval(found: Estimate | Spread | None) -> str:
    if found is None or found.low is None or found.high is None:
        return NONE
    return f"{found.low:.2f} to {found.high:.2f}"


def _number(value: float | None, form: str) -> str:
    return NONE if value is None else f"{value:{form}}"
