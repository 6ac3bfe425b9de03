"""The settings in force as a table for the page."""

from __future__ import annotations

from agents.units import readable
from api.report.page import PageTable
from api.wording import percent
from caches.knobs import KnobSettings, KnobSpace
from tuner.records import ControlState

NOT_SAID = "not said"
COLUMNS = ("settings", "cache size", "lifetime (TTL)", "warm-up")
POLICY, AS_MADE = "eviction policy", "the cache's own"


def settings_rows(state: ControlState, limits: KnobSpace | None) -> PageTable:
    """Of the open interval, with the range that binds them and what a kill restores, where the daemon has said; with
    eviction policies where one is named."""
    rows: list[tuple[str, ...]] = [_row("control arm", state.plan.control)]
    if state.plan.split.treatment > 0.0:
        rows.append(_row("treatment arm", state.plan.treatment))
    if limits is None:
        rows += [("yours, which a kill restores", *(NOT_SAID,) * 3), ("range", *(NOT_SAID,) * 3)]
    else:
        rows.append(_row("yours, which a kill restores", limits.default()))
        size, ttl, warmup = limits.knobs
        rows.append(
            (
                "range",
                f"{readable(size.low, 'bytes')} to {readable(size.high, 'bytes')}",
                f"{readable(ttl.low, 's')} to {readable(ttl.high, 's')}",
                f"{percent(warmup.low)} to {percent(warmup.high)}",
            )
        )
    columns: tuple[str, ...] = COLUMNS
    if policies := _policies(state):
        columns = (*columns, POLICY)
        others = [AS_MADE, ""] if limits is not None else [NOT_SAID] * 2
        rows = [(*row, policy) for row, policy in zip(rows, [*policies, *others], strict=True)]
    return PageTable("Stated for the whole cache; an arm has its share of the size", columns, tuple(rows))


def _policies(state: ControlState) -> list[str]:
    """Of the arms that have keys; none where no setting names one."""
    arms = [state.plan.control] + ([state.plan.treatment] if state.plan.split.treatment > 0.0 else [])
    named = [settings.eviction_policy for settings in arms]
    return [AS_MADE if name is None else name for name in named] if any(named) else []


def _row(name: str, settings: KnobSettings) -> tuple[str, str, str, str]:
    size, ttl = readable(settings.cache_size, "bytes"), readable(settings.ttl_seconds, "s")
    return name, size, ttl, percent(settings.warmup_ratio)
