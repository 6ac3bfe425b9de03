"""A serving engine request by request: sequence slots, KV memory, serial prefill, and a batch that decodes together.

Requests start in order of arrival. One starts when a prefill server is free (one per GPU: prompts are taken in one
after the other), a sequence slot is free and the KV memory has room for it. Its first token comes after the request's
overhead, the transfer of cached tokens that lie off the GPU, and the prefill of the uncached ones. Then it decodes with
the others: all decoding sequences receive a token per iteration of the engine, so one count of iterations, read as a
clock, says when each will be done. An iteration takes longer with more sequences in the batch and, where a prompt is
being taken in beside them, also the time of its chunk; the prompt in turn takes longer by an iteration for each chunk
(chunked prefill as in Agrawal et al., Sarathi-Serve, OSDI 2024).

So the finish of a request depends on requests that start later, and is known only once the clock gets there: `launch`
tells the first token at once, `step` reports each finish when it comes. Not modelled: preemption, a batch whose prefill
of several prompts shares one iteration, and that replicas do not share a queue (see docs/calibration.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from envs.serving import Serving, ServingProfile
from envs.units import GIB

Array = NDArray[Any]


class Engine(NamedTuple):
    """A profile deployed on `replicas` GPUs, as numbers. Seconds per GPU; slots: sequences at once over all GPUs.

    iteration_seconds is the time per token of one sequence in a batch of one, iteration_seconds_per_sequence what each
    further one in the batch of a GPU adds, chunk_seconds what a prompt's chunk adds while a prompt is being taken in.
    kv_tokens: tokens of keys and values that fit over all GPUs. output_share: share of its output for which a
    sequence takes memory when it starts.
    """

    overhead_seconds: float
    prefill_seconds_per_token: float
    iteration_seconds: float
    iteration_seconds_per_sequence: float
    chunk_seconds: float
    slots: int
    replicas: int
    kv_tokens: float
    output_share: float


class EngineState(NamedTuple):
    """What runs. decoding, joining: binary heaps (slots + 1, 4) of rows (key, tag, output tokens, memory tokens); the
    key is the count of iterations at which the sequence is done, or the time of its first token (s). servers: times
    (s) at which prefill servers are free, one per GPU. clock: (NOW, ITERATIONS, HELD, POOL). counts: (decoding,
    joining)."""

    decoding: Array
    joining: Array
    servers: Array
    clock: Array
    counts: Array


NOW, ITERATIONS, HELD, POOL = range(4)
DECODING, JOINING = range(2)


class Need(NamedTuple):
    """What one request asks of the engine. transfer_seconds: bringing cached tokens that lie off the GPU. memory: KV
    tokens held until it is done, see `memory_tokens`."""

    prefill_tokens: float
    transfer_seconds: float
    output_tokens: float
    memory: float


def engine_of(profile: ServingProfile, serving: Serving) -> Engine:
    """KV memory is the profile's, or what the weights leave of VRAM."""
    full, alone = profile.seconds_per_output_token, profile.seconds_per_output_token_alone
    alone = full if alone is None else alone
    more = profile.max_sequences - 1
    per_sequence = (full - alone) / more if more else 0.0
    kv_tokens = profile.kv_tokens or (profile.vram_gib - profile.weights_gib) * GIB / profile.kv_bytes_per_token
    return Engine(
        profile.request_overhead_seconds,
        1.0 / profile.prefill_tokens_per_second,
        alone,
        per_sequence,
        profile.prefill_chunk_tokens / profile.prefill_tokens_per_second,
        (serving.max_sequences or profile.max_sequences) * serving.replicas,
        serving.replicas,
        float(kv_tokens * serving.replicas),
        profile.output_memory_share,
    )


@njit(cache=True)
def idle(engine: Engine) -> EngineState:
    """An engine with nothing to do, at time minus infinity."""
    clock = np.array([-np.inf, 0.0, 0.0, engine.kv_tokens])
    decoding, joining = np.zeros((engine.slots + 1, 4)), np.zeros((engine.slots + 1, 4))
    return EngineState(decoding, joining, np.full(engine.replicas, -np.inf), clock, np.zeros(2, np.int64))


@njit(cache=True)
def memory_tokens(engine: Engine, prompt_tokens: float, output_tokens: float) -> float:
    """KV tokens that a sequence holds from its start to its end."""
    return prompt_tokens + engine.output_share * output_tokens


@njit(cache=True)
def ready_at(state: EngineState, arrival: float) -> float:
    """When the next request can start at the earliest: it has arrived, those before it have started, a prefill server
    is free."""
    return float(max(arrival, state.clock[NOW], state.servers.min()))


@njit(cache=True)
def fits(engine: Engine, state: EngineState, memory: float) -> bool:
    """Whether a sequence of so many KV tokens finds a slot and room. One that is larger than the whole pool runs alone
    rather than never. Room is state.clock[POOL], which a caller may change at any time."""
    running = state.counts[DECODING] + state.counts[JOINING]
    return bool(running == 0 or (running < engine.slots and state.clock[HELD] + memory <= state.clock[POOL]))


@njit(cache=True)
def step(engine: Engine, state: EngineState, until: float) -> int:
    """On to the next finish or to `until` (s), whichever comes first. Returns the tag of the sequence that is done, at
    state.clock[NOW], its slot and memory free again; -1 at `until`. With nothing running and `until` infinite the
    clock stays."""
    clock, counts, servers = state.clock, state.counts, state.servers
    while True:
        now = clock[NOW]
        if until < now:
            return -1
        at = state.joining[0, 0] if counts[JOINING] else np.inf
        busy = 0
        for s in range(servers.size):
            if servers[s] > now:
                busy += 1
                at = min(at, servers[s])
        finish, rate = np.inf, 0.0
        if counts[DECODING]:
            alone = _iteration(engine, state)
            share = busy / engine.replicas
            rate = (1.0 - share) / alone + share / (alone + engine.chunk_seconds)
            finish = now + max(state.decoding[0, 0] - clock[ITERATIONS], 0.0) / rate
        if counts[DECODING] and finish <= min(at, until):
            clock[NOW], clock[ITERATIONS] = finish, state.decoding[0, 0]
            clock[HELD] -= state.decoding[0, 3]
            done = int(state.decoding[0, 1])
            counts[DECODING] -= 1
            _pop(state.decoding, counts[DECODING])
            return done
        if until == now and at > now:
            return -1
        to = min(at, until)
        if to == np.inf:
            return -1
        if rate:
            clock[ITERATIONS] += rate * (to - now)
        clock[NOW] = to
        while counts[JOINING] and state.joining[0, 0] <= to:
            tag, output, memory = state.joining[0, 1], state.joining[0, 2], state.joining[0, 3]
            _push(state.decoding, counts[DECODING], (clock[ITERATIONS] + output, tag, output, memory))
            counts[DECODING] += 1
            counts[JOINING] -= 1
            _pop(state.joining, counts[JOINING])


@njit(cache=True)
def _iteration(engine: Engine, state: EngineState) -> float:
    """Seconds of an iteration in which all decoding sequences get a token, spread evenly over the GPUs."""
    more = max(state.counts[DECODING] / engine.replicas - 1.0, 0.0)
    return float(engine.iteration_seconds + engine.iteration_seconds_per_sequence * more)


@njit(cache=True)
def launch(engine: Engine, state: EngineState, tag: int, need: Need) -> float:
    """Starts a request at state.clock[NOW], where it must fit and a prefill server be free. Returns the time of its
    first token (s). tag: what `step` says when it is done, 0 to 2**53."""
    server = np.argmin(state.servers)
    first_token = state.clock[NOW] + engine.overhead_seconds + need.transfer_seconds
    prefill = need.prefill_tokens * engine.prefill_seconds_per_token
    if state.counts[DECODING] and engine.chunk_seconds > 0.0:
        first_token += prefill / engine.chunk_seconds * _iteration(engine, state)
    first_token += prefill
    state.servers[server] = first_token
    _push(state.joining, state.counts[JOINING], (first_token, float(tag), need.output_tokens, need.memory))
    state.counts[JOINING] += 1
    state.clock[HELD] += need.memory
    return float(first_token)


@njit(cache=True)
def wait(engine: Engine, state: EngineState, arrival: float, memory: float) -> int:
    """One step towards the start of a request that arrived at `arrival` (s) and takes so many KV tokens. Returns the
    tag of a sequence that ended on the way, at state.clock[NOW]; -1 once the request can be launched, at that time."""
    tag = step(engine, state, ready_at(state, arrival))
    if tag >= 0 or fits(engine, state, memory):
        return tag
    return step(engine, state, np.inf)


@njit(cache=True)
def serve_all(
    engine: Engine, state: EngineState, arrival: Array, need: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    """All requests of a log, in order of arrival (s); need: prompt, cached and output tokens of each.

    Returns seconds from arrival to first token and to the end, float64. Runs until all are done; the state's clock is
    then at the last finish.
    """
    prompt, cached, output = need
    ttft, latency = np.empty(arrival.size), np.empty(arrival.size)
    for t in range(arrival.size):
        memory = memory_tokens(engine, prompt[t], output[t])
        while True:
            done = wait(engine, state, arrival[t], memory)
            if done < 0:
                break
            latency[done] = state.clock[NOW] - arrival[done]
        ttft[t] = launch(engine, state, t, Need(prompt[t] - cached[t], 0.0, output[t], memory)) - arrival[t]
    while True:
        done = step(engine, state, np.inf)
        if done < 0:
            return ttft, latency
        latency[done] = state.clock[NOW] - arrival[done]


@njit(cache=True)
def _push(heap: Array, size: int, row: tuple[float, float, float, float]) -> None:
    """Adds (key, tag, output, memory) to a heap of `size` rows, smallest key first, equal keys by tag."""
    i = size
    while i > 0:
        parent = (i - 1) // 2
        if not _before(row[0], row[1], heap, parent):
            break
        _copy(heap, parent, i)
        i = parent
    heap[i, 0], heap[i, 1], heap[i, 2], heap[i, 3] = row


@njit(cache=True)
def _pop(heap: Array, size: int) -> None:
    """Takes the first row off a heap, which then has `size` rows: the last one sinks from the top."""
    i, child = 0, 1
    while child < size:
        if child + 1 < size and _before(heap[child + 1, 0], heap[child + 1, 1], heap, child):
            child += 1
        if _before(heap[size, 0], heap[size, 1], heap, child):
            break
        _copy(heap, child, i)
        i, child = child, 2 * child + 1
    _copy(heap, size, i)


@njit(cache=True)
def _before(key: float, tag: float, heap: Array, i: int) -> bool:
    return bool(key < heap[i, 0] or (key == heap[i, 0] and tag < heap[i, 1]))


@njit(cache=True)
def _copy(heap: Array, source: int, target: int) -> None:
    for column in range(4):
        heap[target, column] = heap[source, column]
