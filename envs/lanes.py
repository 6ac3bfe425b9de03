"""Many caches side by side over one trace: the kernel that one environment step, and every ghost, runs through."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.shadow import kernel
from envs.interval import COLUMN
from envs.reward import CAUSES, Tariff, price, stale_share
from envs.serving import NOTHING_SERVED, Backend, Load, quantiles, serve_on, slots_left

Array = NDArray[Any]
COST_FROM = COLUMN["compute_usd"]
NUM_CAUSES = len(CAUSES)
U = np.uint64


class Scene(NamedTuple):
    """All that lanes share and only read. gpu: float32, GPU seconds of each request on a miss. edges, start, seconds:
    the timeline. candidates, candidate_count: whom a warm-up would fetch. objective: seconds to the first token."""

    requests: kernel.Requests
    load: Load
    gpu: Array
    edges: Array
    start: float
    seconds: float
    candidates: Array
    candidate_count: Array
    backend: Backend
    tariff: Tariff
    objective: float
    sequence_tokens: float
    since_touch: bool


class Lanes(NamedTuple):
    """What each lane owns; the first axis is the lane. slots: float64 (lanes, slots + 1), slots_used: int64 (lanes,).
    The rest is a kernel.State and scratch space."""

    entry: Array
    cursor: Array
    counts: Array
    warm_at: Array
    warm_key: Array
    warm_time: Array
    slots: Array
    slots_used: Array
    fetched: Array
    outcome: Array
    age: Array
    missed: Array
    ttft: Array
    latency: Array


OWNED = Lanes._fields[:8]  # the state proper; what follows is scratch


def make_lanes(scene: Scene, num_keys: int, lanes: int, warmup_room: int) -> Lanes:
    """Empty caches before idle backends."""
    widest = int(np.diff(scene.edges).max(initial=1))
    return Lanes(
        np.full((lanes, num_keys, 3), kernel.ABSENT, np.int32),
        np.zeros((lanes, kernel.CURSORS), np.int64),
        np.zeros((lanes, kernel.COUNTS), np.int64),
        np.zeros((lanes, warmup_room), np.int32),
        np.zeros((lanes, warmup_room), np.int32),
        np.zeros((lanes, warmup_room), np.float64),
        _idle_slots(lanes, scene.backend.slots),
        np.full(lanes, scene.backend.slots, np.int64),
        np.zeros((lanes, max(scene.candidates.shape[1], 1)), np.int32),
        np.zeros((lanes, widest), np.uint8),
        np.zeros((lanes, widest), np.float32),
        np.zeros((lanes, widest + 1), np.int32),
        np.zeros((lanes, widest), np.float32),
        np.zeros((lanes, widest), np.float32),
    )


def _idle_slots(lanes: int, slots: int) -> Array:
    """All free, and the infinity that `serve` wants behind the heap."""
    return np.concatenate((np.full((lanes, slots), -np.inf), np.full((lanes, 1), np.inf)), axis=1)


@njit(cache=True)
def _resize_slots(slots: Array, used: int, wanted: int, now: float) -> None:
    """Changes how many slots there are; the busiest stay. A sorted array is a heap."""
    ordered = np.sort(slots[:used])
    if wanted < used:
        slots[:wanted] = ordered[used - wanted :]
    else:
        slots[:used] = ordered
        slots[used:wanted] = now
        slots[:wanted] = np.sort(slots[:wanted])
    slots[wanted] = np.inf


@njit(cache=True)
def count_outcomes(
    scene: Scene, lanes: Lanes, lane: int, span: tuple[int, int]
) -> tuple[int, float, float, float, float]:
    """Misses (their positions go to lanes.missed), their GPU seconds, tokens asked for, tokens answered from the cache,
    expected stale answers."""
    start, stop = span
    outcome, age, missed = lanes.outcome[lane], lanes.age[lane], lanes.missed[lane]
    prompt, output, gpu = scene.load.prompt, scene.load.output, scene.gpu
    lifetime = scene.tariff.answer_lifetime_seconds
    misses, compute, tokens, hit_tokens, stale = 0, 0.0, 0.0, 0.0, 0.0
    for t in range(start, stop):  # no branches: which request hits is what no processor can guess
        hit, miss = outcome[U(t - start)] == kernel.HIT, outcome[U(t - start)] == kernel.MISS
        both = float(prompt[U(t)] + output[U(t)])
        tokens += both * (hit or miss)
        hit_tokens += both * hit
        stale += stale_share(age[U(t - start)], lifetime) * hit
        compute += gpu[U(t)] * miss
        missed[U(misses)] = t
        misses += miss
    return misses, compute, tokens, hit_tokens, stale


@njit(cache=True)
def run_interval(scene: Scene, lanes: Lanes, lane: int, index: int, settings: Array, row: Array) -> None:
    """One lane through one interval under the given settings (cache_size, ttl_seconds, warmup_ratio).

    Writes the statistics to `row` (shape (STATS,), order of envs.interval.NAMES).
    """
    now = scene.start + index * scene.seconds
    at, stop = scene.edges[index], scene.edges[index + 1]
    state = state_of(lanes, lane)
    before = state.counts.copy()
    limits = kernel.Limits(int(settings[0]), settings[1], scene.since_touch)
    moment = kernel.Moment(at, now, now + scene.seconds)
    record = kernel.Record(lanes.fetched[lane], lanes.outcome[lane], lanes.age[lane])
    wanted = int(np.round(settings[2] * scene.candidate_count[index]))
    candidates = scene.candidates[index, :wanted]
    taken = kernel.advance(scene.requests, state, limits, moment, candidates, stop, record)
    warm_compute = 0.0
    for w in range(taken):
        warm_compute += scene.gpu[lanes.fetched[lane, w]]
    misses, compute, tokens, hit_tokens, stale = count_outcomes(scene, lanes, lane, (at, stop))
    counted = (taken, warm_compute, misses, compute, tokens, hit_tokens, stale)
    open_slots(scene, lanes, lane, now, settings)
    served = serve_misses(scene, lanes, lane, (0, misses), NOTHING_SERVED)
    account(scene, lanes, lane, settings, before, counted, served, row)


@njit(cache=True)
def state_of(lanes: Lanes, lane: int) -> kernel.State:
    """The cache of a lane."""
    return kernel.State(
        lanes.entry[lane],
        lanes.cursor[lane],
        lanes.counts[lane],
        lanes.warm_at[lane],
        lanes.warm_key[lane],
        lanes.warm_time[lane],
    )


@njit(cache=True)
def open_slots(scene: Scene, lanes: Lanes, lane: int, now: float, settings: Array) -> None:
    """As many as the cache leaves room for, from now on."""
    slots = slots_left(scene.backend, settings[0], scene.sequence_tokens)
    if slots != lanes.slots_used[lane]:
        _resize_slots(lanes.slots[lane], lanes.slots_used[lane], slots, now)
        lanes.slots_used[lane] = slots


@njit(cache=True)
def serve_misses(
    scene: Scene, lanes: Lanes, lane: int, part: tuple[int, int], before: tuple[float, float, int, float]
) -> tuple[float, float, int, float]:
    """Misses part[0] to part[1] - 1 of lanes.missed; the rest as envs.serving.serve says."""
    start, stop = part
    delays = (lanes.ttft[lane, start:], lanes.latency[lane, start:])
    slots = lanes.slots[lane, : lanes.slots_used[lane] + 1]
    return serve_on(scene.backend, scene.load, lanes.missed[lane, start:stop], slots, scene.objective, delays, before)


@njit(cache=True)
def account(
    scene: Scene,
    lanes: Lanes,
    lane: int,
    settings: Array,
    before: Array,
    counted: tuple[int, float, int, float, float, float, float],
    served: tuple[float, float, int, float],
    row: Array,
) -> None:
    """What a lane's interval comes to, once its requests are replayed and its misses served: writes the statistics.

    before: the cache's counts when it began. counted: warm-ups, their GPU seconds, and what `count_outcomes` says.
    served: as `serve_misses` says; the misses' delays are in lanes.ttft and lanes.latency, which are reordered.
    """
    capacity = settings[0]
    taken, warm_compute, misses, compute, tokens, hit_tokens, stale = counted
    waited, busy, slow, held = served
    slots, delays = lanes.slots_used[lane], (lanes.ttft[lane], lanes.latency[lane])
    done = lanes.counts[lane] - before
    hits = done[kernel.HITS]
    requests = hits + misses
    asked = done[kernel.HIT_BYTES] + done[kernel.MISS_BYTES]
    used = lanes.cursor[lane, kernel.USED]
    hit_seconds = scene.backend.hit_seconds
    vram = scene.backend.weights_bytes + held * scene.backend.kv_bytes_per_token / scene.seconds
    if scene.backend.cache_in_vram:
        vram += capacity
    row[0] = requests
    row[1] = hits
    row[2] = hits / requests if requests > 0 else np.nan
    row[3] = done[kernel.HIT_BYTES] / asked if asked > 0 else np.nan
    row[4] = hit_tokens / tokens if tokens > 0 else np.nan
    row[5] = stale
    row[6] = stale / hits if hits > 0 else np.nan
    row[7] = taken
    row[8] = done[kernel.EXPIRATIONS]
    row[9] = done[kernel.EVICTIONS]
    row[10] = used
    row[11] = used / capacity if capacity > 0 else np.nan
    quantiles(delays[0][:misses], hits, hit_seconds, row[12:15])
    quantiles(delays[1][:misses], hits, hit_seconds, row[15:18])
    row[18] = waited / requests if requests > 0 else np.nan
    row[19] = busy / (slots * scene.seconds)
    row[20] = vram / scene.backend.vram_bytes
    row[21] = slow
    use = (compute, warm_compute, capacity * scene.seconds, stale, float(slow))
    price(scene.tariff, use, row[COST_FROM : COST_FROM + NUM_CAUSES])


@njit(cache=True, nogil=True)
def step_lanes(scene: Scene, lanes: Lanes, part: tuple[int, int], index: Array, settings: Array, rows: Array) -> None:
    """Lanes part[0] to part[1] - 1, each through its own interval, without holding Python's lock.

    index: int64 (lanes,). settings: (lanes, 3). rows: (lanes, STATS).
    """
    for lane in range(part[0], part[1]):
        run_interval(scene, lanes, lane, index[lane], settings[lane], rows[lane])


@njit(cache=True, nogil=True)
def run_static(scene: Scene, lanes: Lanes, part: tuple[int, int], stop: int, settings: Array, rows: Array) -> None:
    """Lanes part[0] to part[1] - 1, each under its own fixed settings through intervals 0 to stop - 1, without holding
    Python's lock. rows: (lanes, stop, STATS)."""
    for lane in range(part[0], part[1]):
        for index in range(stop):
            run_interval(scene, lanes, lane, index, settings[lane], rows[lane, index])


class Play(NamedTuple):
    """The kernels of one kind of cache: run_interval, step_lanes, run_static as above.

    owned: names of the arrays in its lanes that are state, lane axis first; the others are scratch. growing: those of
    them that need more room with every warm-up.
    """

    owned: tuple[str, ...]
    growing: tuple[str, ...]
    run_interval: Callable[..., None]
    step_lanes: Callable[..., None]
    run_static: Callable[..., None]


RESPONSE = Play(OWNED, OWNED[3:6], run_interval, step_lanes, run_static)


def fork(play: Play, lanes: Any, source: int, target: int) -> None:
    """Makes one lane a copy of another."""
    for name in play.owned:
        array = getattr(lanes, name)
        array[target] = array[source]


class Crew:
    """Threads that share lanes among themselves."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads, "lanes") if threads > 1 else None

    def share(self, work: Callable[[tuple[int, int]], None], lanes: int) -> None:
        """Calls `work` on ranges that cover all lanes; returns when all is done, raises what any raised."""
        if self._pool is None:
            work((0, lanes))
            return
        bounds = [lanes * part // self.threads for part in range(self.threads + 1)]
        list(self._pool.map(work, itertools.pairwise(bounds)))
