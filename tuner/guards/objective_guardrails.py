"""Guardrails that hold a number of an arm against an objective.

A broken objective is the arm's fault where the control arm, in the same interval, was not nearly as bad. It then holds
the settings, and after some intervals in a row, or at once where it is far off, rolls them back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from caches.semantic.verification import clopper_pearson
from caches.target import Arm
from tuner.guards.objectives import Objectives
from tuner.guards.situation import Finding, Situation, Window, known
from tuner.guards.texts import amount, amounts
from tuner.records import Verdict


@dataclass(frozen=True)
class Measure:
    """What a guardrail watches. value: its name in windows and signals. text: how a sentence begins. limit: the
    objective; None where none is set. of: the count without which the value is not known and nothing is wrong."""

    guardrail: str
    value: str
    text: str
    unit: str
    limit: Callable[[Objectives], float | None]
    of: str | None = None


TTFT = Measure(
    "p99_ttft",
    "p99_ttft_seconds",
    "P99 of the time to the first token",
    "seconds",
    lambda objectives: objectives.p99_ttft_seconds,
)
LATENCY = Measure(
    "p99_latency",
    "p99_latency_seconds",
    "P99 of the time to the whole answer",
    "seconds",
    lambda objectives: objectives.p99_latency_seconds,
)
ERRORS = Measure(
    "errors", "error_ratio", "The share of requests that ended in an error", "share", lambda one: one.error_ratio
)
STALE = Measure(
    "staleness",
    "stale_ratio",
    "The expected share of outdated answers among hits",
    "share",
    lambda one: one.stale_ratio,
    of="hits",
)
WRONG = Measure(
    "wrong_hits",
    "wrong_hit_ratio",
    "The share of wrong answers among verified hits by meaning",
    "share",
    lambda one: one.wrong_hit_ratio,
    of="verified_hits",
)
WRONG_AT_LEAST = replace(WRONG, text="The least share of wrong answers that verified hits by meaning leave possible")
VRAM = Measure("vram", "vram_ratio", "The share of GPU memory in use", "share", lambda one: one.vram_ratio)


def p99_ttft(situation: Situation, objectives: Objectives) -> Finding:
    return _beside_control(TTFT, situation, objectives)


def p99_latency(situation: Situation, objectives: Objectives) -> Finding:
    return _beside_control(LATENCY, situation, objectives)


def errors(situation: Situation, objectives: Objectives) -> Finding:
    return _beside_control(ERRORS, situation, objectives)


def staleness(situation: Situation, objectives: Objectives) -> Finding:
    return _beside_control(STALE, situation, objectives)


def wrong_hits(situation: Situation, objectives: Objectives) -> Finding:
    """Few hits are verified in an interval, so one that is wrong by chance must not take an arm out: what is held
    against the objective is the lower end of the share's 95 % interval."""
    if not known((situation.window or {}).get("verified_hits")):
        return _beside_control(WRONG, situation, objectives)
    at_least = replace(situation, window=_at_least(situation.window), control=_at_least(situation.control))
    return _beside_control(WRONG_AT_LEAST, at_least, objectives)


def memory(situation: Situation, objectives: Objectives) -> Finding:
    """What the arm holds and what is proposed, both counted for the whole cache."""
    cap = objectives.memory_bytes or situation.knobs.cache_size.high
    measure = Measure("memory", "used_bytes", "The memory that the cache holds", "bytes", lambda _: cap)
    proposed = situation.proposed
    if proposed is not None and proposed.cache_size > cap:
        asked, most = amounts("bytes", proposed.cache_size, cap)
        return Finding("memory", Verdict.HOLD, f"The policy asks for a cache of {asked}; at most {most} are allowed.")
    used = None if situation.window is None else known(situation.window.get("used_bytes"))
    whole = None if used is None or situation.share <= 0.0 else known(used / situation.share)
    return _by_size(measure, whole, situation, objectives)


def vram(situation: Situation, objectives: Objectives) -> Finding:
    return _by_size(VRAM, situation.value(VRAM.value), situation, objectives)


def _beside_control(measure: Measure, situation: Situation, objectives: Objectives) -> Finding:
    limit, value = measure.limit(objectives), situation.value(measure.value)
    if (early := _untold(measure, limit, value, situation, objectives)) is not None:
        return early
    assert limit is not None
    assert value is not None
    control = situation.beside(measure.value, objectives.least_requests)
    if value <= limit:
        return _within(measure, value, limit, situation)
    was, most, other = amounts(measure.unit, value, limit, limit if control is None else control)
    what = f"{measure.text} was {was} in the {situation.arm} arm, above the objective of {most}"
    if control is not None and value <= control * (1.0 + objectives.alike_ratio):
        why = f"{what}; the control arm's {other} is alike, so it is not the challenger's doing."
        return Finding(measure.guardrail, Verdict.HOLD, why)
    if control is not None:
        what += f" and above the control arm's {other}"
    return _blamed(measure, what, value / limit, situation, objectives)


def _by_size(measure: Measure, value: float | None, situation: Situation, objectives: Objectives) -> Finding:
    """Memory is the arm's fault where its cache is larger than the one that a rollback restores."""
    limit = measure.limit(objectives)
    if limit is None or value is None:
        return _unmeasured(measure, limit, situation)
    if value <= limit:
        return _within(measure, value, limit, situation)
    was, most = amounts(measure.unit, value, limit)
    what = f"{measure.text} was {was} in the {situation.arm} arm, above the objective of {most}"
    here, there = amounts("bytes", situation.settings.cache_size, situation.good.cache_size)
    if situation.settings.cache_size <= situation.good.cache_size:
        why = f"{what}; its cache of {here} is not larger than the {there} of before, so that is not its doing."
        return Finding(measure.guardrail, Verdict.HOLD, why)
    return _blamed(measure, f"{what}, with a cache of {here} instead of {there}", value / limit, situation, objectives)


def _at_least(window: Window | None) -> Window | None:
    """With the lower end in place of the share of wrong hits; None where no hit was verified."""
    if window is None:
        return None
    wrong, verified = known(window.get("wrong_hits")), known(window.get("verified_hits"))
    low = None if wrong is None or not verified else clopper_pearson(int(wrong), int(verified))[0]
    return {**window, WRONG.value: low}


def _untold(
    measure: Measure, limit: float | None, value: float | None, situation: Situation, objectives: Objectives
) -> Finding | None:
    """What there is to say without comparing; None where there is something to compare."""
    if limit is None:
        return _unmeasured(measure, limit, situation)
    window = situation.window
    requests = None if window is None else known(window.get("requests"))
    if window is None or requests is None:
        return _unmeasured(measure, limit, situation)
    if requests < objectives.least_requests:
        found = amount("requests", requests)
        why = f"{measure.text} cannot be told from {found} requests of the {situation.arm} arm"
        return Finding(measure.guardrail, Verdict.HOLD, f"{why}; it takes {objectives.least_requests:,}.")
    if value is None and measure.of is not None and known(window.get(measure.of)) == 0.0:
        what = measure.of.replace("_", " ")
        why = f"{measure.text} does not arise: there were no {what} in the {situation.arm} arm."
        return Finding(measure.guardrail, Verdict.ALLOW, why, False)
    return _unmeasured(measure, limit, situation) if value is None else None


def _unmeasured(measure: Measure, limit: float | None, situation: Situation) -> Finding:
    if limit is None:
        return Finding(measure.guardrail, Verdict.ALLOW, f"{measure.text} has no objective.")
    return Finding(measure.guardrail, Verdict.HOLD, f"{measure.text} is not known of the {situation.arm} arm.")


def _within(measure: Measure, value: float, limit: float, situation: Situation) -> Finding:
    was, most = amounts(measure.unit, value, limit)
    why = f"{measure.text} was {was} in the {situation.arm} arm, within the objective of {most}."
    return Finding(measure.guardrail, Verdict.ALLOW, why, False)


def _blamed(measure: Measure, what: str, times: float, situation: Situation, objectives: Objectives) -> Finding:
    """HOLD or ROLLBACK of what is the arm's fault. times: value over objective."""
    if situation.arm is Arm.CONTROL and situation.settings == situation.good:
        why = f"{what}; these are the settings that a rollback would restore."
        return Finding(measure.guardrail, Verdict.HOLD, why, True)
    requests = situation.window and known(situation.window.get("requests"))
    if times >= objectives.severe_ratio and requests and requests >= objectives.severe_requests:
        why = f"{what}; {objectives.severe_ratio:g} times an objective is rolled back at once."
        return Finding(measure.guardrail, Verdict.ROLLBACK, why, True)
    row, most = situation.memory.get(measure.guardrail, 0) + 1, objectives.rollback_after
    if row >= most:
        why = f"{what}, for {row} intervals in a row." if row > 1 else f"{what}."
        return Finding(measure.guardrail, Verdict.ROLLBACK, why, True)
    why = f"{what}. It is rolled back after {most} such intervals in a row; this is number {row}."
    return Finding(measure.guardrail, Verdict.HOLD, why, True)
