"""The serving engine as a list of sequences with tokens left to decode: no heaps, no clock of iterations."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from envs.engine import Engine

TINY = 1e-9  # iterations: what rounding may leave


@dataclass
class Sequence:
    """left: iterations until it is done. first_token, finish: times (s); finish is infinite until it is known."""

    first_token: float
    left: float
    memory: float
    finish: float = inf


class SlowEngine:
    """Requests by `serve` in order of arrival; `finish` of each is known after `drain`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.now = -inf
        self.free = [-inf] * engine.replicas
        self.all: list[Sequence] = []

    def running(self) -> list[Sequence]:
        return [one for one in self.all if one.finish == inf]

    def plain(self) -> float | None:
        """Seconds per iteration without a chunk, None where nothing decodes."""
        decoding = [one for one in self.running() if one.first_token <= self.now]
        if not decoding:
            return None
        batch = max(len(decoding) / self.engine.replicas, 1.0)
        return self.engine.iteration_seconds + (batch - 1.0) * self.engine.iteration_seconds_per_sequence

    def pace(self) -> float:
        """Seconds per iteration at this moment, infinite where nothing decodes."""
        plain = self.plain()
        if plain is None:
            return inf
        busy = sum(free > self.now for free in self.free) / self.engine.replicas
        return 1.0 / ((1.0 - busy) / plain + busy / (plain + self.engine.chunk_seconds))

    def advance(self, until: float) -> bool:
        """To the next change, at most to `until`; whether a sequence ended there."""
        pace = self.pace()
        decoding = [one for one in self.running() if one.first_token <= self.now]
        first = min(decoding, key=lambda one: one.left, default=None)
        ends = inf if first is None else self.now + max(first.left, 0.0) * pace
        changes = [one.first_token for one in self.running() if one.first_token > self.now]
        changes += [free for free in self.free if free > self.now]
        to = min([ends, until, *changes])
        for one in decoding:
            one.left -= (to - self.now) / pace
        self.now = to
        if first is not None and ends == to:
            first.finish, first.left = to, 0.0
            return True
        return False

    def serve(self, arrival: float, prefill: float, output: float, memory: float) -> float:
        """The time of the first token."""
        ready = max(arrival, self.now, min(self.free))
        while self.now < ready:
            self.advance(ready)
        self.end_what_is_due()
        while not self.fits(memory):
            self.advance(inf)
            self.end_what_is_due()
        server = self.free.index(min(self.free))
        seconds, plain = prefill * self.engine.prefill_seconds_per_token, self.plain()
        if plain is not None and self.engine.chunk_seconds:
            seconds += plain * seconds / self.engine.chunk_seconds
        first_token = self.now + self.engine.overhead_seconds + seconds
        self.free[server] = first_token
        self.all.append(Sequence(first_token, output, memory))
        return first_token

    def end_what_is_due(self) -> None:
        """Sequences that have nothing left at this moment."""
        for one in self.running():
            if one.first_token <= self.now and one.left <= TINY:
                one.finish = self.now

    def fits(self, memory: float) -> bool:
        running = self.running()
        held = sum(one.memory for one in running)
        return not running or (len(running) < self.engine.slots and held + memory <= self.engine.kv_tokens)

    def drain(self) -> list[float]:
        while self.running():
            self.advance(inf)
        return [one.finish for one in self.all]
