"""An embedder whose similarities are known: a question's vector is made of its words, one axis for each."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np

from caches.keys.request_key import Partition, RequestKey
from caches.knobs import Knob, KnobSpace
from caches.semantic.embedder import Vectors, unit_rows
from caches.tiers.tier import Answer, TierError

HERE = Partition("a", "x")
START = 1_000_000.0
ENDLESS = 1e6


class ToyEmbedder:
    name = "toy"

    def __init__(self, dimensions: int = 64, slow: bool = False, takes_seconds: float = 0.0) -> None:
        self.dimensions, self.slow, self._takes_seconds = dimensions, slow, takes_seconds
        self.calls: list[list[str]] = []
        self.threads: set[int] = set()
        self.broken = False
        self.closed = False
        self._axis: dict[str, int] = {}

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.calls.append(list(texts))
        self.threads.add(threading.get_ident())
        time.sleep(self._takes_seconds)
        if self.broken:
            raise TierError("toy: broken")
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in enumerate(texts):
            for word in text.casefold().strip("?").split():
                rows[row, self._axis.setdefault(word, len(self._axis)) % self.dimensions] += 1.0
        return unit_rows(rows)

    def close(self) -> None:
        self.closed = True


def space(capacity: float = 1e6, ttl: float = ENDLESS) -> KnobSpace:
    return KnobSpace(
        Knob("cache_size", "bytes", 1.0, 1e7, capacity, 1.0, "log"),
        Knob("ttl_seconds", "seconds", 1.0, ENDLESS, ttl, 1.0, "log"),
        Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 1.0, "linear"),
    )


def ask(question: str | None, partition: Partition = HERE, context: bytes = b"c") -> RequestKey:
    fingerprint = (context + (question or "").encode()).ljust(32, b".")[:32]
    return RequestKey(partition, fingerprint, context.ljust(32, b"."), question)


def say(text: str, written: float = START, ttl: float | None = None) -> Answer:
    return Answer(text.encode(), written, ttl)
