"""What caches.policies.prefix_notes remembers and learns, in plain Python, for prompts as they come."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from caches.policies import prefix_density as density
from caches.policies.prefix_notes import LEAST
from caches.policies.prefix_settings import GDSF, HIT_DENSITY, LFU, LRU_K, PrefixRules


@dataclass(eq=False)
class Group:
    """A use: blocks of one class that one request asked for. since: seconds. waiting: how many were not used again.
    keys: of all of them."""

    kind: int
    since: float
    remembered: bool = True
    waiting: int = 0
    keys: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Note:
    """Of one block, as in caches.policies.prefix_notes.Notes."""

    group: Group
    seen: float
    recent: list[int]
    times: int = 1
    weight: float = 0.0
    value: float = 0.0


class LivePrefixNotes:
    """Blocks are known by a hash of their path, of 64 bits."""

    def __init__(self, rules: PrefixRules) -> None:
        self.rules = rules
        self.age = 0.0
        self._notes: dict[int, Note] = {}
        self._groups: deque[Group] = deque()
        self._requests = self._ended = 0
        learned = (density.CLASSES, density.BINS)
        self._returned, self._lost, self._worth = (np.zeros(learned) for _ in range(3))

    def take_note(self, prompt: Sequence[Hashable], now: float) -> list[Note]:
        """A request asks for the blocks of a prompt; returns the note of each."""
        rules = self.rules
        if rules.eviction == HIT_DENSITY and self._requests and self._requests % rules.every == 0:
            self._estimate(now)
        self._requests += 1
        keys, above = [], 0
        for name in prompt:
            above = hash((above, name))
            keys.append(above)
        before = [self._notes.get(key) for key in keys]
        known = next((place for place, note in enumerate(before) if note is None), len(keys))
        last = before[known - 1] if known else None
        goes_on = last is not None and last.times == 1
        mine: dict[int, Group] = {}
        found = []
        for place, (key, note) in enumerate(zip(keys, before, strict=True)):
            gap = 0.0 if note is None else max(now - note.seen, 0.0)
            if note is not None:
                self._came_back(note, gap)
            times = 1 if note is None else note.times + 1
            kind = self._kind(times, place, (len(keys), known, goes_on), gap)
            group = self._group(mine, kind, now)
            group.keys.append(key)
            if note is None:
                note = Note(group, now, [0] * rules.k)
            faded = note.weight * math.exp(-rules.fading * (now - note.value)) if times > 1 else 0.0
            note.group, note.seen, note.times = group, now, times
            if rules.eviction == LFU:
                note.weight, note.value = faded + 1.0, now
            elif rules.eviction == GDSF:
                note.weight = times * (1.0 + rules.block_cost * place)
            self._notes[key] = note
            found.append(note)
        return found

    def ends(self, note: Note, now: float, used: bool) -> None:
        """Nobody uses a resident block any more. used: a request ended, not a warm-up."""
        self._ended += 1
        if self.rules.eviction == GDSF:
            note.value = self.age + note.weight
        if not used:
            note.recent[0] = self._ended
            return
        note.recent = [self._ended, *note.recent[:-1]]
        if note.group.remembered:
            note.seen = note.group.since = now

    def value(self, note: Note, now: float) -> float:
        """The lowest goes first."""
        if self.rules.eviction == LRU_K:
            return float(note.recent[-1])
        if self.rules.eviction == LFU:
            return math.log(max(note.weight, LEAST)) + self.rules.fading * note.value
        if self.rules.eviction == GDSF:
            return note.value
        if self.rules.eviction == HIT_DENSITY and note.group.remembered:
            return float(self._worth[note.group.kind, density.bin_of(max(now - note.seen, 0.0))])
        return 0.0

    def _kind(self, times: int, place: int, prompt: tuple[int, int, bool], gap: float) -> int:
        """prompt: its blocks, how many of them are known, and whether it goes on from what was used once."""
        if self.rules.eviction != HIT_DENSITY:
            return 0
        size = density.size_level(times, place, *prompt, (self.rules.length, self.rules.fresh))
        return int(density.class_of(density.uses_level(times), size, density.gap_level(times, gap)))

    def _came_back(self, note: Note, gap: float) -> None:
        if note.group.remembered:
            note.group.waiting -= 1
            self._returned[note.group.kind, density.bin_of(gap)] += 1.0

    def _group(self, mine: dict[int, Group], kind: int, now: float) -> Group:
        if kind not in mine or not mine[kind].remembered:
            if len(self._groups) == self.rules.remembered:
                self._forget(self._groups.popleft(), now)
            mine[kind] = Group(kind, now)
            self._groups.append(mine[kind])
        mine[kind].waiting += 1
        return mine[kind]

    def _forget(self, group: Group, now: float) -> None:
        self._survived(self._lost, group, now)
        group.remembered = False
        for key in group.keys:
            if key in self._notes and self._notes[key].group is group:
                del self._notes[key]

    def _estimate(self, now: float) -> None:
        lost = self._lost.copy()
        for group in self._groups:
            self._survived(lost, group, now)
        self._worth = density.densities(self._returned, lost, self.rules.strength)
        fade = 0.5 ** (self.rules.every / self.rules.half_life)
        self._returned *= fade
        self._lost *= fade

    def _survived(self, lost: density.Array, group: Group, now: float) -> None:
        reached = density.bin_of(max(now - group.since, 0.0))
        if reached > 0:
            lost[group.kind, reached - 1] += group.waiting
