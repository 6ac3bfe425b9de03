"""Who answers when the backend should not or cannot: a table from what is wrong to the rungs that are tried, in order.

    why           means                                                        rungs by default
    SLOW          its 95th percentile is over the limit                        stale, fallback, upstream
    OVER_RATE     the request would take more tokens a second than stated      stale, fallback, template
    CLASS         requests of this kind fail                                   stale, fallback, template
    DOWN          it cannot be reached, or failed a moment ago                 stale, fallback, template
    FAILED        it was asked, and failed, or said that it is too busy        stale, fallback, template

A rung that has nothing to say leaves it to the next; after the last one the request fails as it would have without
a ladder. Only the rung `upstream` asks the backend, so it is for SLOW alone; where that fails the descent goes on with
the rungs of FAILED that were not tried yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from caches.errors import InputError


class Why(StrEnum):
    """Why the backend is not asked, or has not answered."""

    SLOW = "slow"
    OVER_RATE = "over_rate"
    CLASS = "class"
    DOWN = "down"
    FAILED = "failed"


class Rung(StrEnum):
    """stale: an answer whose lifetime is over. fallback: another model. template: a text that says so. upstream: the
    backend all the same."""

    STALE = "stale"
    FALLBACK = "fallback"
    TEMPLATE = "template"
    UPSTREAM = "upstream"


OTHERS = (Rung.STALE, Rung.FALLBACK, Rung.TEMPLATE)
TABLE: Mapping[Why, tuple[Rung, ...]] = {
    Why.SLOW: (Rung.STALE, Rung.FALLBACK, Rung.UPSTREAM),
    **dict.fromkeys((Why.OVER_RATE, Why.CLASS, Why.DOWN, Why.FAILED), OTHERS),
}


class Ladder:
    """table: for each reason its rungs. there: the rungs that can answer at all; the others are left out. Raises
    InputError where a rung is stated twice, or `upstream` where it makes no sense."""

    def __init__(self, table: Mapping[Why, tuple[Rung, ...]], there: Collection[Rung]) -> None:
        for why, rungs in table.items():
            if len({*rungs}) < len(rungs):
                raise InputError(f"when_{why}: got {', '.join(rungs)}, expected each once")
            if Rung.UPSTREAM in rungs and why is not Why.SLOW:
                raise InputError(f"when_{why}: got upstream, expected of {', '.join(OTHERS)}")
        self._table = {why: tuple(rung for rung in table[why] if rung in there) for why in Why}

    def rungs(self, why: Why) -> tuple[Rung, ...]:
        return self._table[why]


class Descent:
    """One request on its way down. among: the rungs that its namespace may use."""

    def __init__(self, ladder: Ladder, why: Why, among: Collection[Rung]) -> None:
        self._ladder, self._among, self.why = ladder, among, why
        self.tried: list[Rung] = []

    def next(self) -> Rung | None:
        """The rung to try now, which is never one that was tried; None where nothing is left."""
        for rung in self._ladder.rungs(self.why):
            if rung not in self.tried and rung in self._among:
                self.tried.append(rung)
                return rung
        return None

    def failed(self) -> None:
        """The backend was asked, and failed."""
        self.why = Why.FAILED
