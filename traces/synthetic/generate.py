"""From the parts of a synthetic workload to a trace."""

from __future__ import annotations

import numpy as np

from caches.errors import InputError
from traces.encode import renumber
from traces.per_key import Int64Array, per_key_lognormal
from traces.synthetic.arrivals import poisson_times, steady_times
from traces.synthetic.catalogue import drifting_keys, zipf_ranks
from traces.synthetic.describe import assumptions
from traces.synthetic.draw import Draw, block_chains, merge, standalone
from traces.synthetic.parts import SyntheticWorkload
from traces.synthetic.sessions import session_requests
from traces.synthetic.streams import Part, Stream, generator, prompt_ids, with_generation
from traces.trace import FloatArray, Int32Array, Trace, TraceInfo


def synthesise(workload: SyntheticWorkload, seed: int, name: str = "synthetic") -> Trace:
    """Draw the trace. The same workload and seed give the same trace, to the last bit.

    Raises InputError if the seed is negative, or if no request falls into the trace.
    """
    if seed < 0:
        raise InputError(f"seed: got {seed}, expected a whole number from 0 on")
    launches = np.sort(np.array([launch.at_hours * 3600 for launch in workload.launches], dtype=np.float64))
    draws = [_catalogue(workload, launches, seed)]
    if workload.sessions is not None:
        draws.append(session_requests(workload, workload.sessions, launches, seed))
    draws += [_flash_crowd(workload, i, launches, seed) for i in range(len(workload.flash_crowds))]
    draws += [_scan(workload, i, launches, seed) for i in range(len(workload.scans))]
    return _assemble(workload, merge(draws), seed, name)


def _catalogue(workload: SyntheticWorkload, launches: FloatArray, seed: int) -> Draw:
    popularity = workload.popularity
    times = poisson_times(workload.rate, 1.0, 0, workload.span_seconds, generator(seed, Stream.ARRIVALS))
    ranks = zipf_ranks(len(times), popularity.num_keys, popularity.alpha, generator(seed, Stream.RANKS))
    keys = ranks
    if workload.drift is not None:
        rng = generator(seed, Stream.DRIFT)
        keys = drifting_keys(ranks, times, popularity.num_keys, workload.drift, rng)
    draw = _prompts(workload, times, prompt_ids(Part.CATALOGUE, keys), launches, seed)
    if workload.sessions is None:
        return draw
    # Sessions take over a share of the catalogue's traffic: which of its requests give way is their draw.
    stays = generator(seed, Stream.SESSIONS, 1).random(len(times)) >= workload.sessions.share
    return draw.take(np.flatnonzero(stays))


def _flash_crowd(workload: SyntheticWorkload, index: int, launches: FloatArray, seed: int) -> Draw:
    crowd = workload.flash_crowds[index]
    rng = generator(seed, Stream.FLASH_CROWD, index)
    start = crowd.at_hours * 3600
    stop = min(start + crowd.duration_hours * 3600, workload.span_seconds)
    times = poisson_times(workload.rate, crowd.multiplier - 1, start, stop, rng)
    keys = rng.integers(crowd.num_keys, size=len(times))
    return _prompts(workload, times, prompt_ids(Part.FLASH_CROWD, keys, index), launches, seed)


def _scan(workload: SyntheticWorkload, index: int, launches: FloatArray, seed: int) -> Draw:
    scan = workload.scans[index]
    start = scan.at_hours * 3600
    stop = min(start + scan.duration_hours * 3600, workload.span_seconds)
    times = steady_times(scan.rps, start, stop, generator(seed, Stream.SCAN, index))
    return _prompts(workload, times, prompt_ids(Part.SCAN, np.arange(len(times)), index), launches, seed)


def _prompts(
    workload: SyntheticWorkload,
    times: FloatArray,
    prompts: Int64Array,
    launches: FloatArray,
    seed: int,
) -> Draw:
    """Requests outside sessions, whose prompt length does not depend on other requests."""
    tokens = workload.tokens
    length = per_key_lognormal(prompts, tokens.prompt_median, tokens.prompt_sigma, seed, Stream.PROMPT_TOKENS)
    generation = np.searchsorted(launches, times, side="right").astype(np.int64)
    return standalone(times, with_generation(prompts, generation), length)


def _assemble(workload: SyntheticWorkload, draw: Draw, seed: int, name: str) -> Trace:
    key, num_keys = renumber(draw.key_id)
    sessions = workload.sessions
    chains = None if sessions is None else block_chains(draw, sessions.block_size_tokens)
    return Trace(
        info=TraceInfo(
            name=name,
            source=f"Setpoint synthetic workload, seed {seed}",
            assumptions=assumptions(workload, seed),
            block_size_tokens=None if sessions is None else sessions.block_size_tokens,
        ),
        arrival_seconds=draw.arrival_seconds,
        key=key,
        size_bytes=_sizes(workload, draw, seed),
        num_keys=num_keys,
        prompt_tokens=draw.prompt_tokens,
        output_tokens=_output_tokens(workload, draw, seed),
        block_offsets=None if chains is None else chains[0],
        block_hashes=None if chains is None else chains[1],
    )


def _sizes(workload: SyntheticWorkload, draw: Draw, seed: int) -> Int32Array:
    sizes = workload.sizes
    return per_key_lognormal(draw.key_id, sizes.median_bytes, sizes.sigma, seed, Stream.SIZES)


def _output_tokens(workload: SyntheticWorkload, draw: Draw, seed: int) -> Int32Array:
    tokens = workload.tokens
    return per_key_lognormal(draw.key_id, tokens.output_median, tokens.output_sigma, seed, Stream.OUTPUT_TOKENS)
