"""The few verbs that the API may use: it reads ledger and registry, and writes wishes. It never touches a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agents.registry import PolicyVersion, Registry
from caches.errors import InputError, NotFound
from caches.knobs import KnobSpace
from caches.target import Arm
from tuner.ledger import DecisionFilter, Lease, Ledger
from tuner.loop.limits import limits_of
from tuner.records import (
    ControlState,
    Decision,
    ExperimentRecord,
    IntervalRecord,
    Judgement,
    Wish,
    WishKind,
)
from tuner.wish_key import WishKey

_PAGE = 500  # decisions that are read at a time


@dataclass(frozen=True)
class Status:
    """Of one cache. lease: the last one given; the daemon is alive where it has not run out. decisions: the newest of
    each arm. intervals: the newest of each arm that is over. active: whether the lease has not run out by now."""

    state: ControlState
    lease: Lease | None
    decisions: Mapping[Arm, Decision]
    intervals: Mapping[Arm, IntervalRecord]
    open_wishes: Sequence[Wish]
    active: bool = False


@dataclass(frozen=True)
class Account:
    """An experiment with all that was recorded in it, oldest first. decisions: those of the treatment arm."""

    experiment: ExperimentRecord
    intervals: Sequence[IntervalRecord]
    judgements: Sequence[Judgement]
    decisions: Sequence[Decision] = ()


class TunerService:
    """Raises NotFound for what is not there, LedgerUnavailable where the ledger is not. registry: None where policies
    are of no concern. clock: Unix time."""

    def __init__(self, ledger: Ledger, registry: Registry | None, clock: Callable[[], float]) -> None:
        self._ledger, self._registry, self._clock = ledger, registry, clock

    def caches(self) -> Sequence[str]:
        return self._ledger.caches()

    def status(self, cache: str) -> Status:
        state = self._state(cache)
        decisions = self._ledger.decisions(cache, DecisionFilter(limit=4))
        intervals = self._ledger.intervals(cache, state.index - 1, state.index - 1)
        lease = self._ledger.lease(cache)
        return Status(
            state,
            lease,
            {one.arm: one for one in reversed(decisions)},
            {one.arm: one for one in intervals},
            self._ledger.open_wishes(cache),
            lease is not None and lease.until_seconds > self._clock(),
        )

    def limits(self, cache: str) -> KnobSpace | None:
        """Ranges and largest steps; None where the daemon has not said."""
        return limits_of(self._state(cache).memory)

    def intervals(self, cache: str, first: int, last: int, arm: Arm | None = None) -> Sequence[IntervalRecord]:
        self._state(cache)
        return self._ledger.intervals(cache, first, last, arm)

    def first_index(self, cache: str) -> int | None:
        """Of the oldest interval that is kept; None without any."""
        return self._ledger.first_index(cache)

    def decisions(self, cache: str, which: DecisionFilter) -> Sequence[Decision]:
        self._state(cache)
        return self._ledger.decisions(cache, which)

    def experiments(
        self, cache: str | None = None, limit: int = 50, before_seconds: float | None = None
    ) -> Sequence[ExperimentRecord]:
        return self._ledger.experiments(cache, limit, before_seconds)

    def account(self, experiment: str) -> Account:
        found = self._ledger.experiment(experiment)
        if found is None:
            raise NotFound(f"experiment {experiment!r}: there is none of this id")
        judgements = self._ledger.judgements(experiment)
        span = self._span(found, judgements)
        if span is None:
            return Account(found, (), judgements)
        decisions = self._treatments(found.cache, *span)
        return Account(found, self._ledger.intervals(found.cache, *span), judgements, decisions)

    def _span(self, experiment: ExperimentRecord, judgements: Sequence[Judgement]) -> tuple[int, int] | None:
        """The first and the last interval of an experiment that is known of; None before there is one. One that runs
        in shadow has not been judged yet."""
        indices = [one.index for one in judgements]
        state = self._ledger.state(experiment.cache)
        if state is not None and state.experiment == experiment.id and state.phase_index < state.index:
            indices += [state.phase_index, state.index - 1]
        return (min(indices), max(indices)) if indices else None

    def _treatments(self, cache: str, first: int, last: int) -> list[Decision]:
        found: list[Decision] = []
        before = (last + 1, Arm.TREATMENT)
        while page := self._ledger.decisions(cache, DecisionFilter(Arm.TREATMENT, before=before, limit=_PAGE)):
            found += [one for one in page if first <= one.index]
            before = (page[-1].index, page[-1].arm)
            if before[0] < first or len(page) < _PAGE:
                break
        return found[::-1]

    def wish(
        self,
        cache: str,
        kind: WishKind,
        by: str,
        reason: str = "",
        arguments: Mapping[str, object] | None = None,
        key: WishKey | None = None,
    ) -> Wish:
        """Written down; the daemon acts on it at its next tick. With a key that stands for this wish already, nothing
        is written, and that one is returned as it was then. Raises KeyUsed where it stands for another."""
        self._state(cache)
        return self._ledger.wish(Wish(cache, kind, by, self._clock(), reason, arguments or {}), key)

    def wished_before(self, key: WishKey) -> Wish | None:
        """The wish that a key stands for, as it was when it was asked for. Raises KeyUsed where it is another."""
        return self._ledger.wished_before(key, self._clock())

    def wishes(self, cache: str, limit: int = 50, before_id: int | None = None) -> Sequence[Wish]:
        self._state(cache)
        return self._ledger.wishes(cache, limit, before_id)

    def find_wish(self, cache: str, wish: int) -> Wish:
        found = next(iter(self.wishes(cache, 1, wish + 1)), None)
        if found is None or found.id != wish:
            raise NotFound(f"wish {wish}: there is none of this id for {cache!r}")
        return found

    def check_version(self, version: int) -> None:
        """Raises InputError for one that is not registered; nothing where policies are of no concern."""
        if self._registry is not None and version not in {one.version for one in self.policies()}:
            raise InputError(f"challenger: got {version}, expected a registered version")

    def policies(self) -> Sequence[PolicyVersion]:
        """Newest first; none where nothing has been registered."""
        try:
            return () if self._registry is None else self._registry.versions()
        except NotFound:
            return ()

    def revision(self) -> int:
        return self._ledger.revision()

    def _state(self, cache: str) -> ControlState:
        state = self._ledger.state(cache)
        if state is None:
            known = ", ".join(self._ledger.caches()) or "none"
            raise NotFound(f"cache {cache!r}: no daemon has acted on it, there is: {known}")
        return state
