"""Everything that the page shows of one cache, read from the ledger at one time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from api.access.callers import Caller
from api.asking import ROLES, objection
from api.cursors import cursor_of
from api.report.arm_charts import COST, HITS, LATENCY, SIZE, TTFT, TTL, WARMUP, arms_picture, saving_picture
from api.report.arm_tables import intervals_table
from api.report.experiment import Reckoning, figures, reckoning, version_text
from api.report.page import KeyFigure, PageTable, Picture
from api.web.settings_table import settings_rows
from api.web.still import stilled
from api.web.surface import Shown, surface_of
from api.wording import OUTCOMES, VERDICTS, WISHES, ago, clock, in_words, moment, money, settings_text
from caches.target import Arm
from tuner.ledger import DecisionFilter
from tuner.records import ControlState, Decision, ExperimentRecord, Phase, Wish, WishKind
from tuner.service import Status, TunerService

CHARTED = 288  # intervals
DECISIONS, WISHES_SHOWN, EXPERIMENTS = 20, 8, 8
DECISION_COLUMNS = ("when, UTC", "reason", "settings", "arm", "verdict", "policy", "predicted per 1,000")
WISH_COLUMNS = ("wish", "asked for", "by", "when, UTC", "why", "what came of it")
NONE = "–"
OFFERED = (
    WishKind.PAUSE,
    WishKind.RESUME,
    WishKind.STOP,
    WishKind.ROLL_BACK,
    WishKind.RELEASE,
    WishKind.PROMOTE,
    WishKind.START,
)


@dataclass(frozen=True)
class Alive:
    """Whether a daemon is at work. text: a sentence."""

    is_so: bool
    text: str


@dataclass(frozen=True)
class Overview:
    """Blocks for the template. None: there is nothing of it yet. older: cursor of the decisions after those shown."""

    cache: str
    caches: Sequence[str]
    revision: int
    title: str
    subtitle: str
    alive: Alive
    offers: Sequence[tuple[str, str]]
    may_kill: bool
    experiment: ExperimentRecord | None
    outcome: str | None
    outcome_reason: str | None
    figures: Sequence[KeyFigure]
    saving: Picture | None
    cost: Picture | None
    service: Picture | None
    settings: Picture | None
    intervals: PageTable | None
    in_force: PageTable
    surface: Shown
    decisions: PageTable | None
    older: str | None
    wishes: PageTable | None
    open_wishes: int
    experiments: Sequence[tuple[str, str, str]]


def overview(
    service: TunerService,
    cache: str,
    caller: Caller,
    whatif: Path | None,
    before: tuple[int, Arm] | None,
    now_seconds: float,
) -> Overview:
    """Raises NotFound for a cache that is not there."""
    revision = service.revision()
    status = service.status(cache)
    state = status.state
    records = service.intervals(cache, max(state.index - CHARTED, 0), max(state.index - 1, 0))
    experiments = service.experiments(cache, EXPERIMENTS)
    found = reckoning(service.account(experiments[0].id)) if experiments else None
    decisions = service.decisions(cache, DecisionFilter(before=before, limit=DECISIONS + 1))
    wishes = _wishes(status, service.wishes(cache, WISHES_SHOWN))
    return Overview(
        cache=cache,
        caches=service.caches(),
        revision=revision,
        title=in_words(state),
        subtitle=f"Interval {state.index:,} began {moment(state.opened_seconds)} UTC"
        + ("." if state.confirmed else "; the cache has not confirmed its settings yet."),
        alive=_alive(status, now_seconds),
        offers=list(_offers(state, caller)),
        may_kill=caller.may(ROLES[WishKind.KILL]),
        experiment=None if found is None else found.account.experiment,
        outcome=_outcome(found),
        outcome_reason=_reason(found),
        figures=() if found is None else tuple(figures(found)),
        saving=None if found is None else _saving(found),
        cost=_still(arms_picture(records, (COST,), "Cost")),
        service=_still(arms_picture(records, (HITS, TTFT, LATENCY), "Hit ratio and latency")),
        settings=_still(arms_picture(records, (SIZE, TTL, WARMUP), "Settings")),
        intervals=intervals_table(records, 48) if records else None,
        in_force=settings_rows(state, service.limits(cache)),
        surface=_surface(whatif, state),
        decisions=_decisions(decisions[:DECISIONS]) if decisions else None,
        older=cursor_of("decisions", decisions[DECISIONS - 1].index, decisions[DECISIONS - 1].arm.value)
        if len(decisions) > DECISIONS
        else None,
        wishes=wishes,
        open_wishes=len(status.open_wishes),
        experiments=[_experiment_row(one) for one in experiments],
    )


def _still(picture: Picture | None) -> Picture | None:
    return None if picture is None else stilled(picture)


def _saving(found: Reckoning) -> Picture | None:
    account = found.account
    return _still(saving_picture(account.judgements, account.intervals, account.decisions))


def _surface(whatif: Path | None, state: ControlState) -> Shown:
    return surface_of(whatif, state.plan.control)


def _alive(status: Status, now_seconds: float) -> Alive:
    lease = status.lease
    if lease is None:
        return Alive(False, "No daemon has ever held the lease of this cache.")
    if status.active:
        return Alive(True, f"The daemon {lease.holder} is at work.")
    gone = ago(now_seconds - lease.until_seconds)
    return Alive(False, f"No daemon is at work: the lease of {lease.holder} ran out {gone}. Settings stay as they are.")


def _offers(state: ControlState, caller: Caller) -> Iterator[tuple[str, str]]:
    """What the caller may ask for now: (kind, words)."""
    for kind in OFFERED:
        useless = {WishKind.PAUSE: state.paused is not None, WishKind.RESUME: state.paused is None}.get(kind, False)
        if kind is WishKind.RELEASE and state.latched is None and state.phase is not Phase.ROLLED_BACK:
            useless = True
        if not useless and caller.may(ROLES[kind]) and objection(state, kind) is None:
            yield kind.value, WISHES[kind]


def _outcome(found: Reckoning | None) -> str | None:
    return None if found is None or found.outcome is None else OUTCOMES[found.outcome]


def _reason(found: Reckoning | None) -> str | None:
    if found is None or found.judgement is None or not found.judgement.reasons:
        return None
    return found.judgement.reasons[0]


def _decisions(decisions: Sequence[Decision]) -> PageTable:
    rows = tuple(
        (
            clock(one.at_seconds),
            " ".join(one.reasons) or NONE,
            settings_text(one.applied or one.limited),
            one.arm.value,
            VERDICTS[one.verdict],
            one.policy if one.version is None else f"{one.policy}, version {one.version}",
            NONE if one.predicted_usd_per_1000 is None else money(one.predicted_usd_per_1000),
        )
        for one in decisions
    )
    return PageTable("Newest first", DECISION_COLUMNS, rows, frozenset(DECISION_COLUMNS[1:6]))


def _wishes(status: Status, newest: Sequence[Wish]) -> PageTable | None:
    """Open ones first."""
    shown = {one.id: one for one in (*status.open_wishes, *newest)}
    if not shown:
        return None
    rows = tuple(
        (
            str(one.id),
            WISHES[one.kind],
            one.by,
            clock(one.at_seconds),
            one.reason or NONE,
            "open: the daemon acts on it at its next tick" if one.done_index is None else one.answer or "done",
        )
        for one in shown.values()
    )
    return PageTable("Open ones first, then the newest", WISH_COLUMNS, rows, frozenset(WISH_COLUMNS[1:]))


def _experiment_row(one: ExperimentRecord) -> tuple[str, str, str]:
    """(id, what, how it ended)."""
    what = f"{version_text(one.challenger)} against {version_text(one.champion)}, from {moment(one.began_seconds)} UTC"
    if one.ended_seconds is None:
        return one.id, what, "runs"
    return one.id, what, "ended without an outcome" if one.outcome is None else one.outcome.value
