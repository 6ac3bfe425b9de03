"""Records as rows of the ledger's tables, and back. A row is a dict by column, its trees plain JSON."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import Any

from pydantic import TypeAdapter

from caches.errors import InputError
from caches.knobs import KNOB_NAMES, KnobSettings
from caches.target import Arm, Counted, Histogram, Plan
from tuner.ledgers.tables import POLICY
from tuner.records import (
    ControlState,
    Decision,
    ExperimentRecord,
    IntervalRecord,
    Judgement,
    Mode,
    Outcome,
    Phase,
    Tick,
    Verdict,
    Wish,
    WishKind,
)

Row = Mapping[Any, Any]  # by the name of the column
_PLAN = TypeAdapter(Plan)
_COUNTED = TypeAdapter(Counted)
_HISTOGRAM = TypeAdapter(Histogram | None)


def plain(value: object, place: str) -> Any:
    """The same as JSON would have it: dict, list, str, int, finite float, bool, None.

    Raises InputError naming the place of anything else: what came back would not be what was written.
    """
    if isinstance(value, str):
        if "\0" in value:  # PostgreSQL has no place for it
            raise InputError(f"{place}: got {value!r}, expected text without a zero byte")
        return str(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{place}: got {value}, expected a finite number, or None for what is not known")
        return float(value)
    return _plain_tree(value, place)


def _plain_tree(value: object, place: str) -> Any:
    """The rarer kinds."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name), f"{place}.{field.name}") for field in fields(value)}
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise InputError(f"{place}: got the key {odd[0]!r}, expected text")
        return {plain(key, place): plain(one, f"{place}.{key}") for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one, f"{place}[{index}]") for index, one in enumerate(value)]
    if isinstance(value, Real):  # of numpy
        return plain(int(value) if isinstance(value, Integral) else float(value), place)
    raise InputError(f"{place}: got {type(value).__name__}, expected what JSON can hold")


def digest(tick: Tick) -> str:
    """The same for equal ticks, in every process."""
    text = json.dumps(plain(tick, "tick"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def row_of(record: object, place: str, **renamed: str) -> dict[str, Any]:
    """Each field under its name or its new one. place: what errors call the record."""
    return {renamed.get(name, name): value for name, value in plain(record, place).items()}


def spread(settings: KnobSettings | None, prefix: str = "") -> dict[str, float | str | None]:
    """Settings as columns; all None where there are none."""
    knobs = {prefix + name: None if settings is None else float(getattr(settings, name)) for name in KNOB_NAMES}
    return knobs | {prefix + POLICY: None if settings is None else settings.eviction_policy}


def gathered(row: Row, prefix: str = "") -> KnobSettings | None:
    """Inverse of `spread`."""
    return None if None in [row[prefix + name] for name in KNOB_NAMES] else _stated(row, prefix)


def _stated(row: Row, prefix: str = "") -> KnobSettings:
    """Of columns that have them."""
    return KnobSettings(**{name: row[prefix + name] for name in (*KNOB_NAMES, POLICY)})


# --- states -----------------------------------------------------------------------------------------------------------


def state_row(state: ControlState) -> dict[str, Any]:
    return row_of(state, "state", index="interval_index")


def state_of(row: Row) -> ControlState:
    return ControlState(
        cache=row["cache"],
        index=row["interval_index"],
        opened_seconds=row["opened_seconds"],
        opened=None if row["opened"] is None else _COUNTED.validate_python(row["opened"]),
        plan=_PLAN.validate_python(row["plan"]),
        confirmed=row["confirmed"],
        phase=Phase(row["phase"]),
        step=row["step"],
        phase_index=row["phase_index"],
        experiment=row["experiment"],
        paused=row["paused"],
        latched=row["latched"],
        memory=row["memory"],
    )


# --- intervals, decisions, judgements ---------------------------------------------------------------------------------


def interval_row(record: IntervalRecord) -> dict[str, Any]:
    row = row_of(record, "interval", index="interval_index", window="statistics")
    del row["settings"]
    return row | spread(record.settings)


def interval_of(row: Row) -> IntervalRecord:
    return IntervalRecord(
        cache=row["cache"],
        index=row["interval_index"],
        arm=Arm(row["arm"]),
        began_seconds=row["began_seconds"],
        ended_seconds=row["ended_seconds"],
        settings=_stated(row),
        share=row["share"],
        window=row["statistics"],
        reason=row["reason"],
        reference_usd=row["reference_usd"],
        reward=row["reward"],
        ttft_seconds=_HISTOGRAM.validate_python(row["ttft_seconds"]),
        latency_seconds=_HISTOGRAM.validate_python(row["latency_seconds"]),
    )


def decision_row(decision: Decision, *, changed: bool) -> dict[str, Any]:
    row = row_of(decision, "decision", index="interval_index")
    for name in ("proposed", "limited", "applied"):
        del row[name]
        row |= spread(getattr(decision, name), f"{name}_")
    return row | {"changed": changed}


def decision_of(row: Row) -> Decision:
    return Decision(
        cache=row["cache"],
        index=row["interval_index"],
        arm=Arm(row["arm"]),
        at_seconds=row["at_seconds"],
        policy=row["policy"],
        version=row["version"],
        mode=Mode(row["mode"]),
        verdict=Verdict(row["verdict"]),
        reasons=tuple(row["reasons"]),
        proposed=gathered(row, "proposed_"),
        limited=_stated(row, "limited_"),
        applied=gathered(row, "applied_"),
        predicted_usd_per_1000=row["predicted_usd_per_1000"],
    )


def judgement_row(judgement: Judgement) -> dict[str, Any]:
    return row_of(judgement, "judgement", index="interval_index")


def judgement_of(row: Row) -> Judgement:
    return Judgement(
        cache=row["cache"],
        experiment=row["experiment"],
        index=row["interval_index"],
        outcome=Outcome(row["outcome"]),
        reasons=tuple(row["reasons"]),
        numbers=row["numbers"],
    )


# --- experiments and wishes -------------------------------------------------------------------------------------------


def experiment_row(record: ExperimentRecord) -> dict[str, Any]:
    return row_of(record, "experiment")


def experiment_of(row: Row) -> ExperimentRecord:
    outcome = None if row["outcome"] is None else Outcome(row["outcome"])
    return ExperimentRecord(**{**row, "outcome": outcome})


def wish_row(wish: Wish) -> dict[str, Any]:
    """Of one that has no id yet.

    Raises InputError for one that has, or is answered.
    """
    if wish.id is not None or wish.done_index is not None or wish.answer is not None:
        raise InputError(f"wish: got one that was written down before ({wish.id}), expected a new one")
    row = row_of(wish, "wish", by="asked_by")
    del row["id"]
    return row


def wish_of(row: Row) -> Wish:
    return Wish(
        cache=row["cache"],
        kind=WishKind(row["kind"]),
        by=row["asked_by"],
        at_seconds=row["at_seconds"],
        reason=row["reason"],
        arguments=row["arguments"],
        id=row["id"],
        done_index=row["done_index"],
        answer=row["answer"],
    )


def check_tick(tick: Tick) -> None:
    """Raises InputError where its parts are not of one cache and one tick."""
    cache, index = tick.state.cache, tick.state.index
    parts: Sequence[tuple[str, Sequence[Any]]] = (
        ("intervals", tick.intervals),
        ("decisions", tick.decisions),
        ("wishes", tick.wishes),
        ("experiments", tick.experiments),
        ("judgement", [] if tick.judgement is None else [tick.judgement]),
    )
    for name, records in parts:
        if others := [one.cache for one in records if one.cache != cache]:
            raise InputError(f"tick.{name}: got one of the cache {others[0]!r}, expected of {cache!r}")
    if open_ones := [one.index for one in tick.intervals if one.index >= index]:
        raise InputError(f"tick.intervals: got interval {open_ones[0]}, expected one before {index}, which is over")
    if others := [one.index for one in tick.decisions if one.index != index]:
        raise InputError(f"tick.decisions: got one for interval {others[0]}, expected for {index}, which begins")
    if unanswered := [one for one in tick.wishes if one.id is None or one.done_index is None]:
        raise InputError(f"tick.wishes: got {unanswered[0]}, expected one with an id that was acted on")
