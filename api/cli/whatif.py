"""`setpoint whatif`: what every size and TTL would have cost on a trace, and what moving from today's would save."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import TaskID

from agents.uncertainty import Resampling
from api.cli.loading import load_with_progress
from api.cli.options import AT_MOST, AsJson, AtMost, ConfigFile, FormatName, RequestsPerSecond
from api.cli.output import print_json, print_table, progress_bar, result_console
from api.report.page import write_page
from api.report.whatif import whatif_page
from caches.errors import InputError
from caches.policies.pair import CachePolicy, policies_called
from traces.reader import ReadOptions
from traces.trace import Trace
from traces.whatif import EXACT_REQUESTS, Sampling
from tuner.config import TunerConfig, load_tuner_config
from tuner.whatif import SIZES, TTLS, Ask, what_if
from tuner.whatif_current import Wish, parse_wish
from tuner.whatif_figure import save_whatif
from tuner.whatif_result import WhatIf
from tuner.whatif_text import (
    BEST,
    CURRENT,
    behaviour,
    by_policy,
    causes,
    comparison,
    name_of_current,
    sentences,
    surface_table,
)

PICTURE, PAGE = "whatif.png", "whatif.html"


def whatif(
    trace: Annotated[
        Path | None, typer.Argument(help="Trace to ask: a file, a folder or the name of a shipped one.")
    ] = None,
    current: Annotated[
        str | None,
        typer.Option(
            help="What runs now, as in size=64MiB,ttl=1h,warmup=0.2,policy=sieve; the configured defaults otherwise."
        ),
    ] = None,
    eviction_policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME...]|all",
            help="Policies to compare, in place of cache.eviction_policy; each takes as long.",
        ),
    ] = None,
    admission: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME...]", help="Rules of admission, each with each policy; cache.admission else."),
    ] = None,
    config_file: ConfigFile = None,
    interval: Annotated[
        float | None, typer.Option(help="Seconds of a control interval, in place of trace.interval_seconds.")
    ] = None,
    sizes: Annotated[int, typer.Option(min=2, max=256, help="Sizes to try, over the knob's range.")] = SIZES,
    ttls: Annotated[int, typer.Option(min=2, max=256, help="TTLs to try, over the knob's range.")] = TTLS,
    exact_up_to: Annotated[
        int, typer.Option(min=0, help="Requests of a trace that is replayed in full; longer ones are sampled by key.")
    ] = EXACT_REQUESTS,
    seed: Annotated[int, typer.Option(min=0, help="Of the resampling and of the sampled keys.")] = 0,
    resamples: Annotated[int, typer.Option(min=100, help="Of the bootstrap over time.")] = 2000,
    block: Annotated[
        int | None, typer.Option(min=1, help="Intervals per block of the bootstrap; follows from the costs by default.")
    ] = None,
    format_name: FormatName = None,
    requests_per_second: RequestsPerSecond = None,
    at_most: AtMost = AT_MOST,
    as_json: AsJson = False,
) -> None:
    """What every cache size and TTL would have cost on a trace, and what moving from the current ones would save.

    Nothing is learned: every setting of a grid is replayed. Prints tables and what they say in sentences, and writes a
    picture and one page to read (whatif.html).
    """
    wish = Wish() if current is None else parse_wish(current)
    config = load_tuner_config(
        config_file, Path.cwd(), os.environ, {"trace.path": trace, "trace.interval_seconds": interval}
    )
    if config.trace.path is None:
        raise InputError("trace: got none, expected an argument, trace.path in a file or a variable")
    options = ReadOptions(requests_per_second=requests_per_second, at_most=at_most, sample_seed=seed)
    recording = load_with_progress(config.trace.path, format_name, options)
    sampling, resampling = Sampling(seed=seed), Resampling(resamples, seed, block)
    policies = asked_policies(config, eviction_policy, admission)
    ask = Ask(wish, sizes, ttls, exact_up_to, sampling, resampling, policies)
    result = ask_with_progress(config, recording, ask)
    folder = config.tracking.output / Path(result.subject.trace).name
    picture = save_whatif(result, folder / PICTURE)
    page = write_page(whatif_page(result, f"{datetime.now(UTC):%Y-%m-%d}"), folder / PAGE)
    if as_json:
        print_json({**result.as_dict(), "sentences": sentences(result), "picture": picture, "page": page})
    else:
        print_whatif(result, picture, page)


def asked_policies(config: TunerConfig, evictions: str | None, admissions: str | None) -> tuple[CachePolicy, ...]:
    """Names with commas between them; None stands for what the settings say. Raises InputError for one that the
    configured kind of cache does not have."""
    cache = config.cache
    names = cache.eviction_policy if evictions is None else [one.strip() for one in evictions.split(",")]
    rules = [cache.admission] if admissions is None else [one.strip() for one in admissions.split(",")]
    return policies_called(names, rules, cache.kind)


def ask_with_progress(config: TunerConfig, recording: Trace, ask: Ask) -> WhatIf:
    """`what_if` with a progress bar."""
    with progress_bar("settings") as bar:
        tasks: dict[str, TaskID] = {}

        def watch(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=None)
            bar.update(tasks[what], completed=done, total=total)

        result = what_if(config, recording, ask, watch)
        for task in tasks.values():
            bar.update(task, total=bar.tasks[task].completed)
        return result


def print_whatif(result: WhatIf, picture: Path, page: Path) -> None:
    """Tables, sentences, and where the rest is."""
    subject, console = result.subject, result_console()
    composed = ", composed of several sources" if subject.composed else ""
    for title, surface in (("Hit ratio", result.hit_ratio), ("USD per 1,000 requests", result.usd_per_1000)):
        table = surface_table(result, surface)
        under = f" under {result.shown}" if result.names_policies else ""
        print_table(f"{title}{under}, by size and TTL", table.columns, table.rows)
    console.print(f"Nearest to: {BEST} the best setting, {CURRENT} {name_of_current(result)}.", style="dim")
    title = f"{subject.trace}{composed}: {subject.requests:,} requests, {subject.intervals:,} intervals"
    for heading, table in ((title, comparison(result)), (None, causes(result)), (None, behaviour(result))):
        print_table(heading, table.columns, table.rows)
    if len(result.policies) > 1:
        table = by_policy(result)
        print_table("The best setting under each policy", table.columns, table.rows)
    console.print(" ".join(sentences(result)), markup=False)
    assumptions = (f"Assumption: {one}" for one in subject.assumptions)
    for sentence in (*subject.remarks, *result.notes, *assumptions):
        console.print(sentence, markup=False, style="dim")
    console.print(f"Report to read: {page}", markup=False)
    console.print(f"Picture: {picture}", markup=False)
