"""What a deployment of several replicas would have measured for a log of requests.

Used to hold the serving model against measured runs: engines (`envs/engine.py`) behind a router, and, where requests
of one session repeat a growing prompt, the tiers in which a session's prefix can be found again. A prefix is kept whole
per session, least recently used first out; `caches/shadow/` has the exact cache of blocks, which needs the blocks'
hashes, and measured logs do not record these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.errors import InputError
from envs.engine import (
    NOW,
    Engine,
    EngineState,
    Need,
    engine_of,
    fits,
    idle,
    launch,
    memory_tokens,
    ready_at,
    step,
)
from envs.serving import Serving, ServingProfile

Array = NDArray[Any]
Routing = Literal["queue", "random", "round-robin", "least", "connections", "prefix", "session"]
Reuse = Literal["none", "gpu", "host", "gpu+host", "gpu+pool"]


@dataclass(frozen=True)
class Deployment:
    """replicas behind a router.

    routing: `queue` all replicas share one queue and one KV memory; `random` a request goes to any replica;
    `round-robin` to each in turn; `least` to the one of two random ones that has fewer requests (the power of two
    choices, as Envoy does by default); `connections` over a client's pool of kept connections, each to the replica that
    it was opened to at random; `prefix` to the replica that served the session last unless loads differ by more than
    IMBALANCE_REQUESTS; `session` to the one that the hash of its session names. reuse: where the prefix
    of a session is found again: `none`; `gpu` in the KV memory of the replica that served it last; `host` in the host
    memory of that replica; `gpu+host` in both; `gpu+pool` in the KV memory or in a pool that all replicas share and
    that loses nothing.
    host_tokens: capacity of one replica's host memory. transfer_tokens_per_second: from host or pool to the GPU.
    """

    replicas: int = 1
    routing: Routing = "queue"
    reuse: Reuse = "none"
    host_tokens: float = np.inf
    transfer_tokens_per_second: float = np.inf

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise InputError(f"replicas: got {self.replicas}, expected at least 1")
        for name, value, known in (
            ("routing", self.routing, get_args(Routing)),
            ("reuse", self.reuse, get_args(Reuse)),
        ):
            if value not in known:
                raise InputError(f"{name}: got {value!r}, expected one of {', '.join(known)}")


class Sent(NamedTuple):
    """What clients sent, in order of arrival: arrival (float64, s), prompt and output (float64, tokens), session
    (int64, numbered from 0; -1 for a request without one, whose prompt is never found again)."""

    arrival: Array
    prompt: Array
    output: Array
    session: Array


class Answer(NamedTuple):
    """Seconds from arrival to the first token and to the last, tokens of the prompt found in a cache; float64."""

    ttft: Array
    latency: Array
    cached: Array


class Tier(NamedTuple):
    """Whole prefixes by session, as a circular list from the oldest to the newest; the last place is its head.
    tokens: float64 (sessions,). older, newer: int64 (sessions + 1,). used: float64 (1,)."""

    tokens: Array
    older: Array
    newer: Array
    used: Array


class Replicas(NamedTuple):
    """All replicas, one row each: engine, GPU and host tier; queue int64 (replicas, requests) holds the requests sent
    there and ends int64 (replicas, 3) how many were sent, launched and finished."""

    engine: EngineState
    gpu: Tier
    host: Tier
    queue: Array
    ends: Array


SENT, LAUNCHED, FINISHED = range(3)
AT_NONE, AT_PICKS, AT_CONNECTIONS, AT_ALL = range(4)
LOOKS = {"least": AT_PICKS, "connections": AT_CONNECTIONS, "prefix": AT_ALL}
KEEP_ALIVE_SECONDS = 5.0  # httpx closes a connection that was idle for longer
IMBALANCE_REQUESTS = 8  # AIBrix, docs of the prefix-cache router: difference of running requests


class Capacity(NamedTuple):
    """Tokens that the GPU and host tier of one replica keep, and seconds to bring one token to the GPU."""

    gpu: float
    host: float
    transfer_seconds: float


def simulate(profile: ServingProfile, deployment: Deployment, sent: Sent, seed: int) -> Answer:
    """seed: of the router's choices, which no log records."""
    total = sent.arrival.size
    answer = Answer(np.empty(total), np.empty(total), np.empty(total))
    pool = _seen_before(sent) if deployment.reuse == "gpu+pool" else np.zeros(total)
    together = deployment.routing == "queue"
    engine = engine_of(profile, Serving(replicas=deployment.replicas if together else 1))
    capacity = Capacity(
        engine.kv_tokens if deployment.reuse.startswith("gpu") else 0.0,
        deployment.host_tokens if deployment.reuse.endswith("host") else 0.0,
        1.0 / deployment.transfer_tokens_per_second,
    )
    replicas = _replicas(engine, 1 if together else deployment.replicas, sent)
    picks = _picks(deployment, sent, np.random.default_rng(seed))
    _run(engine, capacity, sent, (picks, pool, LOOKS.get(deployment.routing, AT_NONE)), replicas, answer)
    return answer


def _picks(deployment: Deployment, sent: Sent, rng: np.random.Generator) -> Array:
    """Of each request the replicas it may go to: int64 (requests, 2), twice the same where there is no choice."""
    total, replicas = sent.arrival.size, deployment.replicas
    if deployment.routing == "queue":
        return np.zeros((total, 2), np.int64)
    if deployment.routing == "round-robin":
        return np.repeat(np.arange(total) % replicas, 2).reshape(total, 2)
    picks = rng.integers(0, replicas, (total, 2))
    if deployment.routing != "least":
        picks[:, 1] = picks[:, 0]
    if deployment.routing == "session":
        of_session = rng.integers(0, replicas, int(sent.session.max(initial=-1)) + 2)
        picks[:] = np.where(sent.session >= 0, of_session[sent.session], picks[:, 0])[:, None]
    return picks


def _seen_before(sent: Sent) -> Array:
    """Tokens of the session's request before, 0 without one."""
    before = np.zeros(sent.arrival.size)
    last: dict[int, float] = {}
    for t, session in enumerate(sent.session):
        if session >= 0:
            before[t] = last.get(int(session), 0.0)
            last[int(session)] = sent.prompt[t] + sent.output[t]
    return before


def _replicas(engine: Engine, count: int, sent: Sent) -> Replicas:
    sessions = int(sent.session.max(initial=-1)) + 1
    state = EngineState(*(np.repeat(part[None], count, axis=0) for part in idle(engine)))
    head = np.full((count, sessions + 1), sessions)
    gpu, host = (Tier(np.zeros((count, sessions)), head.copy(), head.copy(), np.zeros((count, 1))) for _ in range(2))
    return Replicas(state, gpu, host, np.zeros((count, sent.arrival.size), np.int64), np.zeros((count, 3), np.int64))


@njit(cache=True)
def _run(
    engine: Engine,
    capacity: Capacity,
    sent: Sent,
    given: tuple[Array, Array, int],
    replicas: Replicas,
    answer: Answer,
) -> None:
    """All requests in order of arrival. given: the replicas that each may go to, the tokens that the pool has of it,
    and how the router looks at loads."""
    picks, pool, looks = given
    ends = replicas.ends
    answer.latency[:] = np.nan
    connections, opened = np.empty((sent.arrival.size, 2), np.int64), 0
    home = np.full(max(sent.session.max() + 1, 1), -1)
    for t in range(sent.arrival.size):
        now, session = sent.arrival[t], sent.session[t]
        if looks != AT_NONE:
            for r in range(ends.shape[0]):
                if looks != AT_PICKS or r == picks[t, 0] or r == picks[t, 1]:
                    _advance(engine, capacity, sent, (pool, now), _row(replicas, r), answer)
        chosen = picks[t, 0]
        if looks == AT_PICKS:
            chosen = _lighter(ends, chosen, picks[t, 1])
        elif looks == AT_CONNECTIONS:
            c = _idle_connection(connections[:opened], answer)
            if c == opened:
                opened += 1
            elif now - sent.arrival[connections[c, 1]] - answer.latency[connections[c, 1]] <= KEEP_ALIVE_SECONDS:
                chosen = connections[c, 0]
            connections[c, 0], connections[c, 1] = chosen, t
        elif looks == AT_ALL:
            known = home[session] if session >= 0 else -1
            chosen = _nearest(ends, known, chosen)
            if session >= 0:
                home[session] = chosen
        replicas.queue[chosen, ends[chosen, SENT]] = t
        ends[chosen, SENT] += 1
    for r in range(ends.shape[0]):
        _advance(engine, capacity, sent, (pool, np.inf), _row(replicas, r), answer)


@njit(cache=True)
def _lighter(ends: Array, first: int, second: int) -> int:
    """The replica with fewer requests on it, the first where equal."""
    loads = ends[:, SENT] - ends[:, FINISHED]
    return second if loads[second] < loads[first] else first


@njit(cache=True)
def _idle_connection(connections: Array, answer: Answer) -> int:
    """The first connection (replica, last request) whose last request is done; their number where none is."""
    for c in range(connections.shape[0]):
        if not np.isnan(answer.latency[connections[c, 1]]):
            return c
    return int(connections.shape[0])


@njit(cache=True)
def _nearest(ends: Array, known: int, random: int) -> int:
    """The replica that knows the session, else or where loads are out of balance the one with the fewest requests,
    the random one where it is among these."""
    loads = ends[:, SENT] - ends[:, FINISHED]
    if known >= 0 and loads.max() - loads.min() <= IMBALANCE_REQUESTS:
        return known
    return random if loads[random] == loads.min() else int(np.argmin(loads))


@njit(cache=True)
def _row(replicas: Replicas, r: int) -> tuple[EngineState, Tier, Tier, Array, Array]:
    e, g, h = replicas.engine, replicas.gpu, replicas.host
    return (
        EngineState(e.decoding[r], e.joining[r], e.servers[r], e.clock[r], e.counts[r]),
        Tier(g.tokens[r], g.older[r], g.newer[r], g.used[r]),
        Tier(h.tokens[r], h.older[r], h.newer[r], h.used[r]),
        replicas.queue[r],
        replicas.ends[r],
    )


@njit(cache=True)
def _advance(
    engine: Engine,
    capacity: Capacity,
    sent: Sent,
    given: tuple[Array, float],
    replica: tuple[EngineState, Tier, Tier, Array, Array],
    answer: Answer,
) -> None:
    """One replica up to a time. given: the tokens that the pool has of each request, the time (s)."""
    pool, until = given
    state, gpu, host, queue, ends = replica
    while True:
        if ends[LAUNCHED] == ends[SENT]:
            done = step(engine, state, until)
        else:
            t = queue[ends[LAUNCHED]]
            memory = memory_tokens(engine, sent.prompt[t], sent.output[t])
            ready = ready_at(state, sent.arrival[t])
            done = step(engine, state, min(ready, until))
            if done < 0 and ready <= until:
                if fits(engine, state, memory):
                    near, far = _found(capacity, sent, (t, pool[t]), gpu, host)
                    cached = max(near, far)
                    answer.cached[t] = cached
                    transfer = (cached - near) * capacity.transfer_seconds
                    need = Need(sent.prompt[t] - cached, transfer, sent.output[t], memory)
                    answer.ttft[t] = launch(engine, state, t, need) - sent.arrival[t]
                    ends[LAUNCHED] += 1
                    continue
                done = step(engine, state, until)
        if done < 0:
            return
        answer.latency[done] = state.clock[NOW] - sent.arrival[done]
        ends[FINISHED] += 1


@njit(cache=True)
def _found(capacity: Capacity, sent: Sent, request: tuple[int, float], gpu: Tier, host: Tier) -> tuple[float, float]:
    """Tokens of a prompt that the GPU has, and that host memory or pool have; then both keep what the request makes.
    The last token of a prompt is always computed."""
    t, in_pool = request
    session, most = sent.session[t], sent.prompt[t] - 1.0
    if session < 0:
        return 0.0, 0.0
    near = min(gpu.tokens[session], most)
    far = min(max(in_pool, host.tokens[session]), most)
    _keep(gpu, session, sent.prompt[t] + sent.output[t], capacity.gpu)
    _keep(host, session, sent.prompt[t] + sent.output[t], capacity.host)
    return near, far


@njit(cache=True)
def _keep(tier: Tier, session: int, tokens: float, capacity: float) -> None:
    """Puts a prefix in as the newest; the oldest leave until all fit."""
    tokens_of, older, newer, used = tier
    head = tokens_of.size
    if tokens_of[session] > 0.0:
        newer[older[session]], older[newer[session]] = newer[session], older[session]
    used[0] += tokens - tokens_of[session]
    tokens_of[session] = tokens
    older[session], newer[session] = older[head], head
    newer[older[head]], older[head] = session, session
    while used[0] > capacity:
        oldest = newer[head]
        used[0] -= tokens_of[oldest]
        tokens_of[oldest] = 0.0
        newer[head], older[newer[oldest]] = newer[oldest], head
