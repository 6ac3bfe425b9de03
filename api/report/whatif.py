"""The page of a what-if: what you pay now, what you would pay, how sure that is, what changes, what never happens."""

from __future__ import annotations

from collections.abc import Iterator

from agents.units import usd
from api.report.page import Block, KeyFigure, Page, PageTable, Paragraph, Picture, Points, Section
from tuner.whatif_figure import png_of_cost, png_of_hits
from tuner.whatif_result import Priced, Surface, WhatIf, amount
from tuner.whatif_text import (
    allowed,
    behaviour,
    by_policy,
    causes,
    comparison,
    here_text,
    how_sure,
    name_of_current,
    shape,
    side_by_side,
    surface_table,
    violated,
)

DAYS_PER_YEAR = 365.0


def whatif_page(result: WhatIf, made_on: str) -> Page:
    """made_on: the date that the page shows."""
    subject = result.subject
    return Page(
        title=_title(result),
        kicker="Setpoint · what if",
        lead=_lead(result),
        figures=tuple(_figures(result)),
        sections=(
            Section("What you pay, and what you would pay", tuple(_costs(result))),
            Section("How sure that is", tuple(_sure(result))),
            *_policies(result),
            Section("What changes, and when", tuple(_changes(result))),
            Section("What it never does", tuple(_never(result))),
            Section("Every size and lifetime", tuple(_surfaces(result))),
        ),
        notes=(*subject.remarks, *result.notes, *(f"Assumption: {one}" for one in subject.assumptions)),
        footer=tuple(_provenance(result, made_on)),
    )


def _title(result: WhatIf) -> str:
    percent = result.saving.percent
    if not result.best.safe:
        return "No cache setting keeps the constraints on this traffic"
    if result.stays:
        return "The cache is set well: nothing cheaper was found"
    if percent is None or percent <= 0:
        return "What runs now breaks the constraints; keeping them costs more"
    return f"Other settings of the cache would save {percent:.1f} % of the cost"


def _lead(result: WhatIf) -> tuple[str, ...]:
    """Present, future, certainty."""
    now, best = result.current, result.best
    today = "You pay" if result.subject.current_given else "At the configured default settings you would pay"
    lead = [
        f"{today} {usd(now.usd_per_1000)} USD per 1,000 requests, {usd(now.usd_per_day)} USD a day on this traffic."
    ]
    if not result.stays:
        there = here_text(result, best)
        would = "With the best setting found it would be" if best.safe else "The setting that breaks them least costs"
        lead.append(f"{would} {usd(best.usd_per_1000)} USD per 1,000 requests: {there}.")
    over_time = result.saving.over_time
    percent = None if over_time is None else over_time.percent
    if not result.stays and best.safe and percent is not None:
        lead.append(f"With 95 % confidence over time the saving is between {percent.low:.1f} and {percent.high:.1f} %.")
    return tuple(lead)


def _figures(result: WhatIf) -> Iterator[KeyFigure]:
    now, best, saving = result.current, result.best, result.saving
    yield KeyFigure(
        "You pay now",
        f"{usd(now.usd_per_1000)} USD",
        f"per 1,000 requests, {here_text(result, now)}",
    )
    if result.stays:
        return
    yield KeyFigure(
        "You would pay",
        f"{usd(best.usd_per_1000)} USD",
        f"per 1,000 requests, {here_text(result, best)}",
    )
    if saving.percent is not None:
        sure = None if saving.over_time is None else saving.over_time.percent
        bounds = "" if sure is None else f"{sure.low:.1f} to {sure.high:.1f} % (95 %, over time)"
        yield KeyFigure("Saving", f"{saving.percent:.1f} %", bounds)
    year = saving.usd_per_day * DAYS_PER_YEAR
    yield KeyFigure("Per year", f"{usd(float(f'{year:.3g}'))} USD", "if all traffic were like this trace")


def _costs(result: WhatIf) -> Iterator[Block]:
    subject = result.subject
    composed = ", which is composed of several sources" if subject.composed else ""
    length = amount(subject.intervals * subject.interval_seconds, "s")
    every = f"{subject.requests:,} requests of {subject.trace}{composed}"
    if subject.keys_read < 1:
        every = f"requests for {subject.keys_read:.3%} of the keys, and scaled up to all {every}"
    yield Paragraph(
        f"Both were run on the same {every}: {length} of traffic, from an empty cache. The traffic is recorded; what "
        "is modelled is the backend that answers what the cache does not, and its prices."
    )
    last = frozenset({len(comparison(result).rows) - 1})
    for caption, table in (
        ("What they are, and what they cost", comparison(result)),
        ("USD per 1,000 requests by cause", causes(result)),
        ("How they behave", behaviour(result)),
    ):
        yield PageTable(caption, table.columns, table.rows, highlighted=last)


def _sure(result: WhatIf) -> Iterator[Block]:
    if result.stays or not result.best.safe:
        yield Paragraph("There is no saving whose certainty could be asked about.")
    for sentence in how_sure(result):
        yield Paragraph(sentence)
    yield Paragraph(
        "The interval says how much the saving varies between stretches of this trace. It does not cover that the best "
        "setting was chosen on the same traffic (the second half above does), nor traffic of another kind."
    )


def _policies(result: WhatIf) -> Iterator[Section]:
    """Nothing where there is but one."""
    if len(result.policies) == 1:
        return
    table = by_policy(result)
    chosen = frozenset(row for row, one in enumerate(result.policies) if one.policy == result.best.policy)
    caption = f"The best setting under each; savings over {name_of_current(result)} with 95 % intervals over time"
    blocks: list[Block] = [PageTable(caption, table.columns, table.rows, highlighted=chosen)]
    blocks += [Paragraph(sentence) for sentence in side_by_side(result)]
    yield Section("Which entry goes: policies side by side", tuple(blocks))


def _changes(result: WhatIf) -> Iterator[Block]:
    if result.stays:
        yield Paragraph("Nothing.", strong=True)
        return
    now, best = result.current.settings, result.best.settings
    moves: tuple[tuple[str, str, str], ...] = (
        ("Cache size", amount(now.cache_size, result.size_unit), amount(best.cache_size, result.size_unit)),
        ("Lifetime of an entry (TTL)", amount(now.ttl_seconds, "s"), amount(best.ttl_seconds, "s")),
        ("Warm-up", f"{now.warmup_ratio:.0%}", f"{best.warmup_ratio:.0%}"),
    )
    if result.names_policies:
        moves = (("Eviction and admission", result.current.policy, result.best.policy), *moves)
    yield PageTable("The change, made once", ("knob", name_of_current(result), "best"), moves)
    yield Paragraph(
        "The settings stay as they are from then on. What moving them with the traffic would add is another question: "
        "setpoint train and setpoint evaluate answer it."
    )


def _never(result: WhatIf) -> Iterator[Block]:
    constraints, best, now = result.subject.constraints, result.best, result.current
    yield Points(
        (
            f"It keeps the P99 of the time to the first token at or below {constraints['p99_ttft_seconds']:g} s and "
            f"outdated answers at or below {constraints['stale_ratio']:.1%} of the hits, in all but "
            f"{constraints['max_unsafe_per_1000']:g} of 1,000 intervals of {result.subject.interval_seconds:g} s.",
            *(f"{name}: {_broken(one)}" for name, one in ((_capital(name_of_current(result)), now), ("Best", best))),
            "It never changes anything by itself: this page is advice, and no live cache was touched.",
        )
        if best.safe
        else (
            f"No setting that was tried keeps the constraints here: each breaks more than {allowed(result)} intervals.",
        )
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _broken(one: Priced) -> str:
    return f"breaks {violated(one)} ({one.unsafe_per_1000:.1f} of 1,000)."


def _surfaces(result: WhatIf) -> Iterator[Block]:
    for title, png in (("Cost", png_of_cost(result)), ("Hit ratio", png_of_hits(result))):
        yield Picture(
            png,
            f"A heat map of {title.lower()} over cache size and TTL, and curves over cache size.",
            f"{title} of every combination; the marked cells are the nearest to the two settings.",
        )
    for sentence in shape(result):
        yield Paragraph(sentence)
    for title, surface in (("Hit ratio", result.hit_ratio), ("USD per 1,000 requests", result.usd_per_1000)):
        yield _surface(result, title, surface)


def _surface(result: WhatIf, title: str, surface: Surface) -> PageTable:
    table = surface_table(result, surface)
    under = f" under {result.shown}" if result.names_policies else ""
    caption = f"{title}{under} by size (rows) and TTL (columns); * nearest to best, ° to {name_of_current(result)}"
    return PageTable(caption, table.columns, table.rows)


def _provenance(result: WhatIf, made_on: str) -> Iterator[tuple[str, str]]:
    subject = result.subject
    yield "Trace", f"{subject.trace} ({subject.source})"
    yield "Made on", made_on
    yield "Control interval", f"{subject.interval_seconds:g} s"
    for title, values in (
        ("Prices", subject.prices),
        ("Constraints", subject.constraints),
        ("Serving", subject.serving),
    ):
        yield title, ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)
