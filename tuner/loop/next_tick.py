"""What a tick writes: from where the loop stands and what it saw to the next interval, as one value. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from caches.knobs import KnobSettings
from caches.target import Arm, Plan, Split
from envs.interval import total_usd
from envs.reward import REWARD_GAIN, reward
from envs.traffic import REQUESTS
from tuner.loop.arms_now import Role, Wanted, wanted
from tuner.loop.closing import Closed, close, missed
from tuner.loop.deciding import Moment
from tuner.loop.limits import limits_memory
from tuner.loop.policies import LivePolicy
from tuner.loop.regime_now import RegimeNow, at_rest, held, regime_now, stand_in
from tuner.loop.standpoint import Rules, Seen
from tuner.loop.steering import CHALLENGER, CHAMPION, OUT, PROMOTED, SPLIT, Steered, steer
from tuner.records import ControlState, Decision, IntervalRecord, Mode, Phase, Tick, Verdict
from tuner.regime import Response
from tuner.rollout import RUNNING, Move, share_of

STATIC = "operator's static settings"
ROLES, WANTED = "roles", "wanted"  # names in ControlState.memory
OTHER = {Arm.CONTROL: Arm.TREATMENT, Arm.TREATMENT: Arm.CONTROL}


@dataclass(frozen=True)
class Weighed:
    """All that the next interval follows from."""

    before: ControlState
    seen: Seen
    rules: Rules
    closed: Closed
    found: Mapping[str, Wanted]
    steered: Steered
    regime: RegimeNow

    @property
    def challenged(self) -> Arm | None:
        """The arm that has the challenger's settings in the next interval."""
        return None if self.steered.running is None else self.steered.running.challenged(self.seen.index)


def next_tick(before: ControlState, seen: Seen, rules: Rules) -> Tick:
    """The interval that is over, closed and judged, and the next one, decided."""
    closed = close(before, seen.looked, rules.prices)
    moment = Moment(seen.index, seen.looked.now_seconds)
    regime = regime_now(before, seen, closed, rules.regime)
    found = {
        name: wanted(role, closed, seen.looked.keys, seen.signals, moment, (rules.knobs, rules.objectives))
        for name, role in _roles(before, seen, rules, regime).items()
    }
    if regime.response is Response.HOLD:
        found = {name: held(want) for name, want in found.items()}
    weighed = Weighed(before, seen, rules, closed, found, steer(before, seen, rules, closed, found), regime)
    plan = _plan(weighed)
    return Tick(
        state=_state(weighed, plan),
        intervals=(*_scored(weighed), *missed(before, seen.index, rules.interval_seconds)),
        decisions=tuple(_decisions(weighed, plan)),
        wishes=weighed.steered.wishes,
        experiments=weighed.steered.experiments,
        judgement=weighed.steered.judgement,
    )


# --- who acts where ---------------------------------------------------------------------------------------------------


def acting(before: ControlState, seen: Seen) -> LivePolicy | None:
    """The policy of all keys but the experiment's: the champion, or who was promoted and is not the champion in the
    registry yet. None where the operator's settings hold."""
    policy = seen.champion
    promoted = before.memory.get(PROMOTED)
    if isinstance(promoted, list) and seen.challenger is not None and seen.challenger.version == promoted[0]:
        policy = seen.challenger
    return None if policy is None or policy.version == before.memory.get(OUT) else policy


def _roles(before: ControlState, seen: Seen, rules: Rules, regime: RegimeNow) -> dict[str, Role]:
    """The policies that decide, each with the arm where it was last and what it remembers. They go on from the plan,
    not from what binds while a cache is on its way there."""
    challenged = None if seen.running is None else seen.running.challenged(before.index)
    home = Arm.CONTROL if challenged is None else OTHER[challenged]
    roles, champion = {}, acting(before, seen)
    if champion is not None and before.plan.split.share(home):
        shadowed = rules.mode is Mode.SHADOW
        settings = wanted_in(before).get(CHAMPION) if shadowed else None
        replaced = regime.response in (Response.WHATIF, Response.RETRAIN_REQUESTED) and seen.looked.keys.ghosts
        roles[CHAMPION] = Role(
            stand_in(champion) if replaced else champion,
            Arm.CONTROL,
            home,
            settings or before.plan.settings(home),
            rules.knobs.default(),
            _remembered(before, CHAMPION),
        )
    if seen.challenger is not None and before.phase in RUNNING and seen.challenger is not champion:
        arm = challenged or (Arm.TREATMENT if before.phase in SPLIT else Arm.CONTROL)
        settings = wanted_in(before).get(CHALLENGER) if before.phase is Phase.SHADOW else None
        roles[CHALLENGER] = Role(
            seen.challenger,
            Arm.TREATMENT,
            arm,
            settings or before.plan.settings(arm),
            settings or before.plan.settings(home),
            _remembered(before, CHALLENGER),
        )
    return roles


def _remembered(before: ControlState, role: str) -> Mapping[str, Any]:
    found = before.memory.get(ROLES)
    memory = found.get(role, {}) if isinstance(found, Mapping) else {}
    return memory if isinstance(memory, Mapping) else {}


def wanted_in(state: ControlState) -> dict[str, KnobSettings]:
    """By role, the settings that policies wanted for the state's interval, whether or not they are in force; of one
    that decides in shadow, where it would have brought them by now."""
    found = state.memory.get(WANTED)
    told = found.items() if isinstance(found, Mapping) else ()
    return {str(role): KnobSettings(**one) for role, one in told if isinstance(one, Mapping)}


# --- what follows -----------------------------------------------------------------------------------------------------


def _plan(weighed: Weighed) -> Plan:
    steered, static = weighed.steered, weighed.rules.knobs.default()
    if steered.killed:
        return Plan(Split(), static, static)
    share = share_of(steered.turn.place, weighed.rules.rollout)
    if steered.paused is not None and share == weighed.before.plan.split.treatment:
        return weighed.before.plan
    salt = "" if steered.running is None or not share else steered.running.design.salt
    control, challenged, challenger = _control(weighed), weighed.challenged, weighed.found.get(CHALLENGER)
    if challenged is None or challenger is None or weighed.before.phase not in SPLIT:
        return Plan(Split(salt, share), control, control)
    arms = {challenged: challenger.follows, OTHER[challenged]: control}
    return Plan(Split(salt, share), arms[Arm.CONTROL], arms[Arm.TREATMENT])


def _control(weighed: Weighed) -> KnobSettings:
    """Of the keys that are not the challenger's."""
    static, steered = weighed.rules.knobs.default(), weighed.steered
    if weighed.rules.mode is Mode.SHADOW:
        return static
    promoted = weighed.found.get(CHALLENGER) if steered.turn.place.phase is Phase.PROMOTED else None
    leads = promoted or weighed.found.get(CHAMPION)
    if leads is not None:
        return leads.role.settings if steered.paused is not None else leads.follows
    has_keys = weighed.before.plan.split.share(Arm.CONTROL) > 0.0
    return static if has_keys else weighed.before.plan.control


def _state(weighed: Weighed, plan: Plan) -> ControlState:
    before, seen, steered = weighed.before, weighed.seen, weighed.steered
    place, found = steered.turn.place, weighed.found
    moved = (place.phase, place.step) != (before.phase, before.step)
    memory: dict[str, Any] = {
        **steered.memory,
        **limits_memory(weighed.rules.knobs),
        **(at_rest(weighed.regime.memory) if steered.turn.move is Move.PROMOTE else weighed.regime.memory),
        ROLES: {name: want.memory for name, want in found.items()},
        WANTED: {name: asdict(want.follows) for name, want in found.items()},
    }
    return replace(
        before,
        index=seen.index,
        opened_seconds=seen.looked.now_seconds,
        opened=None,
        plan=plan,
        confirmed=False,
        phase=place.phase,
        step=place.step,
        phase_index=seen.index if moved else before.phase_index,
        experiment=None if steered.running is None else steered.running.record.id,
        paused=steered.paused,
        latched=(before.latched or steered.turn.reason) if place.phase is Phase.ROLLED_BACK else None,
        memory=memory,
    )


# --- what is told of it -----------------------------------------------------------------------------------------------


def _scored(weighed: Weighed) -> Iterator[IntervalRecord]:
    """With the reward, as in training: against the policy's reference on the same requests, by ghosts of all keys."""
    reference = weighed.seen.looked.keys.reference_usd
    for arm, record in weighed.closed.records.items():
        want = next((one for one in weighed.found.values() if one.role.seen_on is arm), None)
        scale = None if want is None else want.role.policy.bundle.scale
        if scale is None or arm not in weighed.closed.rows:
            yield record
            continue
        cost = np.array(float(total_usd(weighed.closed.rows[arm])) / record.share)
        score = float(reward(np.array(reference), cost, scale.interval_usd / REWARD_GAIN))
        yield replace(record, reward=score if np.isfinite(score) else None)


def _decisions(weighed: Weighed, plan: Plan) -> Iterator[Decision]:
    """One for each arm that has keys, and one for a challenger that decides in shadow."""
    for arm in Arm:
        in_shadow = arm is Arm.TREATMENT and weighed.steered.turn.place.phase is Phase.SHADOW
        if not plan.split.share(arm) and not in_shadow:
            continue
        acts = weighed.challenged is arm and weighed.before.phase in SPLIT
        want = weighed.found.get(CHALLENGER if in_shadow or acts else CHAMPION)
        if want is None and in_shadow:  # it has only just come
            continue
        yield _static(weighed, plan, arm) if want is None else _decision(weighed, plan, arm, want, in_shadow)


def _decision(weighed: Weighed, plan: Plan, arm: Arm, want: Wanted, in_shadow: bool) -> Decision:
    mode = Mode.SHADOW if in_shadow or weighed.rules.mode is Mode.SHADOW else _mode(want, weighed.steered)
    limited, seen = want.follows if mode is Mode.SHADOW else plan.settings(arm), weighed.seen
    return Decision(
        cache=weighed.before.cache,
        index=seen.index,
        arm=arm,
        at_seconds=seen.looked.now_seconds,
        policy=want.role.policy.name,
        version=want.role.policy.version,
        mode=mode,
        verdict=want.verdict,
        reasons=(*_why_held(weighed), *want.reasons, weighed.steered.turn.reason, *_troubles(seen)),
        proposed=want.proposal.proposed,
        limited=limited,
        predicted_usd_per_1000=_predicted(want, weighed),
    )


def _predicted(want: Wanted, weighed: Weighed) -> float | None:
    """USD that the policy's settings would have saved per 1,000 requests in the interval that is over, had all keys had
    them, against the control's. None where no ghost followed both."""
    looked, plan = weighed.seen.looked, weighed.before.plan
    role = CHALLENGER if want.role.arm is Arm.TREATMENT else CHAMPION
    arms = [arm for arm in Arm if plan.split.share(arm)]
    draft, requests = looked.drafts.get(role), float(looked.keys.traffic[REQUESTS])
    if draft is None or not requests > 0.0 or any(arm not in looked.reference_usd for arm in arms):
        return None
    return 1000.0 * (sum(looked.reference_usd[arm] for arm in arms) - draft) / requests


def _static(weighed: Weighed, plan: Plan, arm: Arm) -> Decision:
    """No policy decides."""
    is_default = plan.settings(arm) == weighed.rules.knobs.default()
    stays = f"The {STATIC} hold." if is_default else "Settings stay as they are."
    return Decision(
        cache=weighed.before.cache,
        index=weighed.seen.index,
        arm=arm,
        at_seconds=weighed.seen.looked.now_seconds,
        policy=STATIC,
        version=None,
        mode=Mode.HOLD,
        verdict=Verdict.ALLOW,
        reasons=(*_why_held(weighed), stays, weighed.steered.turn.reason, *_troubles(weighed.seen)),
        proposed=None,
        limited=plan.settings(arm),
    )


def _why_held(weighed: Weighed) -> tuple[str, ...]:
    return () if weighed.steered.paused is None else (f"{weighed.steered.paused}.",)


def _troubles(seen: Seen) -> Iterator[str]:
    """What a tick had to do without, though no guardrail minds."""
    if seen.looked.keys_problem is not None:
        yield f"Nothing is known of the keys: {seen.looked.keys_problem.rstrip('.')}."
    yield from (f"{told.rstrip('.')}." for told in seen.troubles)


def _mode(want: Wanted, steered: Steered) -> Mode:
    if steered.paused is not None:
        return Mode.HOLD
    return Mode.LIVE if want.role.arm is Arm.CONTROL else Mode.CANARY
