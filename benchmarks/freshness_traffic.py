"""Traffic of the benchmark of freshness: composed requests in namespaces whose answers change at known times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.freshness.replay import Arrived, Changes
from caches.freshness.schedules import quality_share, useful_rounds
from envs.serving import Serving, backend_of, gpu_seconds, load_profile
from traces.trace import Trace

Array = NDArray[Any]
Draw = Callable[[float, int, float, np.random.Generator], tuple[Array, Array]]

PROFILE = "qwen-7b-a100"
HOUR, DAY = 3_600.0, 86_400.0
MEAN_SECONDS = (6.0 * HOUR, DAY, 7.0 * DAY, None)  # between two changes of an answer, by namespace; None: never


@dataclass(frozen=True)
class Traffic:
    """late: requests that are counted, the second half of the days. gpu_seconds: of each on a miss."""

    arrived: Arrived
    late: Array
    gpu_seconds: Array
    quality: Array
    sampling: Array


def drawn_traffic(trace: Trace, count: int, rng: np.random.Generator) -> Traffic:
    """Namespaces, temperatures and logprobs are drawn once per key, independent of everything else."""
    key, seconds = trace.key[:count], trace.arrival_seconds[:count] - trace.arrival_seconds[0]
    namespace = rng.integers(0, len(MEAN_SECONDS), trace.num_keys)
    bits, logprob = rng.uniform(0.0, 4.0, trace.num_keys), -rng.exponential(0.5, trace.num_keys)
    quality = np.array([quality_share(one, other, ()) for one, other in zip(bits, logprob, strict=True)])
    rounds = useful_rounds(0.7, 1.0)
    sampling = np.where(rng.random(trace.num_keys) < 0.3, min(1.0, rounds / 8.0), 1.0)
    hours = (seconds // HOUR).astype(np.int64)
    failing = rng.random(int(hours[-1]) + 1) < 0.02
    arrived = Arrived(
        seconds,
        key,
        trace.num_keys,
        namespace[key],
        failed=failing[hours] & (rng.random(count) < 0.5),
    )
    backend = backend_of(load_profile(PROFILE), Serving())
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    work = gpu_seconds(backend, trace.prompt_tokens[:count], trace.output_tokens[:count])
    return Traffic(arrived, seconds >= seconds[-1] / 2.0, np.asarray(work, np.float64), quality[key], sampling[key])


def drawn_changes(arrived: Arrived, draw: Draw, rng: np.random.Generator) -> Changes:
    span, keys, seconds = float(arrived.seconds[-1]) + 1.0, [], []
    for number, mean in enumerate(MEAN_SECONDS):
        mine = np.unique(arrived.key[arrived.namespace == number])
        if mean is not None:
            which, when = draw(mean, len(mine), span, rng)
            keys.append(mine[which])
            seconds.append(when)
    key, when = np.concatenate(keys), np.concatenate(seconds)
    order = np.lexsort((when, key))
    return Changes(key[order].astype(np.int64), when[order])


def _exponential(mean: float, keys: int, span: float, rng: np.random.Generator) -> tuple[Array, Array]:
    counts = rng.poisson(span / mean, keys)
    return np.repeat(np.arange(keys), counts), rng.uniform(0.0, span, int(counts.sum()))


def _timetable(mean: float, keys: int, span: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Each key at even distances, from a time of its own on."""
    times = rng.uniform(0.0, mean, keys)[:, None] + mean * np.arange(int(span / mean) + 1)[None, :]
    which = np.broadcast_to(np.arange(keys)[:, None], times.shape)
    inside = times < span
    return which[inside], times[inside]


def _mixed(mean: float, keys: int, span: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """A tenth of the keys have half of the changes."""
    rate = np.where(rng.random(keys) < 0.1, 5.0, 5.0 / 9.0) / mean
    counts = rng.poisson(rate * span)
    return np.repeat(np.arange(keys), counts), rng.uniform(0.0, span, int(counts.sum()))


PROCESSES: Mapping[str, Draw] = {
    "changes at random (exponential)": _exponential,
    "changes on a timetable": _timetable,
    "a tenth of the keys has half of the changes": _mixed,
}
