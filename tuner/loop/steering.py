"""Where the rollout goes after an interval, and what became of people's wishes: steps 1 and 6 of a tick. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from tuner.analysis import Comparison
from tuner.experiment import ExperimentDesign
from tuner.loop.arms_now import Wanted
from tuner.loop.closing import Closed
from tuner.loop.experiments import Running, design_json, foreseen
from tuner.loop.policies import LivePolicy
from tuner.loop.standpoint import Rules, Seen
from tuner.records import (
    ControlState,
    ExperimentRecord,
    Judgement,
    Mode,
    Outcome,
    Phase,
    Verdict,
    Wish,
    WishKind,
)
from tuner.rollout import RUNNING, Arrival, Cause, Move, Place, Turn, next_phase, share_of

TRIED, SPENT, OUT, PROMOTED = "tried", "spent", "out", "promoted"  # names in ControlState.memory
CHAMPION, CHALLENGER = "champion", "challenger"  # roles
MOVING = (WishKind.PROMOTE, WishKind.ROLL_BACK, WishKind.RELEASE, WishKind.STOP)
SPLIT = (Phase.CANARY, Phase.RAMP)


@dataclass(frozen=True)
class Steered:
    """turn: of the rollout. running: the experiment of the next interval. paused: why settings are held; None while
    they are not. killed: whether the operator's static settings hold from now on. memory: what steering keeps."""

    turn: Turn
    running: Running | None
    paused: str | None
    killed: bool
    memory: dict[str, Any]
    wishes: tuple[Wish, ...]
    experiments: tuple[ExperimentRecord, ...]
    judgement: Judgement | None


def steer(before: ControlState, seen: Seen, rules: Rules, closed: Closed, found: Mapping[str, Wanted]) -> Steered:
    """found: what came of the roles CHAMPION and CHALLENGER, where they were played."""
    place = Place(before.phase, before.step)
    comparison = _compared(before, seen, closed)
    paused, killed = _held(before.paused, seen.wishes)
    started = _started(seen)
    causes = _causes(before, seen, found, started is not None, paused)
    spent = _spent(before, closed)
    turn = next_phase(place, comparison.outcome, causes, spent, rules.rollout)
    turn = _within_mode(turn, place, rules, comparison.outcome)
    memory = _memory(before, seen, turn, spent, found)
    running, records = _experiment(before, seen, rules, turn, comparison, started)
    return Steered(
        turn,
        running,
        paused,
        killed,
        memory,
        tuple(_answered(one, before, seen, turn) for one in seen.wishes),
        records,
        _judgement(before, seen, turn, comparison),
    )


def _compared(before: ControlState, seen: Seen, closed: Closed) -> Comparison:
    if seen.running is None:
        return Comparison(Outcome.PENDING, ("No experiment runs.",), {})
    if before.phase is Phase.SHADOW:
        return foreseen(seen.predicted)
    if before.plan.split.treatment >= 1.0:
        return Comparison(Outcome.BETTER, ("It was better before it got all keys.",), {})
    return seen.running.compared([*seen.history, *closed.records.values()])


def _held(paused: str | None, wishes: Sequence[Wish]) -> tuple[str | None, bool]:
    """Why settings are held after these wishes, and whether they are the operator's."""
    killed = False
    for wish in wishes:
        why = f"{wish.by}: {wish.reason}" if wish.reason else wish.by
        if wish.kind is WishKind.PAUSE:
            paused = f"Paused by {why}"
        elif wish.kind is WishKind.KILL:
            paused, killed = f"The operator's settings were restored by {why}", True
        elif wish.kind is WishKind.RESUME:
            paused, killed = None, False
    return paused, killed


def _started(seen: Seen) -> Wish | None:
    """The wish for an experiment that can begin: its challenger is the registry's."""
    for wish in seen.wishes:
        if wish.kind is WishKind.START and _refusal(wish, seen) is None:
            return wish
    return None


def _refusal(wish: Wish, seen: Seen) -> str | None:
    version, there = wish.arguments.get("challenger"), seen.challenger
    if seen.running is not None:
        return f"Experiment {seen.running.record.id} runs; stop it first."
    if there is None:
        return "There is no challenger that fits this cache; give a version the alias first."
    if version is not None and version != there.version:
        return f"The challenger is version {there.version}, not {version}; give version {version} the alias first."
    try:
        if _designed(ExperimentDesign(), wish).swap_every_intervals is not None:
            return "Arms that swap are halves, and a challenger begins with a small share."
    except (ValidationError, TypeError, ValueError) as error:
        return f"Its design cannot be used: {str(error).splitlines()[0]}."
    return None


def _causes(
    before: ControlState, seen: Seen, found: Mapping[str, Wanted], started: bool, paused: str | None
) -> list[Cause]:
    causes: list[Cause] = [
        wish.kind for wish in seen.wishes if wish.kind is not WishKind.START and _is_meant(wish, seen)
    ]
    if paused is not None:
        causes.append(WishKind.PAUSE)
    for role, want in found.items():
        if before.phase is Phase.SHADOW and role == CHALLENGER and want.verdict is Verdict.ROLLBACK:
            continue  # nothing of it is in force: whatever is broken, it was not the challenger
        causes.append(want.verdict)
    if _overtaken(seen) is not None:
        causes.append(WishKind.STOP)
    elif paused is None and seen.challenger is not None and _is_new(seen.challenger, before, started):
        causes.append(Arrival.CHALLENGER)
    return causes


def _is_meant(wish: Wish, seen: Seen) -> bool:
    """Not where it names another experiment than the one that runs: it came too late."""
    named = wish.arguments.get("experiment")
    return named is None or (seen.running is not None and seen.running.record.id == named)


def _is_new(challenger: LivePolicy, before: ControlState, started: bool) -> bool:
    return started or challenger.version != before.memory.get(TRIED)


def _overtaken(seen: Seen) -> str | None:
    """Why a running experiment is of no use any more; None while it is."""
    if seen.running is None:
        return None
    record = seen.running.record
    challenger = None if seen.challenger is None else seen.challenger.version
    champion = _champion(seen)
    if champion == record.challenger:
        return f"Version {record.challenger} was made the champion elsewhere."
    if challenger != record.challenger:
        return f"The challenger is {_version(challenger)} by now, no longer {_version(record.challenger)}."
    if champion != record.champion:
        return f"The champion is {_version(champion)} by now, no longer {_version(record.champion)}."
    return None


def _champion(seen: Seen) -> int | None:
    """Its version in the registry."""
    return None if seen.champion is None else seen.champion.version


def _version(version: int | None) -> str:
    return "none" if version is None else f"version {version}"


def _spent(before: ControlState, closed: Closed) -> int:
    """Intervals where the rollout stands, the one that is over included; while an experiment runs, of those that say
    something of every arm."""
    told = all(record.window is not None for record in closed.records.values())
    counts = before.phase not in RUNNING or told
    return int(str(before.memory.get(SPENT, 0))) + counts


def _within_mode(turn: Turn, place: Place, rules: Rules, outcome: Outcome) -> Turn:
    """The operator's mode bounds how far a rollout goes by itself. A person may promote in any."""
    by_itself = turn.cause is not WishKind.PROMOTE
    share = share_of(turn.place, rules.rollout)
    if rules.mode is Mode.SHADOW and (share > 0.0 or (turn.move is Move.PROMOTE and by_itself)):
        return Turn(place, Move.WAIT, outcome, "The mode is shadow: nothing is applied. Set mode to canary to go on.")
    all_keys = turn.place.phase is Phase.PROMOTED or share >= 1.0
    if rules.mode is Mode.CANARY and turn.move in (Move.ADVANCE, Move.PROMOTE) and all_keys and by_itself:
        return Turn(place, Move.WAIT, outcome, "The mode is canary: it takes a person to promote the challenger.")
    return turn


def _memory(before: ControlState, seen: Seen, turn: Turn, spent: int, found: Mapping[str, Wanted]) -> dict[str, Any]:
    place = Place(before.phase, before.step)
    kept: dict[str, Any] = {name: before.memory[name] for name in (TRIED, OUT, PROMOTED) if name in before.memory}
    if PROMOTED in kept and _champion(seen) != kept[PROMOTED][1]:
        del kept[PROMOTED]  # the registry says so too, or somebody chose another: from now on it alone counts
    kept[SPENT] = spent if turn.place == place and turn.move is not Move.BEGIN else 0
    if turn.move is Move.BEGIN and seen.challenger is not None:
        kept[TRIED] = seen.challenger.version
    if turn.move is Move.RELEASE:
        kept.pop(TRIED, None)
        kept.pop(OUT, None)
    if turn.move is Move.PROMOTE and seen.challenger is not None:
        kept[PROMOTED] = [seen.challenger.version, _champion(seen)]
    champion = found.get(CHAMPION)
    if turn.move is Move.ROLL_BACK and champion is not None and _to_blame(champion, before, turn):
        kept[OUT] = champion.role.policy.version
    return kept


def _to_blame(champion: Wanted, before: ControlState, turn: Turn) -> bool:
    """Whether it is the champion that is rolled back."""
    by_wish = turn.cause is WishKind.ROLL_BACK and before.phase not in RUNNING
    return by_wish or champion.verdict is Verdict.ROLLBACK


def _experiment(
    before: ControlState, seen: Seen, rules: Rules, turn: Turn, comparison: Comparison, started: Wish | None
) -> tuple[Running | None, tuple[ExperimentRecord, ...]]:
    now, running = seen.looked.now_seconds, seen.running
    if turn.move is Move.BEGIN and seen.challenger is not None:
        begun = _begun(before.cache, seen, rules, started)
        return begun, (begun.record,)
    if running is None:
        return None, ()
    if turn.place.phase not in RUNNING:
        outcome = comparison.outcome if turn.move is not Move.ROLL_BACK else Outcome.WORSE
        return None, (running.ended(now, outcome, _overtaken(seen) or turn.reason),)
    if running.began_index is None and turn.place.phase in SPLIT:
        split = running.split_from(seen.index)
        return split, (split.record,)
    return running, ()


def _begun(cache: str, seen: Seen, rules: Rules, started: Wish | None) -> Running:
    assert seen.challenger is not None
    challenger, champion = seen.challenger.version, _champion(seen)
    name = f"{cache}-{seen.index}-v{challenger}"
    design = _designed(rules.designed(name), started).model_copy(update={"share": rules.rollout.shares[0]})
    record = ExperimentRecord(name, cache, seen.looked.now_seconds, champion, challenger, design_json(design, None))
    return Running(record, design, None)


def _designed(design: ExperimentDesign, started: Wish | None) -> ExperimentDesign:
    """With what a wish says of it. Raises ValidationError."""
    asked = None if started is None else started.arguments.get("design")
    return design if not asked else ExperimentDesign.model_validate(design.model_dump() | dict(asked))  # type: ignore[call-overload]


def _judgement(before: ControlState, seen: Seen, turn: Turn, comparison: Comparison) -> Judgement | None:
    if seen.running is None:
        return None
    told = (turn.reason, *comparison.reasons)
    return Judgement(before.cache, seen.running.record.id, before.index, comparison.outcome, told, comparison.numbers)


def _answered(wish: Wish, before: ControlState, seen: Seen, turn: Turn) -> Wish:
    return replace(wish, done_index=before.index, answer=_answer(wish, before, seen, turn))


def _answer(wish: Wish, before: ControlState, seen: Seen, turn: Turn) -> str:
    if wish.kind is WishKind.START:
        return _refusal(wish, seen) or turn.reason
    if wish.kind in MOVING and not _is_meant(wish, seen):
        return f"It changes nothing: experiment {wish.arguments['experiment']} does not run."
    if wish.kind in MOVING and turn.cause is not wish.kind:
        return f"It changes nothing: the rollout is in the phase {before.phase.value.replace('_', ' ')}."
    return {
        WishKind.PAUSE: "All settings are held until somebody resumes.",
        WishKind.RESUME: "Policies decide again.",
        WishKind.KILL: "The operator's static settings hold for all keys until somebody resumes.",
    }.get(wish.kind, turn.reason)
