"""A live in-process prefix cache: blocks of prompts in a tree, two tiers, least recently used. Plain Python, one owner,
no locks. It knows nothing of a trace: prompts come as they are. caches.policies.live.prefix has it with other policies.

The rules, which the shadow of it keeps to the letter (tests/contracts/prefix_contract.py holds both to them):
- a prompt is a sequence of blocks, and a block is itself only behind the same beginning. Of a prompt that arrives, the
  leading run of resident blocks hits; what is missing is added, and all of it is in use until the request is finished;
- what is in use is neither evicted nor too old. Where no room can be made, the prompt's deepest blocks stay out;
- a request is done with its deepest block first, so no block outlives its parent in a tier;
- a block leaves the upper tier for space, or once unused for `ttl_seconds`, and then lies in the lower one until that
  is full; a hit there brings it up, and so does `warm`, which adds nothing that is not there.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from caches.errors import InputError
from caches.stats import PrefixStats

B = TypeVar("B", bound=Hashable)
UPPER, LOWER = 0, 1


@dataclass(eq=False)
class Block(Generic[B]):
    """A resident block. above: the block before it. siblings: the children of that one, itself among them. users:
    requests at it."""

    name: B
    above: Block[B] | None
    siblings: dict[B, Block[B]]
    tier: int = UPPER
    users: int = 0
    touched_seconds: float = 0.0
    children: dict[B, Block[B]] = field(default_factory=dict)


class InProcessPrefixCache(Generic[B]):
    """`now_seconds` comes from the caller and never goes back. Rooms are in blocks."""

    def __init__(self, upper_blocks: int, ttl_seconds: float = math.inf, lower_blocks: int = 0) -> None:
        _check(upper_blocks, lower_blocks, ttl_seconds)
        self.rooms, self.ttl_seconds = [upper_blocks, lower_blocks], ttl_seconds
        self._first: dict[B, Block[B]] = {}
        self._idle: tuple[OrderedDict[Block[B], None], ...] = (OrderedDict(), OrderedDict())  # least recent first
        self._in_use = 0
        self._running: dict[Hashable, list[Block[B]]] = {}
        self._counts: Counter[str] = Counter()

    def arrive(self, request: Hashable, prompt: Sequence[B], now_seconds: float) -> tuple[int, int]:
        """A request begins; returns its leading blocks that hit in the upper and in the lower tier."""
        if request in self._running:
            raise InputError(f"request: got {request}, expected one that is not running")
        self._expire(now_seconds)
        self._is_asked_for(prompt, now_seconds)
        run = self._resident_run(prompt)
        upper = sum(block.tier == UPPER for block in run)
        self._running[request] = held = self._hold(run, prompt[len(run) :])
        lower = len(run) - upper
        self._counts.update(upper_hits=upper, lower_hits=lower, misses=len(prompt) - len(run))
        self._counts["refusals"] += len(prompt) - len(held)
        return upper, lower

    def finish(self, request: Hashable, now_seconds: float) -> None:
        """A request ends: its blocks count as used until now."""
        if request not in self._running:
            raise InputError(f"request: got {request}, expected one that is running")
        self._expire(now_seconds)
        self._release(self._running.pop(request), now_seconds, used=True)

    def warm(self, prompt: Sequence[B], now_seconds: float) -> int:
        """Brings what is left of a prompt up, as if it had come and gone; returns blocks copied from below."""
        self._expire(now_seconds)
        run = self._resident_run(prompt)
        upper = sum(block.tier == UPPER for block in run)
        if upper == len(run):
            return 0
        self._at(now_seconds)
        held = self._hold(run, ())
        self._release(held, now_seconds, used=False)
        self._counts["warmups"] += len(held) - upper
        return len(held) - upper

    def apply(self, upper_blocks: int, ttl_seconds: float, now_seconds: float) -> None:
        """Changes both settings now: first age, then space. What is in use stays until it is finished with."""
        _check(upper_blocks, self.rooms[LOWER], ttl_seconds)
        self.rooms[UPPER], self.ttl_seconds = upper_blocks, ttl_seconds
        self._expire(now_seconds)
        self._at(now_seconds)
        self._evict(upper_blocks)

    def stats(self) -> PrefixStats:
        upper_blocks = len(self._idle[UPPER]) + self._in_use
        return PrefixStats(**self._counts, upper_blocks=upper_blocks, lower_blocks=len(self._idle[LOWER]))

    def resident(self, tier: int) -> set[tuple[B, ...]]:
        """Blocks in a tier (UPPER or LOWER), each as its path from the prompt's first block on."""
        waiting: list[tuple[tuple[B, ...], dict[B, Block[B]]]] = [((), self._first)]
        found = set()
        while waiting:
            path, siblings = waiting.pop()
            waiting += [((*path, name), block.children) for name, block in siblings.items()]
            found |= {(*path, name) for name, block in siblings.items() if block.tier == tier}
        return found

    def _resident_run(self, prompt: Sequence[B]) -> list[Block[B]]:
        run: list[Block[B]] = []
        level = self._first
        for name in prompt:
            if name not in level:
                break
            run.append(level[name])
            level = run[-1].children
        return run

    def _hold(self, run: list[Block[B]], missing: Sequence[B]) -> list[Block[B]]:
        """Takes the run into use, what lies low after what lies high, then adds what is missing."""
        for block in run:  # none of it may make room for another
            self._idle[block.tier].pop(block, None)
            self._cannot_go(block)
        held = [block for block in run if block.tier == UPPER]
        rising = run[len(held) :]
        for block in held:
            self._in_use += block.users == 0
            block.users += 1
        while rising and self._make_room():
            held.append(rising.pop(0))
            self._use_new(held[-1])
        for block in reversed(rising):
            self._idle[LOWER][block] = None
        for name in () if rising else missing:
            if not self._is_welcome(len(held)) or not self._make_room():
                break
            above = held[-1] if held else None
            siblings = above.children if above else self._first
            siblings[name] = Block(name, above, siblings)
            held.append(siblings[name])
            self._use_new(held[-1])
        self._drop()
        return held

    def _use_new(self, block: Block[B]) -> None:
        block.tier, block.users = UPPER, 1
        self._in_use += 1

    def _release(self, held: list[Block[B]], now_seconds: float, used: bool) -> None:
        """used: a request ends, not a warm-up."""
        self._at(now_seconds)
        for block in reversed(held):
            block.users -= 1
            if not block.users:
                block.touched_seconds = now_seconds
                self._in_use -= 1
                self._idle[UPPER][block] = None
                self._is_idle(block, used)
        self._evict(self.rooms[UPPER])

    def _make_room(self) -> bool:
        """For one block more; False where everything is in use."""
        self._evict(self.rooms[UPPER] - 1)
        return len(self._idle[UPPER]) + self._in_use < self.rooms[UPPER]

    def _evict(self, room: int) -> None:
        while self._idle[UPPER] and len(self._idle[UPPER]) + self._in_use > room:
            self._fall(self._first_to_go(), "evictions")
        self._drop()

    def _expire(self, now_seconds: float) -> None:
        idle = self._idle[UPPER]
        while idle and now_seconds - next(iter(idle)).touched_seconds >= self.ttl_seconds:
            self._fall(next(iter(idle)), "expirations")
        self._drop()

    def _fall(self, block: Block[B], counted_as: str) -> None:
        del self._idle[UPPER][block]
        block.tier = LOWER
        self._idle[LOWER][block] = None
        self._counts[counted_as] += 1

    def _drop(self) -> None:
        while len(self._idle[LOWER]) > self.rooms[LOWER]:
            block, _ = self._idle[LOWER].popitem(last=False)
            self._forget(block)
            self._counts["drops"] += 1

    def _forget(self, block: Block[B]) -> None:
        del block.siblings[block.name]

    # What other policies do otherwise.

    def _at(self, now_seconds: float) -> None:
        """Something happens that may evict."""

    def _is_asked_for(self, prompt: Sequence[B], now_seconds: float) -> None:
        """A request begins."""

    def _is_welcome(self, place: int) -> bool:
        """Whether the prompt's block at a place, which is missing, may come in."""
        return True

    def _is_idle(self, block: Block[B], used: bool) -> None:
        """Nobody uses a block of the upper tier any more."""

    def _cannot_go(self, block: Block[B]) -> None:
        """A block is about to be used."""

    def _first_to_go(self) -> Block[B]:
        """For space, of the upper tier's idle blocks, of which there are some."""
        return next(iter(self._idle[UPPER]))


def _check(upper_blocks: int, lower_blocks: int, ttl_seconds: float) -> None:
    if upper_blocks < 0 or lower_blocks < 0:
        raise InputError(f"blocks: got {upper_blocks} and {lower_blocks} below, expected 0 or more")
    if not ttl_seconds > 0:
        raise InputError(f"ttl_seconds: got {ttl_seconds}, expected above 0")
