"""What the ledger keeps: intervals, decisions, wishes, and where the control loop stands. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from caches.knobs import KnobSettings
from caches.target import Arm, Counted, Histogram, Plan


class Verdict(StrEnum):
    """Of a guardrail, in order of severity."""

    ALLOW = "allow"
    HOLD = "hold"
    ROLLBACK = "rollback"


class Outcome(StrEnum):
    """Of an experiment so far. Nothing but BETTER promotes."""

    PENDING = "pending"
    BETTER = "better"
    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"


class Phase(StrEnum):
    """Of a rollout. A challenger decides but nothing is applied in SHADOW; it has a share of the keys in CANARY and
    growing ones in RAMP. ROLLED_BACK stays until a person releases it or a new version comes."""

    IDLE = "idle"
    SHADOW = "shadow"
    CANARY = "canary"
    RAMP = "ramp"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"


class Mode(StrEnum):
    """What a policy may do. SHADOW: decide, with nothing applied. CANARY: act on the treatment arm. LIVE: act on the
    control arm, which is all traffic but the experiment's. HOLD: nothing; settings stay."""

    SHADOW = "shadow"
    CANARY = "canary"
    LIVE = "live"
    HOLD = "hold"


class WishKind(StrEnum):
    """What a person can ask for. The daemon alone acts on it. START: an experiment, with what `arguments` say of it
    (challenger: a version). PAUSE: hold all settings until RESUME. PROMOTE, ROLL_BACK: end the experiment that way.
    RELEASE: forget a rollback. STOP: end the experiment without a result. KILL: the operator's static settings for all
    keys, and hold them until RESUME."""

    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    PROMOTE = "promote"
    ROLL_BACK = "roll_back"
    RELEASE = "release"
    STOP = "stop"
    KILL = "kill"


@dataclass(frozen=True)
class Wish:
    """id: None until the ledger has given one. by: who asked, for the audit. arguments: JSON. done_index: of the
    interval whose tick acted on it; None while it is open. answer: what came of it, as a sentence."""

    cache: str
    kind: WishKind
    by: str
    at_seconds: float
    reason: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)
    id: int | None = None
    done_index: int | None = None
    answer: str | None = None


@dataclass(frozen=True)
class IntervalRecord:
    """One arm over one interval that is over.

    window: by names of envs.interval.NAMES; None for what is not known. The whole is None where nothing can be said of
    the interval: after a restart of the cache, or a gap. reason: then why. settings: those that bound at its end, for
    the whole cache. share: of the keys, at its end. reference_usd: what a ghost cache at the control settings says that
    this arm's own requests would have cost, scaled to the arm; None without ghosts. reward: as in training.
    ttft_seconds, latency_seconds: of all requests of the interval.
    """

    cache: str
    index: int
    arm: Arm
    began_seconds: float
    ended_seconds: float
    settings: KnobSettings
    share: float
    window: Mapping[str, float | None] | None
    reason: str | None = None
    reference_usd: float | None = None
    reward: float | None = None
    ttft_seconds: Histogram | None = None
    latency_seconds: Histogram | None = None


@dataclass(frozen=True)
class Decision:
    """Of one arm, for the interval `index` that begins with it.

    policy: its name. version: in the registry; None for one that is not registered. mode: what it may do. proposed:
    what the policy asked for. limited: after ranges, largest steps and guardrails. applied: what the cache took, as
    read back; None until that is known, and always in SHADOW. reasons: sentences, the first is the one to show.
    predicted_usd_per_1000: what it should save per 1,000 requests against the control settings, where ghosts can tell.
    """

    cache: str
    index: int
    arm: Arm
    at_seconds: float
    policy: str
    version: int | None
    mode: Mode
    verdict: Verdict
    reasons: tuple[str, ...]
    proposed: KnobSettings | None
    limited: KnobSettings
    applied: KnobSettings | None = None
    predicted_usd_per_1000: float | None = None


@dataclass(frozen=True)
class Judgement:
    """What an analysis said at the end of an interval. numbers: as named in tuner/analysis.py, JSON."""

    cache: str
    experiment: str
    index: int
    outcome: Outcome
    reasons: tuple[str, ...]
    numbers: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ExperimentRecord:
    """id: as given. champion, challenger: versions in the registry; None for the operator's static settings. design:
    how arms are split and for how long, JSON. ended_seconds, outcome, answer: None while it runs."""

    id: str
    cache: str
    began_seconds: float
    champion: int | None
    challenger: int | None
    design: Mapping[str, object]
    ended_seconds: float | None = None
    outcome: Outcome | None = None
    answer: str | None = None


@dataclass(frozen=True)
class ControlState:
    """Where the control loop of a cache stands: all that a tick needs of the ticks before.

    index: of the interval that is open. opened_seconds: when it began, by the daemon's clock. opened: counters at that
    moment; None until the plan is confirmed, or where they could not be had. plan: what the cache is to do in it.
    confirmed: whether the cache has taken it. phase, step: of the rollout, with its place in the ramp. phase_index:
    when that began. paused, latched: why, None while it is not. memory: of policies, guardrails and regime, JSON, by
    their names.
    """

    cache: str
    index: int
    opened_seconds: float
    opened: Counted | None
    plan: Plan
    confirmed: bool
    phase: Phase = Phase.IDLE
    step: int = 0
    phase_index: int = 0
    experiment: str | None = None
    paused: str | None = None
    latched: str | None = None
    memory: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Tick:
    """Everything that one tick writes before it acts, in one transaction. wishes: those acted on, with answers.
    experiments: those begun or ended. judgement: of the interval that is over, where an experiment runs."""

    state: ControlState
    intervals: tuple[IntervalRecord, ...] = ()
    decisions: tuple[Decision, ...] = ()
    wishes: tuple[Wish, ...] = ()
    experiments: tuple[ExperimentRecord, ...] = ()
    judgement: Judgement | None = None
