"""How often a key was asked for lately: caches.policies.sketch in plain Python."""

from __future__ import annotations

from collections.abc import Hashable

from caches.policies.numbers import BLOCK, FIRST_BLOCKS, LEAST_HELD, MOST

BITS = 2**64 - 1
HALVES = bytes(value >> 1 for value in range(256))


def hash_of(key: Hashable) -> int:
    """64 bits. Of whole numbers as in the shadow; of other keys Python's own, which nobody outside can foresee."""
    if not isinstance(key, int):
        return hash(key) & BITS
    state = (key + 1) * 0x9E3779B97F4A7C15 & BITS
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & BITS
    state = (state ^ state >> 27) * 0x94D049BB133111EB & BITS
    return state ^ state >> 31


class Sketch:
    """sample: requests that count, per entry held. Memory: 16 bytes for each of the most entries ever held, rounded up
    to a power of two."""

    def __init__(self, sample: float) -> None:
        self._sample, self._added, self._blocks = sample, 0, FIRST_BLOCKS
        self._counters = bytearray(FIRST_BLOCKS * BLOCK)

    def frequency(self, key: Hashable) -> int:
        """The estimate for a key, at most MOST."""
        return min(self._counters[at] for at in self._places(key))

    def count(self, key: Hashable, held: int) -> None:
        """One more request for a key. held: entries now."""
        if held > self._blocks:
            self._counters *= 2
            self._blocks *= 2
        places = self._places(key)
        least = min(self._counters[at] for at in places)
        if least < MOST:
            for at in places:
                if self._counters[at] == least:
                    self._counters[at] = least + 1
        self._added += 1
        if self._added >= self._sample * max(held, LEAST_HELD):
            self._counters = self._counters.translate(HALVES)
            self._added //= 2

    def _places(self, key: Hashable) -> tuple[int, int, int, int]:
        bits = hash_of(key)
        block = (bits & self._blocks - 1) * BLOCK
        return (
            block + (bits >> 32 & 3),
            block + 4 + (bits >> 34 & 3),
            block + 8 + (bits >> 36 & 3),
            block + 12 + (bits >> 38 & 3),
        )
