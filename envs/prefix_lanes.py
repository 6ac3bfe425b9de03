"""Many prefix caches side by side over one trace: the kernel of an environment step where prompts share blocks.

The cache and the engine take turns: a request is looked up when its turn comes, not when it arrives, and what it finds
decides how long it takes. Where sequences and cached blocks share VRAM, each limits the other.

The lanes here go by what was used least recently, those of envs.prefix_policy_lanes by other policies; `run_lane` is
for both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.policies import prefix_steps as steps
from caches.policies.prefix_steps import Learned
from caches.shadow import chain
from caches.shadow.chain import ChainState, Room
from caches.shadow.trie import Chains
from envs.engine import HELD, NOW, POOL, Engine, EngineState, Need, idle, launch, memory_tokens, step, wait
from envs.interval import COLUMN
from envs.lanes import Play
from envs.prefix import Placement
from envs.reward import CAUSES, MEMORY, Tariff, price
from envs.serving import Load, quantiles

Array = NDArray[Any]
COST_FROM = COLUMN["compute_usd"]
NUM_CAUSES = len(CAUSES)
SHARED, RESERVED, HOST = int(Placement.SHARED), int(Placement.RESERVED), int(Placement.HOST)


class Link(NamedTuple):
    """Moving cached tokens to the GPU."""

    seconds_per_token: float
    latency_seconds: float


class PrefixScene(NamedTuple):
    """All that lanes share and only read. candidates: positions of requests, whose prompts a warm-up would bring up.
    below_blocks: room of the tier below. below_usd: its rent per interval. vram_bytes, weights_bytes: of all GPUs."""

    chains: Chains
    load: Load
    block_tokens: int
    edges: Array
    start: float
    seconds: float
    candidates: Array
    candidate_count: Array
    engine: Engine
    tariff: Tariff
    objective: float
    placement: int
    kv_bytes_per_token: float
    below_blocks: int
    below_usd: float
    link: Link
    below_link: Link
    gpu_seconds_per_output_token: float
    vram_bytes: float
    weights_bytes: float


class PrefixLanes(NamedTuple):
    """What each lane owns; the first axis is the lane. place to counts: a ChainState. decoding to running: an
    EngineState. held, added: int32 (lanes, requests), blocks that a running request pins, and of these the ones it
    brought into VRAM. taken: int64 (lanes, 1), the sum of `added` over running requests. The rest is scratch."""

    place: Array
    pins: Array
    touched: Array
    older: Array
    newer: Array
    cursor: Array
    counts: Array
    decoding: Array
    joining: Array
    servers: Array
    clock: Array
    running: Array
    held: Array
    added: Array
    taken: Array
    ttft: Array
    latency: Array


OWNED = PrefixLanes._fields[:15]


def make_prefix_lanes(scene: PrefixScene, lanes: int) -> PrefixLanes:
    """Empty caches before idle engines."""
    nodes, requests, engine = len(scene.chains.parent), len(scene.load.time), scene.engine
    widest = int(np.diff(scene.edges).max(initial=1))
    one: list[Array] = [*chain.empty_chain_state(nodes), *idle(engine)]
    in_flight: list[Array] = [np.zeros(requests, np.int32), np.zeros(requests, np.int32), np.zeros(1, np.int64)]
    scratch: list[Array] = [np.zeros(widest, np.float32), np.zeros(widest + engine.slots + 1, np.float32)]
    return PrefixLanes._make(np.repeat(array[None], lanes, axis=0) for array in (*one, *in_flight, *scratch))


class Lane(NamedTuple):
    """One lane's cache and engine. learned: what a policy knows of the blocks, and its rules; None for least recently
    used."""

    cache: ChainState
    learned: Learned | None
    engine: EngineState
    held: Array
    added: Array
    taken: Array


@njit(cache=True)
def _room(scene: PrefixScene, lane: Lane, capacity_blocks: int, coming_tokens: float) -> Room:
    """Blocks that the cache may hold now: its capacity, and in shared VRAM no more than what sequences leave beside
    `coming_tokens` about to be taken."""
    upper = capacity_blocks
    if scene.placement == SHARED:
        apart = lane.engine.clock[HELD] - lane.taken[0] * scene.block_tokens  # of sequences, in no block of the cache
        free = scene.engine.kv_tokens - apart - coming_tokens
        upper = min(upper, max(int(free / scene.block_tokens), 0))
    return Room(upper, scene.below_blocks)


@njit(cache=True)
def _end(scene: PrefixScene, lane: Lane, capacity_blocks: int, t: int) -> None:
    """Request t has its last token."""
    if scene.placement == SHARED:
        lane.taken[0] -= lane.added[t]
        room = _room(scene, lane, capacity_blocks, 0.0)
        now = lane.engine.clock[NOW]
        steps.release(scene.chains, lane.cache, lane.learned, room, (t, lane.held[t]), now)


@njit(cache=True)
def _leading(scene: PrefixScene, cache: ChainState, t: int) -> int:
    """Blocks of request t's prompt that lie in the upper tier."""
    first, last = scene.chains.offsets[t], scene.chains.offsets[t + 1]
    i = first
    while i < last and cache.place[scene.chains.node[i]] == chain.UPPER:
        i += 1
    return int(i - first)


@njit(cache=True)
def _await_turn(scene: PrefixScene, lane: Lane, capacity_blocks: int, t: int, latency: Array, ended: int) -> int:
    """Until request t can start. Writes the latency of those that end on the way; returns how many have by then."""
    prompt, output = float(scene.load.prompt[t]), float(scene.load.output[t])
    clock = lane.engine.clock
    while True:
        memory = memory_tokens(scene.engine, prompt, output)
        if scene.placement == SHARED:
            hit = min(float(_leading(scene, lane.cache, t) * scene.block_tokens), prompt - 1.0)
            memory -= max(hit, 0.0)
            pinned = lane.cache.cursor[chain.PINNED] - lane.taken[0]  # in use, and by none that brought them
            clock[POOL] = scene.engine.kv_tokens - pinned * scene.block_tokens
        done = wait(scene.engine, lane.engine, scene.load.time[t], memory)
        if done < 0:
            return ended
        latency[ended] = clock[NOW] - scene.load.time[done]
        ended += 1
        _end(scene, lane, capacity_blocks, done)


@njit(cache=True)
def _start(scene: PrefixScene, lane: Lane, limits: tuple[int, float], t: int) -> tuple[float, float, float]:
    """Looks request t up and launches it at the engine's present. limits: capacity (blocks), TTL (s).

    Returns tokens hit in either tier, tokens to prefill, and the time of the first token.
    """
    capacity_blocks, ttl = limits
    prompt, output, now = float(scene.load.prompt[t]), float(scene.load.output[t]), lane.engine.clock[NOW]
    own = memory_tokens(scene.engine, 0.0, output)
    room = _room(scene, lane, capacity_blocks, own)
    steps.expire(scene.chains, lane.cache, lane.learned, room, ttl, now)
    upper, lower, held = steps.admit(scene.chains, lane.cache, lane.learned, room, t, now)
    most = max(prompt - 1.0, 0.0)  # the last token of a prompt is always computed
    near = min(float(upper * scene.block_tokens), most)
    hit = min(float((upper + lower) * scene.block_tokens), most)
    transfer = 0.0
    if near > 0.0 and scene.placement == HOST:
        transfer += scene.link.latency_seconds + near * scene.link.seconds_per_token
    if hit > near:
        transfer += scene.below_link.latency_seconds + (hit - near) * scene.below_link.seconds_per_token
    memory = prompt + own
    if scene.placement == SHARED:
        memory -= near
        lane.held[t], lane.added[t] = held, held - upper
        lane.taken[0] += held - upper
    else:  # a copy is read now and needed no longer
        steps.release(scene.chains, lane.cache, lane.learned, room, (t, held), now)
    first_token = launch(scene.engine, lane.engine, t, Need(prompt - hit, transfer, output, memory))
    return hit, prompt - hit, first_token


@njit(cache=True)
def run_lane(
    scene: PrefixScene, this: Lane, index: int, settings: Array, scratch: tuple[Array, Array], row: Array
) -> None:
    """One lane through one interval under the given settings (cache_size, ttl_seconds, warmup_ratio).

    scratch: for delays. Writes the statistics to `row` (shape (STATS,), order of envs.interval.NAMES).
    """
    capacity, ttl, ratio = settings[0], settings[1], settings[2]
    at, stop = scene.edges[index], scene.edges[index + 1]
    clock, before = this.engine.clock, this.cache.counts.copy()
    blocks = int(capacity / (scene.kv_bytes_per_token * scene.block_tokens))
    clock[POOL] = scene.engine.kv_tokens
    if scene.placement == RESERVED:
        clock[POOL] = max(scene.engine.kv_tokens - capacity / scene.kv_bytes_per_token, 0.0)
    now = max(scene.start + index * scene.seconds, clock[NOW])
    room = _room(scene, this, blocks, 0.0)
    steps.expire(scene.chains, this.cache, this.learned, room, ttl, now)
    steps.resize(scene.chains, this.cache, this.learned, room, now)
    for w in range(int(np.round(ratio * scene.candidate_count[index])) - 1, -1, -1):  # the likeliest end up on top
        steps.warm(scene.chains, this.cache, this.learned, room, scene.candidates[index, w], now)

    ttft, latency, ended = scratch[0], scratch[1], 0
    shares, hit_tokens, tokens, prefill, decode, waited, slow, vram = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0
    for t in range(at, stop):
        ended = _await_turn(scene, this, blocks, t, latency, ended)
        waited += clock[NOW] - scene.load.time[t]
        hit, missed, first_token = _start(scene, this, (blocks, ttl), t)
        ttft[t - at] = first_token - scene.load.time[t]
        slow += ttft[t - at] > scene.objective
        shares += hit / max(scene.load.prompt[t], 1)
        hit_tokens += hit
        tokens += scene.load.prompt[t]
        prefill += missed * scene.engine.prefill_seconds_per_token
        decode += scene.load.output[t] * scene.gpu_seconds_per_output_token
        vram += _vram_tokens(scene, this)
    end = scene.start + (index + 1) * scene.seconds
    while True:
        done = step(scene.engine, this.engine, end)
        if done < 0:
            break
        latency[ended] = clock[NOW] - scene.load.time[done]
        ended += 1
        _end(scene, this, blocks, done)
    room, now = _room(scene, this, blocks, 0.0), max(end, clock[NOW])
    steps.expire(scene.chains, this.cache, this.learned, room, ttl, now)

    did, n = this.cache.counts - before, stop - at
    hits = did[chain.UPPER_HITS] + did[chain.LOWER_HITS]
    looked = hits + did[chain.MISSES]
    used = this.cache.cursor[chain.USED_UPPER] * scene.kv_bytes_per_token * scene.block_tokens
    row[0], row[1] = n, shares
    row[2] = shares / n if n > 0 else np.nan
    row[3] = hits / looked if looked > 0 else np.nan
    row[4] = hit_tokens / tokens if tokens > 0 else np.nan
    row[5], row[6] = 0.0, 0.0 if shares > 0 else np.nan  # keys and values do not go out of date
    row[7], row[8], row[9] = did[chain.WARMUPS], did[chain.EXPIRATIONS], did[chain.EVICTIONS]
    row[10], row[11] = used, used / capacity if capacity > 0 else np.nan
    quantiles(ttft[:n], 0, 0.0, row[12:15])
    quantiles(latency[:ended], 0, 0.0, row[15:18])
    row[18] = waited / n if n > 0 else np.nan
    row[19] = prefill / (scene.engine.replicas * scene.seconds)
    row[20] = np.nan
    if n > 0:
        reserved = capacity if scene.placement == RESERVED else 0.0
        row[20] = (scene.weights_bytes + reserved + vram / n * scene.kv_bytes_per_token) / scene.vram_bytes
    row[21] = slow
    rented = capacity * scene.seconds if scene.placement == HOST else 0.0  # VRAM is paid for with the GPU
    cost = row[COST_FROM : COST_FROM + NUM_CAUSES]
    price(scene.tariff, (prefill + decode, 0.0, rented, 0.0, float(slow)), cost)
    cost[MEMORY] += scene.below_usd


# A tenth faster; under policies, which are more code, it would take minutes to compile.
_run_lane_here = njit(cache=True, forceinline=True)(run_lane.py_func)


@njit(cache=True)
def _vram_tokens(scene: PrefixScene, lane: Lane) -> float:
    """Tokens of keys and values in VRAM now: of sequences, and of the cache where it shares their memory."""
    tokens = lane.engine.clock[HELD]
    if scene.placement == SHARED:
        tokens += (lane.cache.cursor[chain.USED_UPPER] - lane.taken[0]) * scene.block_tokens
    return float(tokens)


@njit(cache=True)
def lane_of(lanes: Any, learned: Learned | None, lane: int) -> Lane:
    """lanes: of PrefixLanes, or what has its fields."""
    return Lane(
        ChainState(
            lanes.place[lane],
            lanes.pins[lane],
            lanes.touched[lane],
            lanes.older[lane],
            lanes.newer[lane],
            lanes.cursor[lane],
            lanes.counts[lane],
        ),
        learned,
        EngineState(
            lanes.decoding[lane], lanes.joining[lane], lanes.servers[lane], lanes.clock[lane], lanes.running[lane]
        ),
        lanes.held[lane],
        lanes.added[lane],
        lanes.taken[lane],
    )


@njit(cache=True)
def run_interval(scene: PrefixScene, lanes: PrefixLanes, lane: int, index: int, settings: Array, row: Array) -> None:
    """As run_lane, of one of many."""
    scratch = lanes.ttft[lane], lanes.latency[lane]
    _run_lane_here(scene, lane_of(lanes, None, lane), index, settings, scratch, row)


@njit(cache=True, nogil=True)
def step_lanes(
    scene: PrefixScene, lanes: PrefixLanes, part: tuple[int, int], index: Array, settings: Array, rows: Array
) -> None:
    """As envs.lanes.step_lanes."""
    for lane in range(part[0], part[1]):
        run_interval(scene, lanes, lane, index[lane], settings[lane], rows[lane])


@njit(cache=True, nogil=True)
def run_static(
    scene: PrefixScene, lanes: PrefixLanes, part: tuple[int, int], stop: int, settings: Array, rows: Array
) -> None:
    """As envs.lanes.run_static."""
    for lane in range(part[0], part[1]):
        for index in range(stop):
            run_interval(scene, lanes, lane, index, settings[lane], rows[lane, index])


PREFIX = Play(OWNED, (), run_interval, step_lanes, run_static)
