"""The control loop of one cache. `tick` may be called at any time and any number of times: what it finds in the ledger
says what is left to do, so a crash between any two steps is resolved by the next call, of this daemon or another.

1. Wishes of people are read from the ledger.                        tuner/ledger.py
2. The interval that is over is closed, for both arms.               tuner/loop/closing.py
3. Guardrails judge it.                                              tuner/guardrails.py
4. It is scored against the reference.                               tuner/loop/next_tick.py
5. The rollout goes on, waits or goes back.                          tuner/loop/steering.py, tuner/rollout.py
6. Policies decide, within limits.                                   tuner/loop/deciding.py, tuner/loop/arms_now.py
7. All of that is written down, in one transaction.                  tuner/ledger.py
8. The cache is told, and what it took is written down.              tuner/control.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from caches.target import Arm, BalancedSalt, CacheUnavailable, Fenced, LiveCache, Plan, Split
from tuner.ledger import DecisionFilter, Lease, LeaseLost, Ledger
from tuner.loop.closing import Looked, believed
from tuner.loop.designing import begun_in, filled, seed_of, wants_salt
from tuner.loop.experiments import Running
from tuner.loop.limits import limits_memory
from tuner.loop.next_tick import next_tick
from tuner.loop.policies import Policies
from tuner.loop.standpoint import Rules, Seen
from tuner.loop.steering import PROMOTED
from tuner.records import ControlState, IntervalRecord, Mode, Phase, Tick, WishKind
from tuner.signals import Signal

UNTOUCHED = 0  # fence of a cache that no daemon has acted on since it began
WHOLE = ("utilisation", "vram_ratio", "mean_wait_seconds")  # signals that are the same for both arms: of the backends
MOST_PREDICTED = 500  # shadow intervals that are looked back at


class Watch(Protocol):
    """What is measured beside the cache's own counters. Neither call raises for what it cannot have."""

    def signals(self, now_seconds: float) -> Mapping[str, Signal]:
        """As of now."""

    def keys(self, state: ControlState, now_seconds: float) -> Looked:
        """What the key stream says of the state's interval, which ends now: `keys`, `reference_usd`, `drafts` and
        `past` of Looked."""


class Did(StrEnum):
    """What a call of `tick` came to. STANDBY: another daemon is the active one. NOTHING: the interval is open and in
    order. DECIDED: it went on to the next one. APPLIED: what was decided before has been applied. UNREACHED: the cache
    could not be told; the next call tries again."""

    STANDBY = "standby"
    NOTHING = "nothing"
    DECIDED = "decided"
    APPLIED = "applied"
    UNREACHED = "unreached"


@dataclass(frozen=True)
class Ticked:
    """state: as it stands now; None for a daemon in standby. problem: a sentence, None where all went well."""

    did: Did
    state: ControlState | None = None
    problem: str | None = None


class ControlLoop:
    """holder: the name of this daemon, one of a kind. lease_seconds: how long it is the active one without a word."""

    def __init__(
        self,
        cache: LiveCache,
        ledger: Ledger,
        policies: Policies,
        watch: Watch,
        rules: Rules,
        holder: str,
        lease_seconds: float,
    ) -> None:
        self._cache, self._ledger, self._policies, self._watch = cache, ledger, policies, watch
        self._rules, self._holder, self._lease_seconds = rules, holder, lease_seconds
        self._lease: Lease | None = None
        self._told_of: str | None = None  # the experiment whose intervals are in `_told`
        self._told: list[IntervalRecord] = []

    def tick(self, now_seconds: float) -> Ticked:
        """Raises LedgerUnavailable; then nothing was decided, and the cache stays as it is."""
        lease = self._held(now_seconds)
        if lease is None:
            return Ticked(Did.STANDBY)
        try:
            state = self._ledger.state(self._cache.name)
            index = int(now_seconds // self._rules.interval_seconds)
            if state is None:
                return self._begin(lease, index, now_seconds)
            if index > state.index:
                return self._go_on(lease, state, index, now_seconds)
            return self._see_to(lease, state, now_seconds)
        except LeaseLost as error:
            self._lease = None
            return Ticked(Did.STANDBY, problem=str(error))
        except Fenced as error:  # by somebody without the ledger: the next lease has a higher fence
            self._lease = None
            self._ledger.drop_lease(lease)
            return Ticked(Did.STANDBY, problem=str(error))

    def _held(self, now: float) -> Lease | None:
        """Renewed when half of it is over: that is a write, and whoever reads the ledger looks again after each."""
        lease, seconds = self._lease, self._lease_seconds
        if lease is None or not lease.until_seconds - seconds <= now < lease.until_seconds - seconds / 2.0:
            lease = self._lease = self._ledger.take_lease(self._cache.name, self._holder, now, seconds)
        return lease

    def stop(self) -> None:
        """Lets another daemon take over at once. Settings stay as they are."""
        self._lease, lease = None, self._ledger.lease(self._cache.name)
        if lease is not None and lease.holder == self._holder:
            self._ledger.drop_lease(lease)

    def forget(self, before_seconds: float) -> None:
        """Housekeeping between two ticks: removes some of what is older and no experiment needs."""
        self._ledger.prune(before_seconds)

    def _begin(self, lease: Lease, index: int, now: float) -> Ticked:
        static = self._rules.knobs.default()
        plan = Plan(Split(), static, static)
        state = ControlState(self._cache.name, index, now, None, plan, False, memory=limits_memory(self._rules.knobs))
        self._ledger.commit(lease, Tick(state), now)
        return self._settle(lease, state, now, Did.DECIDED)

    def _go_on(self, lease: Lease, state: ControlState, index: int, now: float) -> Ticked:
        seen = self._see(state, index, now)
        tick = self._designed(next_tick(state, seen, self._rules), seen)
        self._ledger.commit(lease, tick, now)
        self._pass_on(tick.state)
        return self._settle(lease, tick.state, now, Did.DECIDED)

    def _designed(self, tick: Tick, seen: Seen) -> Tick:
        """With the design of an experiment that begins, which past traffic has a say in."""
        begun = begun_in(tick)
        if begun is None:
            return tick
        shares = [share for share in self._rules.rollout.shares if share < 1.0]
        salt: BalancedSalt | str | None = None
        if wants_salt(begun):
            try:
                salt = self._cache.balanced_salt(seed_of(begun), shares)
            except CacheUnavailable as error:  # one that is not balanced is sound as well
                salt = str(error)
        record = filled(begun, seen.looked.past, salt, shares)
        return replace(tick, experiments=tuple(record if one is begun else one for one in tick.experiments))

    def _see(self, state: ControlState, index: int, now: float) -> Seen:
        signals = self._watch.signals(now)
        values = {name: one.value for name in WHOLE if (one := signals.get(name)) and one.value is not None}
        keys = self._watch.keys(state, now)
        looked = replace(keys, now_seconds=now, signals=values)
        with suppress(CacheUnavailable):  # the interval's record says so
            looked = replace(looked, counted=self._cache.counters(), standing=self._cache.standing())
        looked = believed(state, looked)
        running = self._running(state)
        return Seen(
            index,
            looked,
            self._policies.champion(),
            self._policies.challenger(),
            self._ledger.open_wishes(state.cache),
            running,
            self._history(state, running),
            self._predicted(state, running),
            signals,
            tuple(self._policies.problems().values()),
        )

    def _running(self, state: ControlState) -> Running | None:
        record = None if state.experiment is None else self._ledger.experiment(state.experiment)
        return None if record is None else Running.of(record)

    def _history(self, state: ControlState, running: Running | None) -> Sequence[IntervalRecord]:
        """What is recorded stays as it is, so each interval is read once."""
        if running is None or running.began_index is None:
            return ()
        if self._told_of != running.record.id:
            self._told_of, self._told = running.record.id, []
        first = self._told[-1].index + 1 if self._told else running.began_index
        self._told += self._ledger.intervals(state.cache, first, state.index - 1)
        return self._told

    def _predicted(self, state: ControlState, running: Running | None) -> Sequence[float]:
        """Newest first."""
        if running is None or state.phase is not Phase.SHADOW:
            return ()
        which = DecisionFilter(arm=Arm.TREATMENT, limit=MOST_PREDICTED)
        found = [one for one in self._ledger.decisions(state.cache, which) if one.index >= state.phase_index]
        return [one.predicted_usd_per_1000 for one in found if one.predicted_usd_per_1000 is not None]

    def _pass_on(self, state: ControlState) -> None:
        """Until the registry says so too, whoever was promoted is to be made the champion there."""
        promoted, champion = state.memory.get(PROMOTED), self._policies.champion()
        if isinstance(promoted, list) and (champion is None or champion.version != promoted[0]):
            self._policies.promote(promoted[0], promoted[1])

    def _see_to(self, lease: Lease, state: ControlState, now: float) -> Ticked:
        """Inside an interval: what is urgent, what the cache has not taken yet, what it has lost."""
        plan = self._urgent(state)
        if plan is not None:
            state = replace(state, plan=plan, confirmed=False, opened=None)
            self._ledger.amend(lease, state, now)
        if not state.confirmed:
            return self._settle(lease, state, now, Did.APPLIED)
        try:
            if self._holds(state):
                return Ticked(Did.NOTHING, state)
        except CacheUnavailable as error:
            return Ticked(Did.UNREACHED, state, str(error))
        state = replace(state, confirmed=False, opened=None)
        self._ledger.amend(lease, state, now)
        return self._settle(lease, state, now, Did.APPLIED)

    def _urgent(self, state: ControlState) -> Plan | None:
        """The plan that a wish asks for at once; its answer, and what follows from it, come with the next interval."""
        kinds = {wish.kind for wish in self._ledger.open_wishes(state.cache)}
        static, plan = self._rules.knobs.default(), None
        if WishKind.KILL in kinds:
            plan = Plan(Split(), static, static)
        elif WishKind.ROLL_BACK in kinds and state.plan.split.treatment > 0.0:
            plan = Plan(Split(), state.plan.control, state.plan.control)
        return None if plan == state.plan else plan

    def _holds(self, state: ControlState) -> bool:
        """Whether the cache still goes by the plan: it may have been started anew, or changed by hand."""
        standing = self._cache.standing()
        began = None if state.opened is None else state.opened.began_seconds
        anew = began is not None and standing.began_seconds != began
        left_alone = self._only_watches(state) and standing.fence == UNTOUCHED
        return not anew and (standing.plan == state.plan or left_alone)

    def _only_watches(self, state: ControlState) -> bool:
        """In shadow nothing is applied to a cache that no daemon has touched. One that did may have left other settings
        than the operator's behind, and somebody may want them back."""
        return self._rules.mode is Mode.SHADOW and not state.plan.split.treatment

    def _settle(self, lease: Lease, state: ControlState, now: float, did: Did) -> Ticked:
        """Tells the cache, and writes down what it took."""
        try:
            if self._only_watches(state) and (standing := self._cache.standing()).fence == UNTOUCHED:
                taken = state.plan
            else:
                standing = self._cache.apply(state.plan, lease.fence)
                taken = standing.plan
            counted = self._cache.counters()
        except CacheUnavailable as error:
            return Ticked(Did.UNREACHED, state, str(error))
        if taken != state.plan:  # its ranges are others by now: what it takes is what counts
            state = replace(state, plan=taken)
            self._ledger.amend(lease, state, now)
        self._ledger.confirm(lease, state.index, standing, counted, now)
        return Ticked(did, replace(state, confirmed=True, opened=counted))
