"""The seam of the ledger: what the daemon did and why, and what it was asked to do. Only the daemon that holds the
lease writes effects; everybody may read and wish. tests/contracts/ledger_contract.py is what every ledger has to pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from caches.errors import SetpointError
from caches.target import Arm, Counted, Standing
from tuner.records import (
    ControlState,
    Decision,
    ExperimentRecord,
    IntervalRecord,
    Judgement,
    Tick,
    Verdict,
    Wish,
)
from tuner.wish_key import WishKey


class LedgerUnavailable(SetpointError):
    """The ledger cannot be read or written now: a full disk, a database that is gone. Nothing is half written."""


class LeaseLost(SetpointError):
    """Another daemon holds the lease of this cache by now, or may."""


@dataclass(frozen=True)
class Lease:
    """The right to act on a cache until `until_seconds`. fence: higher than that of every lease before."""

    cache: str
    holder: str
    fence: int
    until_seconds: float


@dataclass(frozen=True)
class DecisionFilter:
    """Of the decisions to list; None: all. changed: whether it decided for other settings than the arm's decision
    before it; the first did. before: (index, arm) of a decision; only those that are listed after it, for paging."""

    arm: Arm | None = None
    verdict: Verdict | None = None
    changed: bool | None = None
    before: tuple[int, Arm] | None = None
    limit: int = 50


@dataclass(frozen=True)
class Pruned:
    """How many of each left the ledger, or may leave it."""

    intervals: int
    decisions: int
    judgements: int
    wishes: int

    @property
    def total(self) -> int:
        return self.intervals + self.decisions + self.judgements + self.wishes


class Ledger(Protocol):
    """Every method raises LedgerUnavailable. Times are Unix seconds and come from the caller."""

    # who acts

    def take_lease(
        self, cache: str, holder: str, now_seconds: float, seconds: float, *, force: bool = False
    ) -> Lease | None:
        """The lease until now + seconds; None where another holder's has not run out. The holder that has it keeps its
        fence; whoever takes it over, or takes it by force, has the next one."""

    def drop_lease(self, lease: Lease) -> None:
        """Ends it now, if it is still the current one."""

    def lease(self, cache: str) -> Lease | None:
        """The last one given, run out or not."""

    # what the daemon writes

    def commit(self, lease: Lease, tick: Tick, now_seconds: float) -> None:
        """All of a tick or nothing. Committing the same tick again changes nothing; one of an interval before the
        state's is refused with LeaseLost, and so is one under a lease that is not the current one or has run out."""

    def confirm(
        self, lease: Lease, index: int, standing: Standing, counted: Counted | None, now_seconds: float
    ) -> None:
        """The cache has taken the plan of interval `index`: fills in `applied` of its decisions and opens the interval
        with these counters. LeaseLost as above, or where the state has gone on to another interval."""

    def amend(self, lease: Lease, state: ControlState, now_seconds: float) -> None:
        """The open interval goes on under another plan: the state in place of that of the same interval, to be
        confirmed anew. LeaseLost as above, or where the ledger's state is of another interval."""

    # what anybody may do

    def wish(self, wish: Wish, key: WishKey | None = None) -> Wish:
        """Writes it down; returns it with its id. With a key that stands for a wish already, as `wished_before`."""

    def wished_before(self, key: WishKey, now_seconds: float) -> Wish | None:
        """The wish that was written with this key within the last day, as it was then, unanswered; None where there is
        none. Raises KeyUsed where another was asked for with it."""

    def caches(self) -> Sequence[str]:
        """Those that have a state, by name."""

    def state(self, cache: str) -> ControlState | None:
        """None before the first tick."""

    def open_wishes(self, cache: str) -> Sequence[Wish]:
        """Oldest first."""

    def wishes(self, cache: str, limit: int = 50, before_id: int | None = None) -> Sequence[Wish]:
        """All, newest first; those of smaller ids, for paging."""

    def intervals(self, cache: str, first: int, last: int, arm: Arm | None = None) -> Sequence[IntervalRecord]:
        """Of interval `first` to `last`, both included, by (index, arm)."""

    def first_index(self, cache: str) -> int | None:
        """Of the oldest interval that is kept; None without any."""

    def decisions(self, cache: str, which: DecisionFilter = DecisionFilter()) -> Sequence[Decision]:
        """Newest first; in one interval control before treatment."""

    def judgements(self, experiment: str) -> Sequence[Judgement]:
        """By index."""

    def experiment(self, experiment: str) -> ExperimentRecord | None: ...

    def experiments(
        self, cache: str | None = None, limit: int = 50, before_seconds: float | None = None
    ) -> Sequence[ExperimentRecord]:
        """Newest first."""

    def prune(self, before_seconds: float, most: int = 1_000) -> Pruned:
        """Removes intervals, decisions and answered wishes from before that time, and judgements of experiments that
        ended before it, at most so many of each; none when nothing is left to remove. The interval that is open stays,
        and what an experiment needs that runs or ended later; of every experiment the record and the last judgement."""

    def prunable(self, before_seconds: float) -> Pruned:
        """What `prune` would remove, called until nothing is left; changes nothing."""

    def revision(self) -> int:
        """Grows with every write: what a reader polls to see whether there is something new."""

    def close(self) -> None: ...
