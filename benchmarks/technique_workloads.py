"""The workloads of the benchmark of techniques, beside that of wordings: changing, crowded, troubled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from api.gateway.access import DEFAULT
from api.gateway.config_knobs import LEAST_BYTES
from benchmarks.fidelity_memory import OVERHEAD_BYTES
from benchmarks.technique_backend import CHARACTERS, idle_seconds
from benchmarks.technique_traffic import (
    MOST_TOKENS,
    SLOTS,
    Array,
    Ask,
    Body,
    Traffic,
    Troubles,
    Truth,
    body_of,
    exponential_changes,
    sent,
    streaming,
    zipf,
)
from benchmarks.technique_wordings import pairs, wordings
from traces.catalog import load_trace
from traces.shipped import shipped_traces
from traces.trace import Trace

SHIPPED = "servegen-twitter-14d"
Chance = np.random.Generator

CHANGING_PER_SECOND = 1.0
CHANGES_IN_SPAN = {"hours": 56.0, "days": 14.0, "weeks": 2.0, "never": None}  # by namespace, as often as in 14 days
LIFETIMES_IN_SPAN = 56.0
SAMPLED_SHARE, LOGPROBS_SHARE, TEMPERATURE = 0.3, 0.3, 0.7

CROWDED_PER_SECOND, ROOM = 1.0, 0.1
HOTTEST = 0.05

TROUBLED_PER_SECOND, TROUBLED_KEYS, TROUBLED_TTL_SECONDS = 8.0, 300, 30.0
STREAMED_SHARE, DROPPED_SHARE, WRONG_SHARE, WRONG_BODIES = 0.5, 0.1, 0.05, 20
CHANGE_SECONDS, SLOW_FACTOR, TROUBLED_PROMPT = 600.0, 6.0, 300
SLOW, DOWN, FLUSH = (0.2, 0.33), (0.5, 0.6), 0.75  # in parts of the run


@cache
def shipped() -> Trace:
    return load_trace(shipped_traces()[SHIPPED])


class _Sample:
    """The requests of keys drawn from the shipped trace, about so many, its days squeezed evenly into so many seconds.
    A cache for a sample of the keys hits as one for all of them does that is as many times as large. Left out is a key
    that alone would be more than HOTTEST of the requests: whatever is done, it hits. Each key costs what its first
    request does."""

    def __init__(self, requests: int, span_seconds: float, rng: Chance) -> None:
        trace = shipped()
        assert trace.prompt_tokens is not None
        assert trace.output_tokens is not None
        asked = np.bincount(trace.key, minlength=trace.num_keys)
        order = rng.permutation(trace.num_keys)
        order = order[asked[order] <= HOTTEST * requests]
        drawn = np.zeros(trace.num_keys, bool)
        drawn[order[: np.searchsorted(np.cumsum(asked[order]), requests) + 1]] = True
        rows = np.flatnonzero(drawn[trace.key])[:requests]
        self.due: Array = trace.arrival_seconds[rows] * (span_seconds / float(trace.arrival_seconds[-1]))
        _, first, self.key = np.unique(trace.key[rows], return_index=True, return_inverse=True)
        self.prompt: Array = np.maximum(trace.prompt_tokens[rows][first], 1)
        self.output: Array = np.clip(trace.output_tokens[rows][first], 1, MOST_TOKENS)
        self.work = idle_seconds(self.prompt, self.output)

    @property
    def keys(self) -> int:
        return len(self.output)

    def body(self, key: int, **more: object) -> Body:
        """A question of its own, which only a number tells apart from others."""
        text = f"{pairs()[key % len(pairs())]['a']} It is about order {10_000 + key}."
        return body_of(text, key, int(self.prompt[key]), int(self.output[key]), **more)

    def asks(self, bodies: Sequence[bytes], namespaces: Sequence[str]) -> list[Ask]:
        """bodies, namespaces: of each key."""
        return [
            Ask(due, bodies[key], key, float(self.work[key]), namespaces[key])
            for due, key in zip(self.due.tolist(), self.key.tolist(), strict=True)
        ]


def changing(requests: int, seed: int) -> Traffic:
    """Four namespaces whose answers change at different rates."""
    rng, span = np.random.default_rng(seed), requests / CHANGING_PER_SECOND
    part = _Sample(requests, span, rng)
    names = list(CHANGES_IN_SPAN)
    namespace = rng.integers(0, len(names), part.keys)
    is_sampled, tells = (rng.random(part.keys) < share for share in (SAMPLED_SHARE, LOGPROBS_SHARE))
    means = [
        None if times is None else span / times for times in (CHANGES_IN_SPAN[names[one]] for one in namespace.tolist())
    ]
    changes = exponential_changes(means, span, rng)
    bodies = []
    for key in range(part.keys):
        more: Body = {"temperature": TEMPERATURE} if is_sampled[key] else {}
        more |= {"logprobs": True, "top_logprobs": 2} if tells[key] else {}
        bodies.append(sent(part.body(key, **more)))
    asks = part.asks(bodies, [names[one] for one in namespace.tolist()])
    lifetime = {"ttl_seconds": max(span / LIFETIMES_IN_SPAN, 1.0)}
    settings = {
        "tiers": {"memory": lifetime, "semantic": lifetime},
        "namespaces": {"*": {"allow_sampled": True}},
    }
    logprob = -rng.exponential(1.0, part.keys)
    return Traffic(asks, Truth(changes), SLOTS, settings, logprob=logprob)


def crowded(requests: int, seed: int) -> Traffic:
    """Memory for a tenth of what is asked for."""
    rng = np.random.default_rng(seed)
    part = _Sample(requests, requests / CROWDED_PER_SECOND, rng)
    bodies = [sent(part.body(key)) for key in range(part.keys)]
    asks = part.asks(bodies, [DEFAULT] * part.keys)
    room = max(round(ROOM * float((CHARACTERS * part.output + OVERHEAD_BYTES).sum())), LEAST_BYTES)
    tier = {"cache_size": room}
    settings = {"tiers": {"memory": tier, "semantic": tier}}
    return Traffic(asks, Truth([[] for _ in bodies]), SLOTS, settings)


def troubled(requests: int, seed: int) -> Traffic:
    """Short lifetimes and hot keys in front of a backend that is slow, then down; a flush; requests that are wrong as
    they stand; streams, some of whose clients lose their connection."""
    rng = np.random.default_rng(seed)
    span = requests / TROUBLED_PER_SECOND
    due = np.cumsum(rng.exponential(1.0 / TROUBLED_PER_SECOND, requests))
    output = rng.integers(40, 200, TROUBLED_KEYS)
    work = idle_seconds(TROUBLED_PROMPT, output)
    flush = FLUSH * span
    changes = exponential_changes([CHANGE_SECONDS] * TROUBLED_KEYS, span, rng)
    every = [sorted([*some, flush]) for some in changes]
    asks = []
    for seconds, key in zip(due.tolist(), zipf(rng, TROUBLED_KEYS, requests).tolist(), strict=True):
        is_wrong, is_streamed = rng.random() < WRONG_SHARE, rng.random() < STREAMED_SHARE
        drop = int(rng.integers(1, 5)) if is_streamed and rng.random() < DROPPED_SHARE else None
        meaning = key % WRONG_BODIES if is_wrong else key
        text = f"{pairs()[meaning]['a']} It is about order {10_000 + meaning}."
        body = body_of(text, meaning, TROUBLED_PROMPT, int(output[meaning]))
        if is_wrong:
            asks.append(Ask(seconds, sent(body | {"top_p": 2.0}), meaning, 0.0, is_wrong=True))
            continue
        whole = sent(streaming(body) if is_streamed else body)
        asks.append(
            Ask(
                seconds,
                whole,
                meaning,
                float(work[meaning]),
                is_streamed=is_streamed,
                pieces_before_drop=drop,
            )
        )
    troubles = Troubles([(SLOW[0] * span, SLOW[1] * span)], SLOW_FACTOR, [(DOWN[0] * span, DOWN[1] * span)], [flush])
    lifetime = {"ttl_seconds": TROUBLED_TTL_SECONDS}
    settings = {"tiers": {"memory": lifetime, "semantic": lifetime}}
    return Traffic(asks, Truth(every), SLOTS, settings, troubles)


WORKLOADS: Mapping[str, Callable[[int, int], Traffic]] = {
    "wordings": wordings,
    "changing": changing,
    "crowded": crowded,
    "troubled": troubled,
}
