"""The answer of an evaluation in plain words: what is paid, what would be, how sure that is, and who does not win."""

from __future__ import annotations

from collections.abc import Iterator

from agents.results import SeedsResult
from agents.uncertainty import Estimate
from agents.units import usd
from api.report.material import Material, Option
from api.report.page import KeyFigure

NONE = "–"


def title(material: Material) -> str:
    return f"What the cache costs on {material.evaluation.setting.trace}, and what it could cost"


def lead(material: Material) -> tuple[str, ...]:
    """What is paid and what would be, what moving the settings adds, and what follows for the version judged."""
    return (_paid(material), _adds(material), _follows(material))


def key_figures(material: Material) -> tuple[KeyFigure, ...]:
    now, advised = material.now, material.advised
    saving = material.against_now(advised)
    note = f"per 1,000 requests, {_how(now)}"
    figures = [KeyFigure("You pay now", money(now.usd_per_1000), note)]
    if saving is None:
        figures.append(KeyFigure("You would pay", money(now.usd_per_1000), "the same: nothing here is proven cheaper"))
        figures.append(KeyFigure("Saving", "none", "by what this evaluation can prove"))
    else:
        figures.append(KeyFigure("You would pay", money(advised.usd_per_1000), f"per 1,000 requests, {_how(advised)}"))
        daily = material.usd_per_day(now.usd_per_1000 - advised.usd_per_1000)
        value = NONE if saving.percent is None else f"{saving.percent.mean:.1f} %"
        figures.append(KeyFigure("Saving", value, f"{money(daily)} a day at the traffic of the test"))
        figures.append(_sure_figure(saving.percent))
    return (*figures, *_moving_figure(material))


def verdict(material: Material) -> str:
    """Whether the learned policies beat the best static setting, said plainly."""
    together = material.evaluation.learned
    if together is None:
        return "No learned policy was judged."
    kind, time = material.kind, together.saving.usd_per_1000
    if _is_proven(together):
        return f"{kind} wins here: its saving over the best static setting is above zero within its intervals."
    if time.mean < 0:
        return f"{kind} does not win here: it costs more than the best static setting."
    if time.mean == 0:
        return f"{kind} does not win here: it costs exactly what the best static setting costs."
    return (
        f"{kind} is not shown to win here: it is cheaper than the best static setting on these days, but an interval "
        "of the saving reaches below zero."
    )


def sureness(material: Material) -> Iterator[str]:
    """The intervals over time and over seeds in words."""
    together = material.evaluation.learned
    if together is None:
        return
    percent, block = together.saving.percent, together.saving.block_intervals
    if percent is None:
        yield "The best static setting costs nothing here, so that there are no percentages to be sure of."
        return
    yield (
        f"Over time: a saving of {percent_range(percent)} over the best static setting fits what was measured (95 % "
        f"interval). It comes from putting the test together anew, {material.resampling.resamples:,} times, from "
        f"stretches of {block} intervals, and says how much the saving may differ on other days like these."
    )
    yield _over_seeds(together, len(material.learned))
    saving = material.chosen.result.saving
    if saving is not None and saving.percent is not None and len(material.learned) > 1:
        yield (
            f"Version {material.version} alone saves {saving.percent.mean:.2f} % over the best static setting, with an "
            f"interval over time from {percent_range(saving.percent)}."
        )
    cheaper = [
        one.track.name
        for one in material.options()
        if one.track.role in ("default", "baseline") and one.usd_per_1000 <= together.usd_per_1000.mean
    ]
    if cheaper:
        yield f"Without any learning, {' and '.join(cheaper)} {'is' if len(cheaper) == 1 else 'are'} at least as cheap."


def percent_range(found: Estimate) -> str:
    return f"{found.low:.2f} to {found.high:.2f} %"


def money(value: float) -> str:
    return f"{usd(value)} USD"


def less(now: float, then: float) -> str:
    """ "12.3 % less", "4.0 % more", "the same"."""
    if now == then:
        return "the same"
    if now <= 0:
        return "more"
    change = 100 * (1 - then / now)
    return f"{abs(change):.1f} % {'less' if change > 0 else 'more'}"


def _is_proven(together: SeedsResult) -> bool:
    """Whether the saving over best static is above zero over time and, where there are several, over seeds."""
    seeds = together.saving_usd_per_1000.low
    return together.saving.usd_per_1000.low > 0 and (seeds is None or seeds > 0)


def _paid(material: Material) -> str:
    now, best, chosen = material.now, material.best, material.chosen
    parts = [f"You pay {money(now.usd_per_1000)} per 1,000 requests now, {_how(now)}."]
    others = [one for one in (best, chosen) if one is not now]
    said = [f"{money(one.usd_per_1000)} {_how(one)} ({less(now.usd_per_1000, one.usd_per_1000)})" for one in others]
    if said:
        parts.append(f"You would pay {', and '.join(said)}.")
    return " ".join(parts)


def _adds(material: Material) -> str:
    together = material.evaluation.learned
    if together is None or together.saving.percent is None:
        return verdict(material)
    seeds = len(material.learned)
    mean = together.saving.percent.mean
    who = "the learned policy" if seeds == 1 else f"the learned policies, as a mean of {seeds} seeds,"
    moves = (
        f"{'saves' if seeds == 1 else 'save'} {mean:.2f} %"
        if mean >= 0
        else f"{'costs' if seeds == 1 else 'cost'} {-mean:.2f} % more"
    )
    against = " over" if mean >= 0 else " than"
    return (
        f"By moving the settings with the traffic, {who} {moves}{against} the best static setting. {verdict(material)}"
    )


def _follows(material: Material) -> str:
    if material.now is material.chosen:
        return f"Version {material.version} is the champion already."
    if not material.reasons:
        return f"Version {material.version} has earned promotion."
    instead = (
        "nothing needs to change" if material.advised is material.now else "the best static setting is the safe choice"
    )
    return f"Version {material.version} has not earned promotion; by this evaluation {instead}."


def _how(option: Option) -> str:
    return ("at " if option.track.role == "default" else "with ") + option.label


def _sure_figure(percent: Estimate | None) -> KeyFigure:
    if percent is None:
        return KeyFigure("How sure", NONE, "no percentages, because nothing is paid now")
    note = "above zero throughout" if percent.low > 0 else "reaches below zero, so it is not proven"
    return KeyFigure(
        "How sure", f"{percent.low:.1f} to {percent.high:.1f} %", f"95 % interval of the saving over time: {note}"
    )


def _moving_figure(material: Material) -> Iterator[KeyFigure]:
    """What moving adds to the best static setting."""
    together = material.evaluation.learned
    if together is None or together.saving.percent is None:
        return
    percent, seeds = together.saving.percent, together.saving_percent
    proven = "" if _is_proven(together) else "not proven: "
    note = f"{proven}{material.kind} against the best static setting; over time {percent_range(percent)}"
    if seeds is not None and seeds.low is not None and seeds.high is not None:
        note += f", over seeds {seeds.low:.2f} to {seeds.high:.2f} %"
    yield KeyFigure("Moving with the traffic saves", f"{percent.mean:.2f} %", note)


def _over_seeds(together: SeedsResult, seeds: int) -> str:
    spread = together.saving_percent
    if spread is None or spread.low is None or spread.high is None:
        return "Over seeds: there was one training, so nothing can be said about the luck of a training."
    return (
        f"Over seeds: training was done {seeds} times with different random numbers. The mean saving lies between "
        f"{spread.low:.2f} and {spread.high:.2f} % with 95 % confidence; the single trainings saved from "
        f"{spread.smallest:.2f} to {spread.largest:.2f} %."
    )
