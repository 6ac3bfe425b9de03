"""The few verbs that the API may use: it reads ledger and registry, and writes wishes. It never touches a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agents.registry import PolicyVersion, Registry
from caches.errors import NotFound
from caches.target import Arm
from tuner.ledger import DecisionFilter, Lease, Ledger
from tuner.records import (
    ControlState,
    Decision,
    ExperimentRecord,
    IntervalRecord,
    Judgement,
    Wish,
    WishKind,
)


@dataclass(frozen=True)
class Status:
    """Of one cache. lease: the last one given; the daemon is alive where it has not run out. decisions: the newest of
    each arm. intervals: the newest of each arm that is over."""

    state: ControlState
    lease: Lease | None
    decisions: Mapping[Arm, Decision]
    intervals: Mapping[Arm, IntervalRecord]
    open_wishes: Sequence[Wish]


@dataclass(frozen=True)
class Account:
    """An experiment with all that was recorded in it, oldest first."""

    experiment: ExperimentRecord
    intervals: Sequence[IntervalRecord]
    judgements: Sequence[Judgement]


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
        return Status(
            state,
            self._ledger.lease(cache),
            {one.arm: one for one in reversed(decisions)},
            {one.arm: one for one in intervals},
            self._ledger.open_wishes(cache),
        )

    def intervals(self, cache: str, first: int, last: int, arm: Arm | None = None) -> Sequence[IntervalRecord]:
        self._state(cache)
        return self._ledger.intervals(cache, first, last, arm)

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
        span = [one.index for one in judgements]
        intervals = self._ledger.intervals(found.cache, min(span), max(span)) if span else ()
        return Account(found, intervals, judgements)

    def wish(
        self, cache: str, kind: WishKind, by: str, reason: str = "", arguments: Mapping[str, object] | None = None
    ) -> Wish:
        """Written down; the daemon acts on it at its next tick."""
        self._state(cache)
        return self._ledger.wish(Wish(cache, kind, by, self._clock(), reason, arguments or {}))

    def wishes(self, cache: str, limit: int = 50) -> Sequence[Wish]:
        self._state(cache)
        return self._ledger.wishes(cache, limit)

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
