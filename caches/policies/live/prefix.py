"""The live prefix cache of caches.in_process_prefix under other eviction policies; caches.policies.prefix_kernel is its
shadow."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Hashable, Sequence
from typing import TypeVar

from caches.in_process_prefix import UPPER, Block, InProcessPrefixCache
from caches.policies.live.prefix_notes import LivePrefixNotes, Note
from caches.policies.prefix_settings import GDSF, KNOWN, WORTHY, PrefixRules

B = TypeVar("B", bound=Hashable)


class EvictingPrefixCache(InProcessPrefixCache[B]):
    """As InProcessPrefixCache, but for who goes first and what is taken in."""

    def __init__(
        self, rules: PrefixRules, upper_blocks: int, ttl_seconds: float = math.inf, lower_blocks: int = 0
    ) -> None:
        super().__init__(upper_blocks, ttl_seconds, lower_blocks)
        self.notes = LivePrefixNotes(rules)
        self._leaves: set[Block[B]] = set()
        self._children: dict[Block[B], int] = {}  # in the upper tier, where there are some
        self._note: dict[Block[B], Note] = {}  # of each block there is
        self._asked: list[Note] = []
        self._waiting: list[tuple[float, int, int, Block[B]]] | None = None  # a heap that lasts for one event
        self._number = itertools.count()
        self._now = 0.0

    def _at(self, now_seconds: float) -> None:
        self._now, self._waiting = now_seconds, None

    def _is_asked_for(self, prompt: Sequence[B], now_seconds: float) -> None:
        self._at(now_seconds)
        self._asked = self.notes.take_note(prompt, now_seconds)
        for block, note in zip(self._resident_run(prompt), self._asked, strict=False):
            self._note[block] = note

    def _is_welcome(self, place: int) -> bool:
        note, admission = self._asked[place], self.notes.rules.admission
        if admission == KNOWN:
            return note.times > 1
        if admission == WORTHY and len(self._idle[UPPER]) + self._in_use >= self.rooms[UPPER] and self._heap():
            return self.notes.value(note, self._now) >= self._heap()[0][0]
        return True

    def _use_new(self, block: Block[B]) -> None:
        super()._use_new(block)
        if block.above is not None:
            self._children[block.above] = self._children.get(block.above, 0) + 1
        if block not in self._note:
            place = 0
            above = block.above
            while above is not None:
                place, above = place + 1, above.above
            self._note[block] = self._asked[place]

    def _is_idle(self, block: Block[B], used: bool) -> None:
        self.notes.ends(self._note[block], self._now, used)
        if block not in self._children:
            self._leaves.add(block)

    def _cannot_go(self, block: Block[B]) -> None:
        self._leaves.discard(block)

    def _first_to_go(self) -> Block[B]:
        value, _, _, block = heapq.heappop(self._heap())
        if self.notes.rules.eviction == GDSF:
            self.notes.age = value
        return block

    def _fall(self, block: Block[B], counted_as: str) -> None:
        super()._fall(block, counted_as)
        self._leaves.discard(block)
        above = block.above
        if above is not None:
            self._children[above] -= 1
            if not self._children[above]:
                del self._children[above]
                if not above.users:
                    self._leaves.add(above)
                    if self._waiting is not None:
                        heapq.heappush(self._waiting, self._slot(above))

    def _forget(self, block: Block[B]) -> None:
        super()._forget(block)
        del self._note[block]

    def _heap(self) -> list[tuple[float, int, int, Block[B]]]:
        if self._waiting is None:
            self._waiting = [self._slot(block) for block in self._leaves]
            heapq.heapify(self._waiting)
        return self._waiting

    def _slot(self, block: Block[B]) -> tuple[float, int, int, Block[B]]:
        note = self._note[block]
        return self.notes.value(note, self._now), note.recent[0], next(self._number), block
