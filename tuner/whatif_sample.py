"""A what-if on a trace that holds the requests of a share of the keys: the cache and its backend in miniature.

A cache of the same share of the bytes, in front of the same share of the sequences, is asked; what it says is scaled up
to the whole trace. As in `traces.whatif.sampled_surface`, misses are scaled, and what is missing to the number of
lookups, which is known, are hits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from caches.knobs import KnobSettings
from envs.interval import COLUMN, column
from envs.serving import load_profile
from envs.world import World
from traces.key_sample import KeySample
from tuner.config import TunerConfig
from tuner.whatif_result import HeldOut, Knee, Priced, Sampled, Saving, UnderPolicy, WhatIf

Array = NDArray[Any]


def miniature(config: TunerConfig, share: float) -> TunerConfig:
    """The same settings for a share of the keys. InputError for what cannot be made smaller."""
    if config.cache.kind != "response":
        raise InputError("cache.kind: got prefix, expected response: a prompt's blocks are not sampled by key")
    if config.serving.cache_in_vram:
        raise InputError("serving.cache_in_vram: got true, expected false: part of a GPU cannot be modelled")
    size, cache = config.knobs.cache_size, config.cache
    limits = {name: _scaled(getattr(size, name), share) for name in ("low", "high", "default")}
    knobs = config.knobs.model_copy(update={"cache_size": size.model_copy(update=limits)})
    replicas, each = _sequences(config, share)
    return config.model_copy(
        update={
            "knobs": knobs,
            "serving": config.serving.model_copy(update={"replicas": replicas, "max_sequences": each}),
            "cache": cache.model_copy(update={"warmup_candidates": max(1, round(share * cache.warmup_candidates))}),
        }
    )


def resized(settings: KnobSettings, factor: float) -> KnobSettings:
    return replace(settings, cache_size=settings.cache_size * factor)


def expected_reads(world: World) -> Array | None:
    """Lookups in each interval, float64 (intervals,), that a share of the keys would have if all keys were asked for
    equally often; None where the trace is whole."""
    sample = world.problem.trace.sample
    if sample is None:
        return None
    edges = world.timeline.start_seconds + world.timeline.interval_seconds * np.arange(len(world) + 1)
    return sample.share * sample.lookups.between(edges)


def adjusted(rows: Array, expected: Array | None) -> Array:
    """Statistics (settings, intervals, STATS) of a sample of keys with the hits that it would have if it had as many
    lookups as expected; outdated answers follow the hits."""
    if expected is None:
        return rows
    changed, requests, hits = rows.copy(), column(rows, "requests"), column(rows, "hits")
    wanted = np.maximum(expected - (requests - hits), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        more = np.where(hits > 0, wanted / hits, 1.0)
        ratio = wanted / expected
    for name in ("stale_answers", "staleness_usd"):
        changed[..., COLUMN[name]] *= more
    for name, value in (("requests", expected), ("hits", wanted), ("hit_ratio", ratio)):
        changed[..., COLUMN[name]] = value
    return changed


def enlarged(result: WhatIf, config: TunerConfig, sample: KeySample) -> WhatIf:
    """What a miniature's result says of the whole trace. config: of the whole."""
    up = 1.0 / sample.share
    sizes, ttls = result.axes
    subject = replace(
        result.subject,
        requests=sample.requests.total,
        footprint_bytes=result.subject.footprint_bytes * up,
        serving=config.serving.model_dump(),
        keys_read=sample.share,
    )
    held, sampled = result.held_out, result.sampled
    return replace(
        result,
        subject=subject,
        axes=(replace(sizes, values=sizes.values * up), ttls),
        knee=_knee(result.knee, up),
        current=_priced(result.current, up),
        best=_priced(result.best, up),
        saving=_saving(result.saving, up),
        held_out=None if held is None else _held_out(held, up),
        policies=tuple(_under(one, up) for one in result.policies),
        sampled=None if sampled is None else Sampled(sampled.samples, sampled.share * sample.share),
        notes=(*_notes(config, sample, result.subject.requests), *result.notes),
    )


def _scaled(value: float | None, share: float) -> float | None:
    return None if value is None else value * share


def _sequences(config: TunerConfig, share: float) -> tuple[int, int]:
    """(replicas, sequences of each) that come nearest to a share of all sequences: full replicas, or one with fewer."""
    each = _full(config)
    wanted = share * each * config.serving.replicas
    return (max(1, round(wanted / each)), each) if wanted >= each else (1, max(1, round(wanted)))


def _full(config: TunerConfig) -> int:
    """Sequences of one replica."""
    return config.serving.max_sequences or load_profile(config.serving.profile).max_sequences


def _priced(one: Priced, up: float) -> Priced:
    return replace(
        one,
        settings=resized(one.settings, up),
        usd_per_day=one.usd_per_day * up,
    )


def _saving(saving: Saving, up: float) -> Saving:
    return replace(saving, usd_per_day=saving.usd_per_day * up)


def _knee(knee: Knee | None, up: float) -> Knee | None:
    return None if knee is None else replace(knee, value=knee.value * up)


def _under(one: UnderPolicy, up: float) -> UnderPolicy:
    return replace(one, knee=_knee(one.knee, up), best=_priced(one.best, up), saving=_saving(one.saving, up))


def _held_out(held: HeldOut, up: float) -> HeldOut:
    return replace(held, settings=resized(held.settings, up), saving=_saving(held.saving, up))


def _notes(config: TunerConfig, sample: KeySample, held: int) -> tuple[str, ...]:
    replicas, each = _sequences(config, sample.share)
    whole = config.serving.replicas * _full(config)
    return (
        f"Of the trace's {sample.requests.total:,} requests those of {sample.share:.3%} of the keys were read "
        f"({held:,}); everything is scaled up from them.",
        f"Waiting is that of {replicas * each:,} sequences in place of {whole:,}: at the same load more requests wait "
        "when there are fewer, so slow requests and the P99 first token are rather overstated.",
    )
