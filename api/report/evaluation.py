"""The report of an evaluation as a page: what you pay, what you would pay, how sure that is, what changes when, what
never happens, how much more is possible, and every number behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agents.results import Setting
from agents.summary import Table, behaviour, causes, comparison, sentences
from agents.units import readable, usd
from api.report.material import Material, Option
from api.report.movement import Movement, busiest, movement_of, step_text
from api.report.page import Block, Page, PageTable, Paragraph, Points, Section
from api.report.pictures import KNOB_TITLES, causes_picture, cost_picture, settings_picture
from api.report.wording import NONE, key_figures, lead, less, money, percent_range, sureness, title, verdict

REPORT_FILE = "report.html"
CONSTRAINTS = {
    "p99_ttft": ("P99 of the time to the first token", "p99_ttft_seconds", "{:g} s"),
    "stale_ratio": ("outdated answers among hits", "stale_ratio", "{:.3g}"),
}


def evaluation_page(material: Material) -> Page:
    setting = material.evaluation.setting
    return Page(
        title=title(material),
        kicker=f"Setpoint · evaluation of policy version {material.version}",
        lead=lead(material),
        figures=key_figures(material),
        sections=(
            Section("What you pay, and what you would pay", tuple(_costs(material))),
            Section("How sure that is", tuple(_sure(material))),
            Section("What changes, and when", tuple(_changes(material))),
            Section("What it never does", tuple(_limits(material))),
            Section("How much more is possible", tuple(_headroom(material))),
            Section("Where the money goes", tuple(_causes(material))),
            Section("Every policy", tuple(_every(material))),
        ),
        notes=(*material.evaluation.notes, *(f"Assumption: {one}" for one in setting.assumptions)),
        footer=tuple(_provenance(material)),
    )


def _costs(material: Material) -> Iterator[Block]:
    evaluation, setting, now = material.evaluation, material.evaluation.setting, material.now
    composed = ", which is composed of several sources" if setting.composed else ""
    yield Paragraph(
        f"Every option was run on the same {evaluation.requests:,} requests of {setting.trace}{composed}: "
        f"{material.days:.3g} days of traffic from after everything that the policies were fitted on."
    )
    rows = tuple(_cost_row(material, one) for one in _shown(material))
    columns = ("option", "USD per 1,000", "USD a day", "against now", "95 % interval over time")
    yield PageTable("Cost on the test traffic", columns, rows, highlighted=_highlighted(material))
    yield Paragraph(
        f"The best static setting was found on the training traffic: {_settings_text(material, setting.best_static)}. "
        f"The default settings are {_settings_text(material, setting.default)}."
    )
    yield Paragraph(
        "“Now” means the default settings, because there is no champion yet. If you run others, set them as defaults "
        "and evaluate again."
        if now.track.role == "default"
        else f"“Now” means {now.label}, which the registry names as the policy in use."
    )
    yield cost_picture(material)


def _cost_row(material: Material, option: Option) -> tuple[str, ...]:
    saving = material.against_now(option)
    percent = None if saving is None else saving.percent
    change = "now" if saving is None else less(material.now.usd_per_1000, option.usd_per_1000)
    interval = NONE if percent is None else f"{percent_range(percent)} less"
    daily = usd(material.usd_per_day(option.usd_per_1000))
    return option.label, usd(option.usd_per_1000), daily, change, interval


def _shown(material: Material) -> list[Option]:
    """What a decision is about: default, best static, champion, the judged version and what bounds it."""
    roles = ("default", "best static", "champion")
    known = [one for one in material.options() if one.track.role in roles]
    return [*known, material.chosen, *material.bounds]


def _highlighted(material: Material) -> frozenset[int]:
    return frozenset(i for i, one in enumerate(_shown(material)) if one.track is material.advised.track)


def _sure(material: Material) -> Iterator[Block]:
    yield Paragraph(verdict(material), strong=True)
    yield from (Paragraph(sentence) for sentence in sureness(material))
    if material.evaluation.warnings:
        yield Paragraph("What weakens this judgement:")
        yield Points(material.evaluation.warnings)
    if material.reasons and material.now is not material.chosen:
        yield Paragraph(f"Why version {material.version} is not promoted:")
        yield Points(material.reasons)


def _changes(material: Material) -> Iterator[Block]:
    interval = material.evaluation.setting.interval_seconds
    movement = movement_of(material.chosen.track, material.knobs, material.starts, interval)
    changes = material.chosen.result.changes
    if movement is None or changes is None:
        return
    every = readable(interval, "seconds")
    yield Paragraph(
        f"Version {material.version} decides every {every}. In {changes.intervals} of {material.evaluation.intervals} "
        f"intervals it moved a setting by more than 1 % of its range: {changes.per_day:.1f} times a day. "
        f"{_when(movement)}"
    )
    yield settings_picture(material)
    yield _knob_table(material, movement)
    yield _part_table(movement)


def _when(movement: Movement) -> str:
    most = busiest(movement.parts)
    if most is None:
        return "It kept the best static setting throughout."
    share = 100.0 * most.changes / most.intervals
    return f"It was busiest from {most.name}, when {share:.0f} % of the intervals brought a change."


def _knob_table(material: Material, movement: Movement) -> PageTable:
    best = material.evaluation.setting.best_static
    rows = tuple(
        (
            KNOB_TITLES.get(one.knob.name, one.knob.name),
            *(readable(value, one.knob.unit) for value in (best[one.knob.name], one.lowest, one.median, one.highest)),
            f"{one.moves}",
        )
        for one in movement.knobs
    )
    columns = ("setting", "best static", "lowest", "median", "highest", "intervals with a change")
    return PageTable(f"Settings of version {material.version} over the test", columns, rows)


def _part_table(movement: Movement) -> PageTable:
    units = [one.knob.unit for one in movement.knobs]
    rows = tuple(
        (
            part.name,
            f"{100.0 * part.changes / part.intervals:.0f} %",
            *(readable(value, unit) for value, unit in zip(part.settings, units, strict=True)),
        )
        for part in movement.parts
    )
    names = (KNOB_TITLES.get(one.knob.name, one.knob.name) for one in movement.knobs)
    columns = ("time of day" if movement.by_day else "part of the test", "intervals with a change", *names)
    over = ", all test days together" if movement.by_day else ""
    return PageTable(
        f"Mean settings by {'time of day' if movement.by_day else 'part of the test'}{over}", columns, rows
    )


def _limits(material: Material) -> Iterator[Block]:
    yield Paragraph(
        "It never leaves the range of a setting and never moves one by more than its largest step per interval: these "
        "limits belong to the settings themselves, so they held in training and hold in use, whatever the policy asks. "
        "It moves around the best static setting; with nothing to say it goes back there."
    )
    movement = movement_of(
        material.chosen.track, material.knobs, material.starts, material.evaluation.setting.interval_seconds
    )
    if movement is not None:
        rows = tuple(
            (
                KNOB_TITLES.get(one.knob.name, one.knob.name),
                readable(one.knob.low, one.knob.unit),
                readable(one.knob.high, one.knob.unit),
                step_text(one.knob, one.knob.max_step),
                step_text(one.knob, one.largest_step),
            )
            for one in movement.knobs
        )
        columns = ("setting", "at least", "at most", "largest step allowed", "largest step made")
        yield PageTable("Limits of the settings", columns, rows)
    yield from _constraints(material)
    yield Paragraph(
        "A policy takes over only by promotion, which asks for a saving above zero within its interval and for kept "
        "constraints. Until then nothing changes."
    )


def _constraints(material: Material) -> Iterator[Block]:
    intervals, tolerated = material.evaluation.intervals, material.constraints.max_unsafe_per_1000
    chosen, best = material.unsafe(material.chosen), material.unsafe(material.best)
    kept = f"Version {material.version} kept all constraints in all {intervals} intervals"
    broke = f"Version {material.version} broke a constraint in {chosen} of {intervals} intervals"
    yield Paragraph(
        f"{broke if chosen else kept}, the best static setting broke one in {best or 'none'}. "
        f"Tolerated are {tolerated:g} in 1,000."
    )
    shown = [one for one in _shown(material) if "bound" not in one.track.role]
    rows = []
    for name in material.chosen.result.violated_intervals:
        what, key, form = CONSTRAINTS.get(name, (name, name, "{}"))
        limit = material.evaluation.setting.constraints.get(key)
        counts = (f"{one.result.violated_intervals[name]}" for one in shown)
        rows.append((what, NONE if limit is None else f"at most {form.format(limit)}", *counts))
    if rows:
        caption = f"Constraints, and in how many of {intervals} intervals each was broken"
        yield PageTable(caption, ("constraint", "limit", *(one.label for one in shown)), tuple(rows))


def _headroom(material: Material) -> Iterator[Block]:
    if not material.bounds:
        yield Paragraph("No bound was computed.")
        return
    for one in material.bounds:
        percent = None if one.result.saving is None else one.result.saving.percent
        difference = less(material.best.usd_per_1000, one.usd_per_1000)
        against = "" if percent is None else f", {difference} than the best static setting"
        cost = f"{money(one.usd_per_1000)} per 1,000 requests"
        yield Paragraph(f"The {one.result.name}, which knows the future, costs {cost}{against}.")
    together = material.evaluation.learned
    captured = None if together is None else together.headroom_captured
    if captured is None:
        yield Paragraph("It saves nothing over the best static setting: there is nothing to gain by moving.")
        return
    seeds = f" as a mean of {captured.seeds} seeds" if captured.seeds > 1 else ""
    name = next((one.result.name for one in material.bounds if one.track.role == "bound"), "bound")
    yield Paragraph(
        f"Of what the {name} saves over the best static setting, the learned policies captured "
        f"{captured.mean:.2f}{seeds} (1 would be all of it, 0 nothing)."
    )


def _causes(material: Material) -> Iterator[Block]:
    yield causes_picture(material)
    yield _page_table("USD per 1,000 requests by cause", causes(material.evaluation))


def _every(material: Material) -> Iterator[Block]:
    yield _page_table(
        "Cost, saving over the best static setting, headroom captured and changes", comparison(material.evaluation)
    )
    yield _page_table("Hit ratios, latency and constraints", behaviour(material.evaluation))
    yield Paragraph("The same in sentences, as the command prints them:")
    yield Points(sentences(material.evaluation))


def _page_table(caption: str, table: Table) -> PageTable:
    return PageTable(caption, table.columns, table.rows)


def _settings_text(material: Material, values: Mapping[str, float]) -> str:
    return ", ".join(
        f"{KNOB_TITLES.get(knob.name, knob.name)} {readable(values[knob.name], knob.unit)}"
        for knob in material.knobs.knobs
    )


def _provenance(material: Material) -> Iterator[tuple[str, str]]:
    setting = material.evaluation.setting
    yield "Report made on", material.made_on
    yield "Trace", setting.trace
    yield "SHA-256 of the trace", setting.trace_sha256
    yield "Source", setting.source
    yield "Intervals", _cut(setting)
    versions = (f"{one.track.version} (seed {one.track.seed})" for one in material.learned)
    yield "Policy versions and seeds", ", ".join(versions)
    yield "Resampling", f"{setting.resamples:,} resamples, seed {setting.seed}"
    yield "Prices", _listed(setting.prices)
    yield "Constraints", _listed(setting.constraints)
    yield "Serving", _listed(setting.serving)
    if material.run_id is not None:
        yield "MLflow run", material.run_id
    if material.packages:
        yield "Software", ", ".join(f"{name} {version}" for name, version in material.packages.items())


def _cut(setting: Setting) -> str:
    parts = (("training", setting.training), ("validation", setting.validation), ("test", setting.test))
    cut = ", ".join(f"{name} {first} to {end}" for name, (first, end) in parts)
    return f"of {readable(setting.interval_seconds, 'seconds')}: {cut} (the end not included)"


def _listed(values: Mapping[str, Any]) -> str:
    """Names and values; NONE for an empty one."""
    shown = (
        f"{name} {NONE if value is None else f'{value:g}' if isinstance(value, float) else value}"
        for name, value in values.items()
    )
    return ", ".join(shown) or NONE
