"""The rollout of a challenger as one table: from phase and cause to a move, with nothing left open.

    IDLE -> SHADOW -> CANARY (5 %) -> RAMP (20, 50, 100 %) -> PROMOTED,    and from anywhere -> ROLLED_BACK

Causes are the outcome of the analysis, the verdict of the guardrails, a challenger that is there, and what people wish.
Several may come in one interval: the most cautious move counts. ADVANCE goes on only through a gate: so many intervals
spent in the step, an outcome that is not WORSE, and BETTER where no control arm would be left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from caches.errors import InputError
from tuner.records import Mode, Outcome, Phase, Verdict, WishKind
from tuner.rollout_section import RolloutConfig


class Arrival(StrEnum):
    """CHALLENGER: there is a version to try that was not tried yet, or was released since; said in every interval for
    as long as it is so."""

    CHALLENGER = "challenger"


Cause = Outcome | Verdict | WishKind | Arrival


class Move(StrEnum):
    """In order of caution, the most cautious first. WAIT keeps ADVANCE from happening; a person may still PROMOTE."""

    ROLL_BACK = "roll_back"
    END = "end"
    PROMOTE = "promote"
    RELEASE = "release"
    BEGIN = "begin"
    WAIT = "wait"
    ADVANCE = "advance"
    STAY = "stay"


CAUTION = tuple(Move)
RUNNING = (Phase.SHADOW, Phase.CANARY, Phase.RAMP)

_S, _W, _A, _P, _E, _R, _B, _L = (
    *(Move.STAY, Move.WAIT, Move.ADVANCE, Move.PROMOTE),
    *(Move.END, Move.ROLL_BACK, Move.BEGIN, Move.RELEASE),
)
_COLUMNS = (Phase.IDLE, Phase.SHADOW, Phase.CANARY, Phase.RAMP, Phase.PROMOTED, Phase.ROLLED_BACK)
_ROWS: Mapping[Cause, tuple[Move, ...]] = {
    #                     IDLE SHADOW CANARY RAMP PROMOTED ROLLED_BACK
    Outcome.PENDING: (_S, _A, _A, _A, _S, _S),
    Outcome.BETTER: (_S, _A, _A, _A, _S, _S),
    Outcome.WORSE: (_S, _R, _R, _R, _S, _S),
    Outcome.INCONCLUSIVE: (_S, _E, _E, _E, _S, _S),
    Outcome.ERROR: (_S, _W, _W, _W, _S, _S),
    Verdict.ALLOW: (_S, _S, _S, _S, _S, _S),
    Verdict.HOLD: (_W, _W, _W, _W, _W, _W),
    Verdict.ROLLBACK: (_R, _R, _R, _R, _R, _S),
    Arrival.CHALLENGER: (_B, _S, _S, _S, _B, _B),
    WishKind.START: (_B, _S, _S, _S, _B, _S),
    WishKind.PAUSE: (_W, _W, _W, _W, _W, _W),
    WishKind.RESUME: (_S, _S, _S, _S, _S, _S),
    WishKind.PROMOTE: (_S, _P, _P, _P, _S, _S),
    WishKind.ROLL_BACK: (_R, _R, _R, _R, _R, _S),
    WishKind.RELEASE: (_S, _S, _S, _S, _S, _L),
    WishKind.STOP: (_S, _E, _E, _E, _S, _S),
    WishKind.KILL: (_S, _R, _R, _R, _S, _S),
}
TABLE: Mapping[tuple[Phase, Cause], Move] = MappingProxyType(
    {(phase, cause): move for cause, moves in _ROWS.items() for phase, move in zip(_COLUMNS, moves, strict=True)}
)


@dataclass(frozen=True)
class Place:
    """Where a rollout stands. step: of `RolloutConfig.shares`, 0 outside CANARY and RAMP."""

    phase: Phase = Phase.IDLE
    step: int = 0


@dataclass(frozen=True)
class Turn:
    """place: where it stands from now on. move: that led there. cause: the first that asked for it. reason: a
    sentence."""

    place: Place
    move: Move
    cause: Cause
    reason: str


def next_phase(place: Place, outcome: Outcome, causes: Sequence[Cause], intervals: int, config: RolloutConfig) -> Turn:
    """What one interval makes of a rollout.

    outcome: of the experiment so far, in SHADOW of what is predicted; PENDING without any. causes: besides it, those of
    this interval, PAUSE in each until RESUME. intervals: spent where it stands, since it came there; in a running
    experiment only those that say something of every arm. Called once per interval; it knows no time besides.
    """
    asked = {cause: TABLE[place.phase, cause] for cause in (*causes, outcome)}
    cause = min(asked, key=lambda one: CAUTION.index(asked[one]))
    move = asked[cause]
    if move is Move.ADVANCE:
        return _through_gate(place, outcome, intervals, config)
    if move is Move.BEGIN:
        return _begun(place, cause, intervals, config)
    return Turn(_TARGETS.get(move, place), move, cause, _REASONS[move].format(cause=cause.value.replace("_", " ")))


def share_of(place: Place, config: RolloutConfig) -> float:
    """The treatment arm's share of the keys. A promoted challenger is the champion: all keys are the control arm's.

    InputError where the settings have no such step, as when they were changed while an experiment ran.
    """
    if place.phase not in (Phase.CANARY, Phase.RAMP):
        return 0.0
    if not 0 <= place.step < len(config.shares):
        raise InputError(
            f"rollout.shares: got {len(config.shares)} steps, expected more than {place.step}: "
            "the experiment that runs is in that step; stop it first, or put the steps back"
        )
    return config.shares[place.step]


def mode_of(phase: Phase) -> Mode:
    """What the challenger may do."""
    modes = {Phase.SHADOW: Mode.SHADOW, Phase.CANARY: Mode.CANARY, Phase.RAMP: Mode.CANARY, Phase.PROMOTED: Mode.LIVE}
    return modes.get(phase, Mode.HOLD)


def least_intervals(place: Place, config: RolloutConfig) -> int:
    """That have to be spent here before it can go on by itself."""
    if place.phase is Phase.SHADOW:
        return config.shadow_intervals
    if place.phase in (Phase.CANARY, Phase.RAMP):
        return config.settle_intervals + config.step_intervals[place.step]
    return config.cool_down_intervals if place.phase is Phase.ROLLED_BACK else 0


def ahead(place: Place, config: RolloutConfig) -> Place:
    """The next place of a running experiment."""
    if place.phase is Phase.SHADOW:
        return Place(Phase.CANARY, 0)
    if place.step + 1 < len(config.shares):
        return Place(Phase.RAMP, place.step + 1)
    return Place(Phase.PROMOTED)


def _through_gate(place: Place, outcome: Outcome, intervals: int, config: RolloutConfig) -> Turn:
    there, least = ahead(place, config), least_intervals(place, config)
    if intervals < least:
        why = f"{intervals} of the {least} intervals of this step are over."
        return Turn(place, Move.WAIT, outcome, why)
    whole = there.phase is Phase.PROMOTED or share_of(there, config) >= 1.0
    if whole and outcome is not Outcome.BETTER:
        return Turn(place, Move.WAIT, outcome, f"All traffic takes the outcome better; so far it is {outcome}.")
    if there.phase is Phase.PROMOTED:
        return Turn(there, Move.PROMOTE, outcome, "It went through every step and is better: promoted.")
    share = f"{100.0 * share_of(there, config):.3g} %"
    why = f"After {intervals} intervals with the outcome {outcome} it goes on to {share} of the keys."
    return Turn(there, Move.ADVANCE, outcome, why)


def _begun(place: Place, cause: Cause, intervals: int, config: RolloutConfig) -> Turn:
    left = least_intervals(place, config) - intervals
    if left > 0:
        why = f"A new version waits until {left} more intervals have passed since the rollback."
        return Turn(place, Move.WAIT, cause, why)
    return Turn(Place(Phase.SHADOW), Move.BEGIN, cause, "A challenger is there: it decides in shadow.")


_TARGETS: Mapping[Move, Place] = {
    Move.ROLL_BACK: Place(Phase.ROLLED_BACK),
    Move.END: Place(Phase.IDLE),
    Move.PROMOTE: Place(Phase.PROMOTED),
    Move.RELEASE: Place(Phase.IDLE),
}
_REASONS: Mapping[Move, str] = {
    Move.ROLL_BACK: "Rolled back ({cause}); it stays so until it is released or a new version comes.",
    Move.END: "The experiment ends without a result ({cause}).",
    Move.PROMOTE: "Promoted by a person.",
    Move.RELEASE: "Released by a person.",
    Move.WAIT: "It waits ({cause}).",
    Move.STAY: "Nothing changes.",
}
