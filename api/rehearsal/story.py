"""What a rehearsal comes to, interval by interval, as lines to read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from api.wording import in_words, money, percent, settings_text
from caches.target import Arm
from tuner.account import usd_per_1000, value
from tuner.ledger import DecisionFilter, Ledger
from tuner.loop.steering import PROMOTED
from tuner.records import ControlState, IntervalRecord, Phase


@dataclass
class Story:
    """Told of each state of a cache once, in order. experiment: the one that began last, None before."""

    ledger: Ledger
    experiment: str | None = None
    _place: tuple[Phase, int] = field(default=(Phase.IDLE, 0))

    def lines(self, state: ControlState) -> Iterator[str]:
        for record in self.ledger.intervals(state.cache, state.index - 1, state.index - 1):
            if record.share:
                yield f"    {_told(record)}"
        if (state.phase, state.step) != self._place:
            self._place = (state.phase, state.step)
            yield f"{in_words(state)} {self._reason(state)}".strip()
        self.experiment = state.experiment or self.experiment

    def is_over(self, state: ControlState) -> bool:
        """Whether the challenger has been promoted, in the registry too, or taken out, or its time is up."""
        if state.phase is Phase.PROMOTED:
            return PROMOTED not in state.memory
        ended = state.phase is Phase.IDLE and self.experiment is not None
        return ended or state.phase is Phase.ROLLED_BACK

    def _reason(self, state: ControlState) -> str:
        found = self.ledger.decisions(state.cache, DecisionFilter(limit=2))
        told = {one.arm: one.reasons[0] for one in found if one.index == state.index and one.reasons}
        return told.get(Arm.TREATMENT) or told.get(Arm.CONTROL, "")


def _told(record: IntervalRecord) -> str:
    who = "challenger" if record.arm is Arm.TREATMENT else "control"
    head = f"{who:<10} {percent(record.share):>5} of the keys, {settings_text(record.settings)}"
    if record.window is None:
        return f"{head}: {record.reason}"
    cost, hits = usd_per_1000(record), value(record, "hit_ratio")
    spent = "no requests" if cost is None else f"{money(cost)} per 1,000 requests"
    return f"{head}: {spent}" + ("" if hits is None else f", {percent(hits)} hits")
