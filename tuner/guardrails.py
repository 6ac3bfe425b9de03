"""Guardrails: whether settings may change, must stay, or must go back. Pure functions of a situation.

`check` asks all of them, always and in the same order; the most severe verdict counts (`worst`). What cannot be known
holds the settings: it never counts as in order, and never as zero. What has to persist over intervals is a small
memory, JSON, which the caller keeps for each arm: `remembered` makes the next from the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from caches.knobs import KNOB_NAMES
from tuner.guards.freeze import frozen_until
from tuner.guards.objective_guardrails import errors, memory, p99_latency, p99_ttft, staleness, vram, wrong_hits
from tuner.guards.objectives import Objectives
from tuner.guards.situation import Finding, Memory, Situation, known
from tuner.guards.texts import amount, amounts
from tuner.records import Verdict

SEVERITY = (Verdict.ALLOW, Verdict.HOLD, Verdict.ROLLBACK)
ROUNDING = 1e-9  # of a knob's range
SHOWN = 3  # names of missing signals in a sentence


def traffic(situation: Situation, objectives: Objectives) -> Finding:
    """Minimum traffic: from less nothing is concluded."""
    requests = None if situation.window is None else known(situation.window.get("requests"))
    least, arm = f"{objectives.least_requests:,}", situation.arm
    if requests is None:
        return Finding("traffic", Verdict.HOLD, f"How many requests the {arm} arm had is not known.")
    found = amount("requests", requests)
    if requests < objectives.least_requests:
        return Finding("traffic", Verdict.HOLD, f"The {arm} arm had {found} requests; it takes {least}.")
    return Finding("traffic", Verdict.ALLOW, f"The {arm} arm had {found} requests, at least the {least} that it takes.")


def signals(situation: Situation, objectives: Objectives) -> Finding:
    """Missing signals, of those that are measured and of those that the policy learned with."""
    without = [name for name in objectives.required_signals if situation.value(name) is None]
    if without:
        return Finding("signals", Verdict.HOLD, f"Without {_listed(situation, without)} nothing is changed.")
    gone = [name for name, signal in situation.signals.items() if known(signal.value) is None]
    if len(gone) > objectives.missing_share * len(situation.signals):
        return _blind(f"{len(gone)} of {len(situation.signals)} signals are missing", situation, gone, objectives)
    if situation.observes and situation.observation is not None and situation.training is not None:
        learned = int((situation.training.known >= 0.99).sum())
        unseen = situation.training.missing(situation.observation)
        if len(unseen) > objectives.missing_share * learned:
            what = f"the policy does not see {len(unseen)} of the {learned} signals that it learned with"
            return _blind(what, situation, list(unseen), objectives)
    return Finding("signals", Verdict.ALLOW, f"{len(gone)} of {len(situation.signals)} signals are missing.")


def distribution(situation: Situation, objectives: Objectives) -> Finding:
    """Observations unlike those that the policy was trained on: there nobody knows what it does."""
    name, seen, training = "distribution", situation.observation, situation.training
    if not situation.observes:
        return Finding(name, Verdict.ALLOW, "The policy does not decide by an observation.")
    if seen is None or not np.isfinite(seen).all():
        return Finding(name, Verdict.HOLD, "There is no observation to decide by.")
    if training is None:
        return Finding(name, Verdict.HOLD, "The policy's bundle does not say what it was trained on.")
    far, most = training.distance(seen), objectives.outside_deviations
    if not far.deviations:
        return Finding(name, Verdict.ALLOW, "The observation lies in the range of the policy's training.")
    beyond, limit = amounts("deviations", far.deviations, most)
    what = f"The observed {far.name} of {far.value:.3g} lies {beyond} deviations outside the {far.low:.3g} to "
    what += f"{far.high:.3g} of the policy's training"
    if far.deviations > most:
        return Finding(name, Verdict.HOLD, f"{what}; at most {limit} are allowed.")
    return Finding(name, Verdict.ALLOW, f"{what}, no more than the {limit} that are allowed.")


def rate_of_change(situation: Situation, _: Objectives) -> Finding:
    """Ranges and largest steps hold by construction; this looks at what came out of it."""
    name, proposed, knobs = "rate_of_change", situation.proposed, situation.knobs
    if proposed is None:
        return Finding(name, Verdict.HOLD, "The policy proposed nothing.")
    steps = np.abs(knobs.positions(proposed) - knobs.positions(situation.settings))
    for knob, step in zip(knobs.knobs, steps, strict=True):
        value = getattr(proposed, knob.name)
        if not knob.low <= value <= knob.high:
            why = f"{knob.name} would be {value:g}, outside its range of {knob.low:g} to {knob.high:g}."
            return Finding(name, Verdict.HOLD, why)
        if step > knob.max_step + ROUNDING:
            found, most = amounts("share", float(step), knob.max_step)
            why = f"{knob.name} would change by {found} of its range; at most {most} are allowed in an interval."
            return Finding(name, Verdict.HOLD, why)
    moved = [name for name, step in zip(KNOB_NAMES, steps, strict=True) if step > ROUNDING]
    if proposed.eviction_policy != situation.settings.eviction_policy:
        moved.append("the eviction policy")
    what = f"Within the largest steps change: {', '.join(moved)}." if moved else "No knob would change."
    return Finding(name, Verdict.ALLOW, what)


def freeze(situation: Situation, objectives: Objectives) -> Finding:
    end = frozen_until(objectives.windows, situation.now_seconds)
    if end is None:
        return Finding("freeze", Verdict.ALLOW, "No freeze window holds.")
    return Finding("freeze", Verdict.HOLD, f"The operator has frozen the settings until {end:%a %Y-%m-%d %H:%M %Z}.")


GUARDRAILS: tuple[Callable[[Situation, Objectives], Finding], ...] = (
    *(p99_ttft, p99_latency, errors, staleness, wrong_hits, memory, vram),
    *(traffic, signals, distribution, rate_of_change, freeze),
)


def check(situation: Situation, objectives: Objectives) -> list[Finding]:
    """What each guardrail says, in the order of GUARDRAILS. objectives: `Objectives.within` the constraints."""
    return [guardrail(situation, objectives) for guardrail in GUARDRAILS]


def worst(findings: Iterable[Finding]) -> Verdict:
    """The most severe; HOLD where nothing was looked at."""
    return max((finding.verdict for finding in findings), key=SEVERITY.index, default=Verdict.HOLD)


def reasons(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Of all that do not allow it, the most severe first; else one that says that all do."""
    against = [finding for finding in findings if finding.verdict is not Verdict.ALLOW]
    against.sort(key=lambda finding: -SEVERITY.index(finding.verdict))
    return tuple(finding.reason for finding in against) or ("No guardrail has anything against it.",)


def remembered(memory: Memory, findings: Iterable[Finding]) -> dict[str, int]:
    """For how many intervals in a row each objective was broken. One in which that could not be told does not count,
    and does not break the row."""
    after = dict(memory)
    for finding in findings:
        if finding.broken is True:
            after[finding.guardrail] = after.get(finding.guardrail, 0) + 1
        elif finding.broken is False:
            after.pop(finding.guardrail, None)
    return after


def _blind(what: str, situation: Situation, gone: list[str], objectives: Objectives) -> Finding:
    most = amount("share", objectives.missing_share)
    why = f"{what[0].upper()}{what[1:]}, more than {most}: {_listed(situation, gone)}."
    return Finding("signals", Verdict.HOLD, why)


def _listed(situation: Situation, gone: list[str]) -> str:
    told = []
    for name in gone[:SHOWN]:
        signal = situation.signals.get(name)
        told.append(name if signal is None or not signal.missing else f"{name} ({signal.missing.rstrip('.')})")
    more = f" and {len(gone) - SHOWN} more" if len(gone) > SHOWN else ""
    return ", ".join(told) + more
