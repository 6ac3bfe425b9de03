"""What a daemon tells its page of metrics after each tick: it reads in the ledger what the tick wrote there."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner.control import Did, Ticked, Watch
from tuner.exporting.metrics import Known, Terms, samples
from tuner.exporting.page import MetricsPage
from tuner.exporting.regret import LATELY
from tuner.ledger import DecisionFilter, Ledger, LedgerUnavailable
from tuner.loop.closing import Looked
from tuner.records import ControlState, Decision
from tuner.signals import Signal

log = logging.getLogger("setpoint.tuner")
MOST_DECISIONS = 50  # two in each interval, more only after the ledger could not be read


@dataclass
class Overheard:
    """A watch that remembers what it said of the keys last, and of which interval."""

    watch: Watch
    index: int | None = None
    looked: Looked | None = None

    def signals(self, now_seconds: float) -> Mapping[str, Signal]:
        return self.watch.signals(now_seconds)

    def keys(self, state: ControlState, now_seconds: float) -> Looked:
        self.index, self.looked = state.index, self.watch.keys(state, now_seconds)
        return self.looked


class Meter:
    """`told` is what the daemon calls. It never fails for a ledger that cannot be read: the page stays as it is, and
    the next tick makes up for it."""

    def __init__(self, ledger: Ledger, page: MetricsPage, terms: Terms, overheard: Overheard) -> None:
        self._ledger, self._page, self._terms, self._overheard = ledger, page, terms, overheard
        self._known = Known()
        self._upto: int | None = None  # of the interval whose decisions have been read

    def told(self, ticked: Ticked, seconds: float) -> None:
        self._page.ticked(ticked.did.value, seconds)
        if ticked.state is None:
            self._known, self._upto = replace(self._known, state=None, fence=None), None
        else:
            try:
                self._known = self._read(ticked.state, ticked.did)
                self._upto = ticked.state.index
            except LedgerUnavailable as error:
                log.warning("The metrics are not up to date, because the ledger could not be read: %s", error)
                return
        self._page.show(samples(self._known, self._terms))

    def _read(self, state: ControlState, did: Did) -> Known:
        known, upto = self._known, self._upto
        if known.fence is None or did is not Did.NOTHING:
            lease = self._ledger.lease(state.cache)
            known = replace(known, fence=None if lease is None else lease.fence)
        if upto is None:  # the first tick of this daemon, or the first after it was in standby
            upto = state.index - 1 if did is Did.DECIDED else state.index
            before = self._ledger.intervals(state.cache, upto - LATELY, upto - 1)
            old = self._decided(state, upto - 1)
            known = replace(known.after(state, before, old, None, counted=False), state=known.state)
        if upto >= state.index:
            return replace(known, state=state)
        records = self._ledger.intervals(state.cache, upto, state.index - 1)
        decisions = self._decided(state, upto)
        looked = self._overheard.looked if self._overheard.index == state.index - 1 else None
        return known.after(state, records, decisions, looked)

    def _decided(self, state: ControlState, after_index: int) -> list[Decision]:
        """Oldest first."""
        newest = self._ledger.decisions(state.cache, DecisionFilter(limit=MOST_DECISIONS))
        return [one for one in reversed(newest) if one.index > after_index]
