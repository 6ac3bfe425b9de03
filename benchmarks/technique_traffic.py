"""What the benchmark of techniques asks, and what is true at each moment, so that each answer can be judged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

Array = NDArray[Any]
Body = dict[str, Any]
Settings = Mapping[str, Any]

MODEL, SYSTEM = "large", "You are the assistant of a shop.\nAnswer in one paragraph."
MOST_TOKENS = 400
SLOTS = 8  # of the backend, in all workloads


@dataclass(frozen=True)
class Ask:
    """One request of a client. meaning: what it asks, whatever the wording; the backend is told it in `metadata`, which
    is no part of a key. is_wrong: as it stands, so that the backend refuses it. pieces_before_drop: of a stream, after
    which the client loses its connection, to come back; None for never. work_seconds: that a backend which is idle
    takes."""

    due_seconds: float
    body: bytes
    meaning: int
    work_seconds: float
    namespace: str = "default"
    is_streamed: bool = False
    is_wrong: bool = False
    pieces_before_drop: int | None = None


@dataclass(frozen=True)
class Truth:
    """changes: of each meaning, the times at which its answer becomes another, in order."""

    changes: Sequence[Sequence[float]]

    def version(self, meaning: int, seconds: float) -> int:
        return bisect_right(self.changes[meaning], seconds)


@dataclass(frozen=True)
class Troubles:
    """Stretches of time, from and to. slow: all takes `slow_factor` times as long. flushes: when an operator flushes
    the namespace."""

    slow: Sequence[tuple[float, float]] = ()
    slow_factor: float = 1.0
    down: Sequence[tuple[float, float]] = ()
    flushes: Sequence[float] = ()

    def factor(self, seconds: float) -> float:
        return self.slow_factor if any(begin <= seconds < end for begin, end in self.slow) else 1.0

    def is_down(self, seconds: float) -> bool:
        return any(begin <= seconds < end for begin, end in self.down)

    def next_down(self, begin_seconds: float, end_seconds: float) -> float | None:
        """When the backend goes down within a stretch of time; None where it does not."""
        return min((begin for begin, _ in self.down if begin_seconds <= begin < end_seconds), default=None)


@dataclass(frozen=True)
class Traffic:
    """settings: of the gateway, in all runs of this workload. slots: of the backend. logprob: of each meaning, the mean
    of its answer's tokens."""

    asks: Sequence[Ask]
    truth: Truth
    slots: int
    settings: Settings = field(default_factory=dict)
    troubles: Troubles = Troubles()
    logprob: Array | None = None

    @property
    def tokens_per_second(self) -> float:
        """That its backend can do, of prompts and answers together."""
        told = [orjson.loads(one.body)["metadata"] for one in self.asks]
        tokens = sum(int(one["prompt"]) + int(one["output"]) for one in told)
        return self.slots * tokens / sum(one.work_seconds for one in self.asks)


def body_of(question: str | list[Body], meaning: int, prompt_tokens: int, output_tokens: int, **more: Any) -> Body:
    """A request as a client sends it, before anything is written differently."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    work = {"meaning": str(meaning), "prompt": str(prompt_tokens), "output": str(output_tokens)}
    head = {"model": MODEL, "temperature": 0, "max_tokens": MOST_TOKENS}
    return {**head, "messages": messages, "metadata": work, **more}


def streaming(body: Body) -> Body:
    """The same as a stream. Usage is asked for, as the gateway would by itself."""
    return body | {"stream": True, "stream_options": {"include_usage": True}}


def sent(body: Body) -> bytes:
    return orjson.dumps(body)


def zipf(rng: np.random.Generator, number: int, requests: int, exponent: float = 1.0) -> Array:
    """Places of `requests` draws of `number` things, whose order of popularity is drawn too."""
    share = np.arange(1, number + 1) ** -exponent
    return np.asarray(rng.permutation(number)[rng.choice(number, requests, p=share / share.sum())])


def exponential_changes(
    mean_seconds: Sequence[float | None], span_seconds: float, rng: np.random.Generator
) -> list[list[float]]:
    """At random. mean_seconds: of each meaning, from one change to the next; None for never."""
    every = []
    for mean in mean_seconds:
        count = 0 if mean is None else int(rng.poisson(span_seconds / mean))
        every.append(sorted(rng.uniform(0.0, span_seconds, count).tolist()))
    return every
