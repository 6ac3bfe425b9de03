"""A what-if as tables and sentences, for the terminal and for the page."""

from __future__ import annotations

import math
from collections.abc import Iterator

from agents.summary import Table
from agents.units import usd
from caches.knobs import KnobSettings
from envs.reward import CAUSES
from tuner.whatif_result import ENTRIES, Axis, Priced, Surface, UnderPolicy, WhatIf, amount

NONE = "–"
CONSTRAINT_NAMES = {"p99_ttft": "the limit of the P99 first token", "stale_ratio": "the limit of outdated answers"}
BEST, CURRENT = "*", "°"
LEAST_SHOWN = 0.0005  # of a cost; less is 0.0 %


def settings_text(settings: KnobSettings, size_unit: str) -> str:
    """`512 MiB, TTL 1 h`, and the warm-up where there is one."""
    text = f"{amount(settings.cache_size, size_unit)}, TTL {amount(settings.ttl_seconds, 's')}"
    return text if settings.warmup_ratio == 0 else f"{text}, warm-up {settings.warmup_ratio:.0%}"


def place_text(result: WhatIf, settings: KnobSettings, policy: str) -> str:
    """The settings, and the cache's policy where readers have to be told."""
    text = settings_text(settings, result.size_unit)
    return f"{text}, {policy}" if result.names_policies else text


def here_text(result: WhatIf, one: Priced) -> str:
    return place_text(result, one.settings, one.policy)


def policy_name(name: str) -> str:
    """As it is read in a sentence."""
    return "LRU" if name == "lru" else name


def comparison(result: WhatIf) -> Table:
    """What runs now beside the best setting: what they are, and what they cost."""
    named = result.names_policies
    rows = (
        (
            name,
            *((one.policy,) if named else ()),
            amount(one.settings.cache_size, result.size_unit),
            amount(one.settings.ttl_seconds, "s"),
            f"{one.settings.warmup_ratio:.0%}",
            usd(one.usd_per_1000),
            usd(one.usd_per_day),
        )
        for name, one in compared(result)
    )
    policy = ("policy",) if named else ()
    return Table(("setting", *policy, "size", "TTL", "warm-up", "USD/1,000", "USD/day"), tuple(rows))


def by_policy(result: WhatIf) -> Table:
    """The best setting under each policy, and what moving there from what runs now saves, with its 95 % interval over
    time. BEST marks the cheapest that keeps the constraints."""
    rows = []
    for under in result.policies:
        one = under.best
        mark = BEST * ((one.policy, one.settings) == (result.best.policy, result.best.settings))
        size, ttl = amount(one.settings.cache_size, result.size_unit), amount(one.settings.ttl_seconds, "s")
        behaves = (f"{one.hit_ratio:.4f}", usd(one.usd_per_1000), f"{one.unsafe_per_1000:.1f}")
        rows.append((one.policy + mark, size, ttl, *behaves, _saved(under)))
    columns = ("policy", "size", "TTL", "hit ratio", "USD/1,000", "unsafe/1,000", "saves, %")
    return Table(columns, tuple(rows))


def _saved(under: UnderPolicy) -> str:
    percent, over_time = under.saving.percent, under.saving.over_time
    if not under.best.safe or percent is None:
        return NONE
    sure = None if over_time is None else over_time.percent
    return f"{percent:.2f}" if sure is None else f"{percent:.2f} [{sure.low:.2f}, {sure.high:.2f}]"


def behaviour(result: WhatIf) -> Table:
    """Both again: hits, outdated answers among them, the median over intervals of P99 TTFT, and unsafe intervals."""
    rows = (
        (
            name,
            f"{one.hit_ratio:.4f}",
            NONE if one.stale_ratio is None else f"{one.stale_ratio:.2%}",
            NONE if one.median_p99_ttft_seconds is None else f"{one.median_p99_ttft_seconds:.3f}",
            f"{one.unsafe_per_1000:.1f}",
        )
        for name, one in compared(result)
    )
    return Table(("setting", "hit ratio", "outdated", "P99 TTFT, s", "unsafe/1,000"), tuple(rows))


def causes(result: WhatIf) -> Table:
    """Both again: USD per 1,000 requests by cause."""
    digits = _decimals(min(one.usd_per_1000 for _, one in compared(result)))
    rows = (
        (name, *(f"{value:.{digits}f}" for value in (*map(one.usd_by_cause_per_1000.get, CAUSES), one.usd_per_1000)))
        for name, one in compared(result)
    )
    return Table(("USD/1,000", *CAUSES, "total"), tuple(rows))


def _decimals(smallest: float) -> int:
    """That show four digits of the smallest amount."""
    return 4 if smallest <= 0 else min(max(3 - math.floor(math.log10(smallest)), 2), 9)


def compared(result: WhatIf) -> list[tuple[str, Priced]]:
    """Names and settings: what runs now, and the best one where it is another."""
    both = [(name_of_current(result), result.current)]
    return both if result.stays else [*both, ("best" if result.best.safe else "least unsafe", result.best)]


def name_of_current(result: WhatIf) -> str:
    return "now" if result.subject.current_given else "configured default"


def surface_table(result: WhatIf, surface: Surface) -> Table:
    """A row per size, a column per lifetime; BEST and CURRENT mark the cells nearest to the two settings."""
    sizes, ttls = result.axes
    best, current = (_cell(result.axes, one.settings) for one in (result.best, result.current))
    rows = []
    for row, size in enumerate(sizes.values):
        cells = []
        for column in range(len(ttls.values)):
            value = float(surface.values[row, column])
            text = f"{value:.4f}" if surface.unit == "ratio" else usd(value)
            mark = BEST * ((row, column) == best) + CURRENT * ((row, column) == current)
            cells.append(text + mark)
        rows.append((amount(float(size), sizes.unit), *cells))
    return Table(("size \\ TTL", *(amount(float(ttl), ttls.unit) for ttl in ttls.values)), tuple(rows))


def _cell(axes: tuple[Axis, Axis], settings: KnobSettings) -> tuple[int, int]:
    """The nearest cell, by ratio."""
    return axes[0].nearest(settings.cache_size), axes[1].nearest(settings.ttl_seconds)


def sentences(result: WhatIf) -> tuple[str, ...]:
    """What you pay now, what you would pay, how sure that is, and what to know about it."""
    return (*_now(result), *_best(result), *how_sure(result), *side_by_side(result), *shape(result))


def _now(result: WhatIf) -> Iterator[str]:
    now = result.current
    where = "What runs now" if result.subject.current_given else "No current setting was given; the configured default"
    here = here_text(result, now)
    yield (
        f"{where} ({here}) costs {usd(now.usd_per_1000)} USD per 1,000 requests here, "
        f"{usd(now.usd_per_day)} USD a day, and {result.subject.finds}s {now.hit_ratio:.1%} of the "
        f"{result.subject.hits}."
    )
    if not now.safe:
        yield f"It breaks {violated(now)}, more often than allowed ({allowed(result)})."


def allowed(result: WhatIf) -> str:
    """How many unsafe intervals the constraints let pass."""
    return f"{result.subject.constraints['max_unsafe_per_1000']:g} in 1,000"


def violated(one: Priced) -> str:
    """Which limits a setting breaks, and in how many intervals."""
    broken = [f"{CONSTRAINT_NAMES[name]} in {many:,}" for name, many in one.violated_intervals.items() if many]
    return f"{' and '.join(broken)} intervals" if broken else "no limit"


def _best(result: WhatIf) -> Iterator[str]:
    best, now, saving = result.best, result.current, result.saving
    there = here_text(result, best)
    if not best.safe:
        yield (
            f"No setting that was tried keeps the constraints. {there} breaks them least often "
            f"({violated(best)}) and costs {usd(best.usd_per_1000)} USD per 1,000 requests: more capacity behind the "
            "cache is needed, or constraints that can be kept."
        )
        return
    if result.stays:
        yield "Nothing on the grid is cheaper and keeps the constraints: keep it."
        return
    percent = saving.percent
    change = "" if percent is None else f", {abs(percent):.1f} % {'less' if percent >= 0 else 'more'}"
    yield (
        f"{there} would cost {usd(best.usd_per_1000)} USD per 1,000 requests{change}, and {result.subject.finds} "
        f"{best.hit_ratio:.1%}."
    )
    if best.usd_per_1000 > now.usd_per_1000:
        yield "It costs more because what runs now is cheap by breaking the constraints; this keeps them."


def how_sure(result: WhatIf) -> Iterator[str]:
    """The interval of the saving, and what the first half of the trace would have advised for the second."""
    if result.stays or not result.best.safe:
        return
    over_time = result.saving.over_time
    if over_time is None:
        yield "The trace holds too little to say how sure the saving is."
        return
    per_1000, percent = over_time.usd_per_1000, over_time.percent
    bounds = f"{usd(per_1000.low)} to {usd(per_1000.high)} USD per 1,000 requests"
    if percent is not None:
        bounds = f"{percent.low:.1f} to {percent.high:.1f} %, {bounds}"
    shown = "is above zero" if per_1000.low > 0 else "reaches zero" if per_1000.high > 0 else "is below zero"
    yield f"The saving's 95 % interval over time {shown} ({bounds})."
    if result.held_out is not None:
        yield _held_out(result)


def _held_out(result: WhatIf) -> str:
    held = result.held_out
    assert held is not None
    if (held.policy, held.settings) == (result.current.policy, result.current.settings):
        return "Chosen on the first half of the trace alone, nothing would have been changed."
    percent = held.saving.percent
    much = usd(abs(held.saving.usd_per_day)) + " USD a day" if percent is None else f"{abs(percent):.1f} %"
    did = "saved" if held.saving.usd_per_day >= 0 else "lost"
    keeps = "" if held.safe else ", while breaking the constraints there"
    there = place_text(result, held.settings, held.policy)
    return f"Chosen on the first half of the trace alone ({there}), it {did} {much} on the second half{keeps}."


def side_by_side(result: WhatIf) -> Iterator[str]:
    """How much of the saving is the policy's: the best under another beside the best under the current one."""
    mine = next((one for one in result.policies if one.policy == result.current.policy), None)
    safe = [one for one in result.policies if one.best.safe and one is not mine]
    if mine is None or not mine.best.safe or not safe:
        return
    other = min(safe, key=lambda one: one.best.usd_per_1000)
    less = 1.0 - other.best.usd_per_1000 / mine.best.usd_per_1000 if mine.best.usd_per_1000 > 0 else 0.0
    if less < LEAST_SHOWN:
        yield f"No other policy is cheaper at its best setting than {policy_name(mine.policy)} at its best."
        return
    yield (
        f"Of the other policies {policy_name(other.policy)} is the cheapest at its best setting: {less:.1%} less than "
        f"{policy_name(mine.policy)} at its best."
    )


def shape(result: WhatIf) -> Iterator[str]:
    """The knee, the bound, and the ends of the grid."""
    if result.knee is not None:
        more = "entry" if result.size_unit == ENTRIES else "byte"
        yield (
            f"The knee of the hit ratio's curve is near {amount(result.knee.value, result.size_unit)} "
            f"(hit ratio {result.knee.hit_ratio:.3f}): beyond it a further {more} brings less than the average one."
        )
    if result.bound is not None:
        row, column = _cell(result.axes, result.best.settings)
        yield (
            f"With about the best setting's capacity and TTL no cache could {result.subject.finds} more than "
            f"{result.bound.values[row, column]:.1%}; {policy_name(result.shown)} {result.subject.finds}s "
            f"{result.hit_ratio.values[row, column]:.1%}."
        )
    enough = {"cache_size": result.subject.footprint_bytes, "ttl_seconds": result.subject.span_seconds}
    for axis in result.axes:
        if axis.at_end(getattr(result.best.settings, axis.name), enough[axis.name]) and not result.stays:
            yield f"The best {axis.name} lies at the end of the range: widen it in [knobs] and ask again."
