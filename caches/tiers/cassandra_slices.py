"""What a process knows of the slices of the tier in Cassandra: what each was found to hold when it was last swept, by
whichever process, and what this one has changed since."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple


class Amount(NamedTuple):
    entries: int = 0
    used_bytes: int = 0

    def plus(self, entries: int, used_bytes: int) -> Amount:
        return Amount(self.entries + entries, self.used_bytes + used_bytes)


@dataclass(frozen=True)
class Sweep:
    """What a slice was found to hold. unfinished: some of that has to go still. before: what this process had changed
    until then, of all that it changed."""

    found: Amount
    swept_seconds: float
    before: Amount
    unfinished: bool = False


class Slices:
    """One that nobody has swept yet is not known."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._changed = defaultdict[int, Amount](Amount)  # ever, by this process
        self._changed_before = dict[int, Amount]()  # when we last looked at what others know
        self._swept = dict[int, Sweep]()
        self._binding = dict[int, int]()

    def change(self, number: int, entries: int, used_bytes: int) -> None:
        """What this process stored or removed."""
        self._changed[number] = self._changed[number].plus(entries, used_bytes)

    def changed(self, number: int) -> Amount:
        """By this process, ever; for `swept`, before it reads."""
        return self._changed[number]

    def swept(self, number: int, found: Amount, now_seconds: float, before: Amount, unfinished: bool) -> None:
        """By this process. before: as it was when it began to read. What came later may be in what it read or not: it
        counts, as rather too much than too little."""
        self._swept[number] = Sweep(found, now_seconds, before, unfinished)
        self._binding[number] = found.used_bytes

    def heard(self, number: int, entries: int, used_bytes: int, swept_seconds: float) -> None:
        """From whoever swept it. What we changed since we last looked may have come after that, and still counts."""
        known = self._swept.get(number)
        if known is None or swept_seconds > known.swept_seconds:
            before = self._changed_before.get(number, Amount())
            self._swept[number] = Sweep(Amount(entries, used_bytes), swept_seconds, before)
            self._binding[number] = used_bytes

    def looked(self) -> None:
        """At what others know, just now."""
        self._changed_before = dict(self._changed)

    def last(self, number: int) -> Sweep | None:
        return self._swept.get(number)

    def now(self, number: int) -> Amount:
        """What it holds, as far as we know."""
        known, changed = self._swept.get(number), self._changed[number]
        if known is not None:
            found, before = known.found, known.before
            changed = found.plus(changed.entries - before.entries, changed.used_bytes - before.used_bytes)
        return Amount(max(changed.entries, 0), max(changed.used_bytes, 0))

    def untold_bytes(self, number: int) -> int:
        """What we stored since it was swept, which no other process knows."""
        known = self._swept.get(number)
        return self._changed[number].used_bytes - (0 if known is None else known.before.used_bytes)

    def bind(self) -> None:
        """A capacity was applied: what is there now goes step by step."""
        for number in range(self.count):
            self._binding[number] = self.now(number).used_bytes

    def binding_bytes(self, number: int, share_bytes: int) -> int:
        """What it may hold now."""
        return max(share_bytes, self._binding.get(number, 0))

    def totals(self) -> Amount:
        every = [self.now(number) for number in range(self.count)]
        return Amount(sum(one.entries for one in every), sum(one.used_bytes for one in every))
