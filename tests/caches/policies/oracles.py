"""Each eviction policy straight from its definition: plain lists that are scanned or sorted for every victim.

Nothing is shared with the caches: what an oracle remembers of an entry is the list of its uses, and a victim is found
by working out every entry's figure anew. Figures are floats, worked out in the order of the formula, so that ties are
ties. `tests.contracts.policy_contract` runs them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from caches.policies.settings import Eviction, Gdsf, Lfu, LfuLru, Lru, LruK, S3Fifo, Sieve, WTinyLfu


@dataclass
class Held:
    """uses: (number, seconds) of each, the first being taken in. written: number of the latest write, which is a use
    for recency only."""

    key: int
    size: int
    cost: float
    uses: list[tuple[int, float]] = field(default_factory=list)
    written: int = 0
    value: float = 0.0
    hits: int = 0
    place: str = ""

    @property
    def latest(self) -> int:
        return max(self.uses[-1][0], self.written)


class Frequencies(Protocol):
    def __call__(self, key: int) -> int: ...


class Oracle:
    """Least recently used; the others say what is different. `held`: in the order in which they were put there."""

    def __init__(self, policy: Eviction, frequency: Frequencies) -> None:
        self.policy, self.frequency = policy, frequency
        self.held: list[Held] = []
        self.number = 0

    def entry(self, key: int) -> Held:
        return next(one for one in self.held if one.key == key)

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def used(self, key: int, capacity: int, now: float) -> None:
        self.entry(key).uses.append((self.next_number(), now))

    def returns(self, key: int) -> bool:
        return False

    def keeps_out(self, one: Held, victim: Held) -> bool:
        return False

    def put(self, one: Held, old: Held | None, returning: bool, capacity: int, now: float) -> None:
        """old: what it is written over, taken out before."""
        number = self.next_number()
        one.written = number
        one.uses = [(number, now)] if old is None else old.uses
        self.held.append(one)

    def take(self, key: int, evicted: bool, rewritten: bool, capacity: int) -> Held:
        one = self.entry(key)
        self.held.remove(one)
        return one

    def victim(self, capacity: int, more: int, now: float) -> int:
        return min(self.held, key=lambda one: one.latest).key


class KthUse(Oracle):
    """LRU-K."""

    def __init__(self, policy: LruK, frequency: Frequencies) -> None:
        super().__init__(policy, frequency)
        self.k, self.kept = policy.k, policy.kept
        self.gone: list[Held] = []
        self.back: Held | None = None

    def returns(self, key: int) -> bool:
        self.back = next((one for one in self.gone if one.key == key), None)
        if self.back is not None:
            self.gone.remove(self.back)
        return self.back is not None

    def put(self, one: Held, old: Held | None, returning: bool, capacity: int, now: float) -> None:
        super().put(one, old, returning, capacity, now)
        if returning and self.back is not None:
            one.uses = [*self.back.uses, *one.uses]

    def take(self, key: int, evicted: bool, rewritten: bool, capacity: int) -> Held:
        one = super().take(key, evicted, rewritten, capacity)
        if not rewritten:
            self.gone.append(one)
            while len(self.gone) > self.kept * len(self.held):
                self.gone.pop(0)
        return one

    def victim(self, capacity: int, more: int, now: float) -> int:
        few = [one for one in self.held if len(one.uses) < self.k]
        if few:
            return min(few, key=lambda one: one.latest).key
        return min(self.held, key=lambda one: one.uses[-self.k][0]).key


class Decayed(Oracle):
    """LFU with decay: the sum over all uses of what each still counts for."""

    def victim(self, capacity: int, more: int, now: float) -> int:
        policy = self.policy
        assert isinstance(policy, Lfu)

        def counts_for(one: Held) -> float:
            return math.fsum(policy.decay ** ((now - when) / policy.decay_seconds) for _, when in one.uses)

        least = min(counts_for(one) for one in self.held)
        alike = [one for one in self.held if counts_for(one) <= least * (1 + 1e-9)]
        return min(alike, key=lambda one: one.latest).key


class Weighted(Oracle):
    """0.6 frequency + 0.4 recency."""

    def victim(self, capacity: int, more: int, now: float) -> int:
        policy = self.policy
        assert isinstance(policy, LfuLru)
        oldest = min(one.latest for one in self.held)

        def score(one: Held) -> tuple[float, int]:
            frequency = min(len(one.uses), policy.most_uses) / policy.most_uses
            span = self.number - oldest
            recency = (one.latest - oldest) / span if span else 0.0
            return policy.frequency_weight * frequency + policy.recency_weight * recency, one.latest

        return min(self.held, key=score).key


class GreedyDual(Oracle):
    """GDSF. What is offered is valued by the age that the cache had before it made room. The age
    never falls, whatever goes."""

    def __init__(self, policy: Gdsf, frequency: Frequencies) -> None:
        super().__init__(policy, frequency)
        self.age = self.age_then = 0.0

    def used(self, key: int, capacity: int, now: float) -> None:
        super().used(key, capacity, now)
        one = self.entry(key)
        one.value = self.age + len(one.uses) * one.cost / max(one.size, 1)

    def returns(self, key: int) -> bool:
        self.age_then = self.age
        return False

    def keeps_out(self, one: Held, victim: Held) -> bool:
        value = self.age_then + one.cost / max(one.size, 1)
        if value < victim.value:
            self.age = max(self.age, value)
        return value < victim.value

    def put(self, one: Held, old: Held | None, returning: bool, capacity: int, now: float) -> None:
        super().put(one, old, returning, capacity, now)
        one.value = self.age_then + len(one.uses) * one.cost / max(one.size, 1)

    def take(self, key: int, evicted: bool, rewritten: bool, capacity: int) -> Held:
        one = super().take(key, evicted, rewritten, capacity)
        if evicted:
            self.age = max(self.age, one.value)
        return one

    def victim(self, capacity: int, more: int, now: float) -> int:
        return min(self.held, key=lambda one: (one.value, one.latest)).key


class ThreeQueues(Oracle):
    """S3-FIFO. `held` is in no order that matters; the queues are lists of names, oldest first."""

    def __init__(self, policy: S3Fifo, frequency: Frequencies) -> None:
        super().__init__(policy, frequency)
        self.queues: dict[str, list[int]] = {"small": [], "main": []}
        self.ghost: list[tuple[int, int]] = []
        self.filling = True

    def bytes_in(self, queue: str) -> int:
        return sum(self.entry(key).size for key in self.queues[queue])

    def used(self, key: int, capacity: int, now: float) -> None:
        self.entry(key).hits += 1

    def returns(self, key: int) -> bool:
        known = any(key == other for other, _ in self.ghost)
        self.ghost = [(other, size) for other, size in self.ghost if other != key]
        return known

    def put(self, one: Held, old: Held | None, returning: bool, capacity: int, now: float) -> None:
        policy = self.policy
        assert isinstance(policy, S3Fifo)
        full = self.filling and self.bytes_in("small") >= int(capacity * policy.small)
        one.place, one.hits = ("main" if returning or full else "small", 0) if old is None else (old.place, old.hits)
        self.held.append(one)
        self.queues[one.place].append(one.key)

    def take(self, key: int, evicted: bool, rewritten: bool, capacity: int) -> Held:
        one = super().take(key, evicted, rewritten, capacity)
        self.queues[one.place].remove(key)
        policy = self.policy
        assert isinstance(policy, S3Fifo)
        self.filling = self.filling and not evicted
        room = int(capacity * policy.ghost)
        if evicted and one.place == "small" and one.size <= room:
            self.ghost.append((key, one.size))
            while sum(size for _, size in self.ghost) > room:
                self.ghost.pop(0)
        return one

    def victim(self, capacity: int, more: int, now: float) -> int:
        policy = self.policy
        assert isinstance(policy, S3Fifo)
        small, main = self.queues["small"], self.queues["main"]
        if small and self.bytes_in("main") <= capacity - int(capacity * policy.small):
            while small:
                one = self.entry(small[0])
                if one.hits < policy.uses:
                    return one.key
                one.place, one.hits = "main", 0
                main.append(small.pop(0))
        while self.entry(main[0]).hits:
            one = self.entry(main[0])
            one.hits = min(one.hits, 3) - 1
            main.append(main.pop(0))
        return main[0]


class Hand(Oracle):
    """SIEVE. `held` is the queue, oldest first; `at` the key that the hand is at, None for past the newest."""

    def __init__(self, policy: Sieve, frequency: Frequencies) -> None:
        super().__init__(policy, frequency)
        self.at: int | None = None

    def used(self, key: int, capacity: int, now: float) -> None:
        self.entry(key).hits = 1

    def put(self, one: Held, old: Held | None, returning: bool, capacity: int, now: float) -> None:
        one.hits = 0 if old is None else old.hits
        self.held.append(one)

    def take(self, key: int, evicted: bool, rewritten: bool, capacity: int) -> Held:
        if self.at == key:
            place = self.held.index(self.entry(key)) + 1
            self.at = self.held[place].key if place < len(self.held) else None
        return super().take(key, evicted, rewritten, capacity)

    def victim(self, capacity: int, more: int, now: float) -> int:
        place = 0 if self.at is None else self.held.index(self.entry(self.at))
        while self.held[place].hits:
            self.held[place].hits = 0
            place = (place + 1) % len(self.held)
        self.at = self.held[place].key
        return self.at


class Windowed(Oracle):
    """W-TinyLFU, its parts as lists of names, least recently used first."""

    def __init__(self, policy: WTinyLfu, frequency: Frequencies) -> None:
        super().__init__(policy, frequency)
        self.parts: dict[str, list[int]] = {"window": [], "probation": [], "protected": []}

    def bytes_in(self, *parts: str) -> int:
        return sum(self.entry(key).size for part in parts for key in self.parts[part])

    def sizes(self, capacity: int) -> tuple[int, int, int]:
        policy = self.policy
        assert isinstance(policy, WTinyLfu)
        window = int(capacity * policy.window)
        return window, capacity - window, int((capacity - window) * policy.protected)

    def move(self, key: int, part: str) -> None:
        one = self.entry(key)
        self.parts[one.place].remove(key)
        one.place = part
        self.parts[part].append(key)

    def used(self, key: int, capacity: int, now: float) -> None:
        if self.entry(key).place == "window":
            self.move(key, "window")
            return
        self.move(key, "protected")
        while self.bytes_in("protected") > self.sizes(capacity)[2]:
            self.move(self.parts["protected"][0], "probation")

    def may_move(self, capacity: int) -> bool:
        leaving = self.entry(self.parts["window"][0])
        return self.bytes_in("probation", "protected") + leaving.size <= self.sizes(capacity)[1]

    def put(self, one: Held, old: Held | None, returning: bool, capacity: int, now: float) -> None:
        one.place = "window" if old is None else old.place
        self.held.append(one)
        self.parts[one.place].append(one.key)
        while self.bytes_in("window") > self.sizes(capacity)[0] and self.may_move(capacity):
            self.move(self.parts["window"][0], "probation")

    def take(self, key: int, evicted: bool, rewritten: bool, capacity: int) -> Held:
        self.parts[self.entry(key).place].remove(key)
        return super().take(key, evicted, rewritten, capacity)

    def victim(self, capacity: int, more: int, now: float) -> int:
        window = self.parts["window"]
        while window and self.bytes_in("window") + more > self.sizes(capacity)[0] and self.may_move(capacity):
            self.move(window[0], "probation")
        main = self.parts["probation"] + self.parts["protected"]
        if not main:
            return window[0]
        if not window or self.bytes_in("window") + more <= self.sizes(capacity)[0]:
            return main[0]
        return main[0] if self.frequency(window[0]) > self.frequency(main[0]) else window[0]


KINDS: Sequence[tuple[type[Eviction], type[Oracle]]] = (
    (Lru, Oracle),
    (LruK, KthUse),
    (Lfu, Decayed),
    (LfuLru, Weighted),
    (Gdsf, GreedyDual),
    (S3Fifo, ThreeQueues),
    (Sieve, Hand),
    (WTinyLfu, Windowed),
)


def oracle_of(policy: Eviction, frequency: Frequencies) -> Oracle:
    kind = next(oracle for settings, oracle in KINDS if isinstance(policy, settings))
    return kind(policy, frequency)  # type: ignore[arg-type]
