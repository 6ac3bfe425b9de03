"""Both arms when an interval is over: what a policy wants for each, and what the guardrails say of it. Pure but for the
policies, which carry nothing that their memory does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from caches.knobs import KnobSettings, KnobSpace
from caches.target import Arm
from tuner.guardrails import check, reasons, remembered, worst
from tuner.guards.objectives import Objectives
from tuner.guards.situation import Situation
from tuner.loop.closing import Closed
from tuner.loop.deciding import ArmNow, Moment, Proposal, propose
from tuner.loop.policies import LivePolicy
from tuner.loop.sight import KeysSeen
from tuner.records import Verdict
from tuner.signals import Signal

VERDICTS = "verdicts"  # in a role's memory, of each guardrail: for who watches; nothing is decided by it


@dataclass(frozen=True)
class Role:
    """A policy for an arm. settings: in force there, or, of one that decides in shadow, what would be. good: what a
    rollback restores. memory: by "policy" and "guardrails", of the interval before."""

    policy: LivePolicy
    arm: Arm
    seen_on: Arm
    settings: KnobSettings
    good: KnobSettings
    memory: Mapping[str, Any]


@dataclass(frozen=True)
class Wanted:
    """What came of a role. follows: the settings that are to be in force, by the verdict."""

    role: Role
    proposal: Proposal
    verdict: Verdict
    reasons: tuple[str, ...]
    follows: KnobSettings
    memory: dict[str, Any]


def wanted(
    role: Role,
    closed: Closed,
    keys: KeysSeen,
    signals: Mapping[str, Signal],
    moment: Moment,
    bounds: tuple[KnobSpace, Objectives],
) -> Wanted:
    """bounds: the operator's ranges and objectives."""
    knobs, objectives = bounds
    record = closed.records.get(role.seen_on)
    share = 1.0 if record is None else record.share
    arm = ArmNow(closed.rows.get(role.seen_on), share, role.settings, role.memory.get("policy", {}))
    proposal = propose(role.policy, arm, keys, moment, knobs)
    control = closed.records.get(Arm.CONTROL)
    situation = Situation(
        arm=role.arm,
        window=None if record is None else record.window,
        control=None if control is None else control.window,
        share=share,
        settings=role.settings,
        proposed=None if proposal.proposed is None else proposal.limited,
        good=role.good,
        knobs=role.policy.bundle.knob_space,
        now_seconds=moment.now_seconds,
        signals=signals,
        observes=proposal.observes,
        observation=proposal.observation,
        training=proposal.training,
        memory=role.memory.get("guardrails", {}),
    )
    findings = check(situation, objectives)
    verdict, told = worst(findings), reasons(findings)
    if proposal.trouble is not None:
        told = (proposal.trouble, *told)
    follows = {Verdict.ALLOW: proposal.limited, Verdict.HOLD: role.settings, Verdict.ROLLBACK: role.good}[verdict]
    memory = {
        "policy": proposal.memory,
        "guardrails": remembered(situation.memory, findings),
        VERDICTS: {finding.guardrail: finding.verdict.value for finding in findings},
    }
    return Wanted(role, proposal, verdict, told, follows, memory)
