"""The serving model: what the requests that a cache did not answer cost in time, GPU seconds and VRAM.

Response mode: a hit skips the backend. A miss waits, first come first served, for one of a bounded number of slots
(sequences running at once), then prefills its prompt and decodes its output. Sequences do not slow each other down
beyond the profile's per-token times, which are those of a full batch; chunked prefill and preemption are not modelled.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from caches.errors import InputError
from envs.units import GIB, described

Array = NDArray[Any]
U, ONE = np.uint64, np.uint64(1)


class ServingProfile(BaseModel):
    """One model on one kind of GPU. Data files with sources are in envs/profiles."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    vram_gib: float = described(..., "memory of one replica's GPU", "GiB", gt=0)
    weights_gib: float = described(..., "memory taken by the weights", "GiB", gt=0)
    kv_bytes_per_token: int = described(..., "keys and values kept per token of a sequence", "bytes", gt=0)
    prefill_tokens_per_second: float = described(..., "prompt tokens one GPU takes in", "tokens/s", gt=0)
    seconds_per_output_token: float = described(..., "time per token of one sequence in a full batch", "s", gt=0)
    max_sequences: int = described(..., "sequences that run at once on one replica", "sequences", gt=0, le=4096)
    hit_seconds: float = described(0.001, "latency of an answer from the cache", "s", gt=0)
    # the fields below are read by the engine of prefix caches only (envs/engine.py)
    request_overhead_seconds: float = described(0.0, "time to the first token beside prefill and waiting", "s", ge=0)
    seconds_per_output_token_alone: float | None = described(
        None, "time per token of a sequence alone in its batch; default: as in a full one", "s", gt=0
    )
    prefill_chunk_tokens: int = described(
        0, "prompt tokens that join an iteration of the batch, which they lengthen; 0: none", "tokens", ge=0
    )
    kv_tokens: int | None = described(
        None, "tokens whose keys and values fit on one GPU; default: what the weights leave", "tokens", gt=0
    )
    output_memory_share: float = described(
        1.0, "share of its output for which a sequence takes KV memory when it starts", "ratio", ge=0, le=1
    )
    sources: dict[str, str] = {}


class Serving(BaseModel):
    """How the model is deployed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: str = described("qwen2.5-7b-a100", "name of a built-in profile, or path of a TOML file", "name")
    replicas: int = described(1, "GPUs that serve the model", "GPUs", gt=0, le=1024)
    max_sequences: int | None = described(
        None,
        "sequences at once per replica where fewer than the profile's, as in a slice of a cluster",
        "sequences",
        gt=0,
    )
    sequence_tokens: int = described(
        1500, "mean tokens of a running sequence, which says how many fit beside a cache in VRAM", "tokens", gt=0
    )
    cache_in_vram: bool = described(False, "the cache takes its memory from the GPU, not from the host", "yes/no")


def load_profile(name: str) -> ServingProfile:
    """By the name of a built-in profile or the path of a TOML file; InputError names what is wrong with it."""
    builtin = resources.files("envs") / "profiles" / f"{name}.toml"
    path = Path(name)
    if builtin.is_file():
        text = builtin.read_text()
    elif path.is_file():
        text = path.read_text()
    else:
        known = sorted(
            p.name[:-5] for p in (resources.files("envs") / "profiles").iterdir() if p.name.endswith(".toml")
        )
        raise InputError(f"serving profile: got {name!r}, expected a TOML file or one of {', '.join(known)}")
    try:
        return ServingProfile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{name}: not a TOML file: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{name}, {field}: got {first['input']!r}, expected: {first['msg']}") from error


class Backend(NamedTuple):
    """The serving model as numbers, over all replicas. slots: sequences at once, with no cache in VRAM."""

    prefill_seconds_per_token: float
    decode_seconds_per_token: float
    gpu_seconds_per_output_token: float
    hit_seconds: float
    slots: int
    vram_bytes: float
    weights_bytes: float
    kv_bytes_per_token: float
    cache_in_vram: bool


def backend_of(profile: ServingProfile, serving: Serving) -> Backend:
    """GPU seconds per output token: a slot's decode time, shared by the sequences of a full batch."""
    return Backend(
        1.0 / profile.prefill_tokens_per_second,
        profile.seconds_per_output_token,
        profile.seconds_per_output_token / profile.max_sequences,
        profile.hit_seconds,
        (serving.max_sequences or profile.max_sequences) * serving.replicas,
        profile.vram_gib * GIB * serving.replicas,
        profile.weights_gib * GIB * serving.replicas,
        float(profile.kv_bytes_per_token),
        serving.cache_in_vram,
    )


def gpu_seconds(backend: Backend, prompt_tokens: Array, output_tokens: Array) -> Array:
    """GPU seconds that each request costs when it is not answered from the cache, float32."""
    prefill = prompt_tokens * backend.prefill_seconds_per_token
    return np.asarray(prefill + output_tokens * backend.gpu_seconds_per_output_token, np.float32)


class Load(NamedTuple):
    """Columns that the serving model reads, one row per request of the trace: time (float64, s), prompt and output
    (int32, tokens)."""

    time: Array
    prompt: Array
    output: Array


@njit(cache=True)
def slots_left(backend: Backend, cache_bytes: float, sequence_tokens: float) -> int:
    """Sequences that still run at once when a cache of this size lives in VRAM: what the weights and the cache leave,
    in sequences of the given mean length; at least one, at most all."""
    if not backend.cache_in_vram:
        return backend.slots
    free = backend.vram_bytes - backend.weights_bytes - cache_bytes
    return int(min(max(free / (backend.kv_bytes_per_token * sequence_tokens), 1.0), backend.slots))


NOTHING_SERVED = (0.0, 0.0, 0, 0.0)


@njit(cache=True)
def serve(
    backend: Backend,
    load: Load,
    missed: Array,
    slots: Array,
    objective: float,
    delays: tuple[Array, Array],
) -> tuple[float, float, int, float]:
    """Queues misses and times every one.

    missed: int32, positions of the requests, in order of arrival. slots: float64, the times at which each slot is free,
    as a binary heap with one infinity behind it; updated. objective: seconds to the first token beyond which a request
    counts as slow. delays: two float32 arrays that receive, a row a miss, the time to the first token and the whole
    latency (s).
    Returns seconds waited (sum), slot seconds taken, slow requests, and KV token seconds held (a sequence holds its
    prompt and, on average, half its output).
    """
    return serve_on(backend, load, missed, slots, objective, delays, NOTHING_SERVED)


@njit(cache=True)
def serve_on(
    backend: Backend,
    load: Load,
    missed: Array,
    slots: Array,
    objective: float,
    delays: tuple[Array, Array],
    before: tuple[float, float, int, float],
) -> tuple[float, float, int, float]:
    """`serve` for the rest of some misses. before: what it returned for those before; NOTHING_SERVED where there are
    none."""
    time, prompt, output = load
    ttft, latency = delays
    size = U(slots.size - 1)
    waited, busy, slow, held = before
    for m in range(missed.size):
        t = U(missed[m])
        now = time[t]
        begin = max(now, slots[0])
        prefill = prompt[t] * backend.prefill_seconds_per_token
        service = prefill + output[t] * backend.decode_seconds_per_token
        # the earliest slot takes it: put its new free time at the root and let it sink
        done = begin + service
        i, child = U(0), U(1)
        while child < size:
            child += U(slots[child + ONE] < slots[child])
            if slots[child] >= done:
                break
            slots[i] = slots[child]
            i = child
            child = i + i + ONE
        slots[i] = done
        first_token = max(begin - now + prefill, backend.hit_seconds)
        ttft[m] = first_token
        latency[m] = max(begin - now + service, backend.hit_seconds)
        slow += first_token > objective
        waited += begin - now
        busy += service
        held += service * (prompt[t] + 0.5 * output[t])
    return waited, busy, slow, held


QUANTILES = (0.5, 0.95, 0.99)


@njit(cache=True)
def quantiles(delays: Array, hits: int, hit_seconds: float, into: Array) -> None:
    """Nearest-rank QUANTILES over hits (all at hit_seconds, never slower than a miss) and misses, written to `into`;
    NaN without any. Reorders `delays`: each selection goes on where the one before left the larger values."""
    total = hits + delays.size
    low = 0
    for q in range(len(QUANTILES)):
        rank = max(int(np.ceil(QUANTILES[q] * total)), 1) - hits - 1
        if total == 0:
            into[q] = np.nan
        elif rank < 0:
            into[q] = hit_seconds
        else:
            _select(delays, low, rank)
            into[q] = delays[rank]
            low = rank


@njit(cache=True)
def _select(values: Array, low: int, rank: int) -> None:
    """Hoare's selection: afterwards values[rank] is the one of that rank among values[low:], and nothing right of it is
    smaller."""
    high = values.size - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[U(i)] < pivot:
                i += 1
            while pivot < values[U(j)]:
                j -= 1
            if i <= j:
                values[U(i)], values[U(j)] = values[U(j)], values[U(i)]
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            return
