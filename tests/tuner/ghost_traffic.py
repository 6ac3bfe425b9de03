"""Traffic for the tests of live ghosts: traces handed out interval by interval as a key stream would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from caches.knobs import Knob, KnobSpace
from caches.shadow.sampling import mixed
from caches.stats import Expiry
from caches.target import Plan, Split
from envs.ghost_lanes import Terms
from envs.journal import Batch
from envs.reward import tariff_of
from envs.serving import Serving, backend_of
from envs.world import Problem, World
from tests.envs.worlds import INTERVAL_SECONDS, KNOBS, PRICES, PROFILE, SETTINGS, problem
from traces.trace import Trace, TraceInfo
from tuner.keys.ghosts import LiveGhosts
from tuner.keys.stream import Pending, Taken
from tuner.keys.view import GhostRules, KeyInterval, Viewpoint

Array = np.ndarray[Any, Any]
HERE = Viewpoint(KNOBS, SETTINGS)
ALONE = Plan(Split(), SETTINGS, SETTINGS)


def rules_of(wanted: Problem, **changes: Any) -> GhostRules:
    terms = Terms(
        backend_of(wanted.profile, wanted.serving),
        tariff_of(wanted.prices),
        wanted.constraints.p99_ttft_seconds,
        float(wanted.serving.sequence_tokens),
        wanted.expiry is Expiry.SINCE_TOUCH,
        wanted.warmup_candidates,
        wanted.popularity_decay,
        (wanted.policy,),
    )
    return GhostRules(terms, wanted.constraints, wanted.entry_overhead_bytes, 1_000, 4.0, **changes)


def everything(world: World, seed: int = 7, treatment: Array | None = None) -> Batch:
    """All requests of a world's trace. seed: of the keys' hashes."""
    trace = world.problem.trace
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    return Batch(
        mixed(trace.key.astype(np.uint64), seed),
        trace.arrival_seconds,
        trace.size_bytes,
        np.full(len(trace), np.nan, np.float32),
        trace.prompt_tokens,
        trace.output_tokens,
        np.zeros(len(trace), np.bool_) if treatment is None else treatment,
    )


def intervals(world: World, ghosts: LiveGhosts, batch: Batch, plan: Plan = ALONE) -> Iterator[KeyInterval]:
    """Each of the world's, after it was closed."""
    pending = Pending()
    pending.add(batch)
    for index in range(len(world)):
        ghosts.begin(world.timeline.begin(index), INTERVAL_SECONDS)
        ghosts.feed(pending.take(world.timeline.begin(index) + 4.0))
        ghosts.feed(pending.take(world.timeline.begin(index + 1)))
        yield ghosts.close(plan)


def handed(batch: Batch) -> Taken:
    pending = Pending()
    pending.add(batch)
    return pending.take(np.inf)


def asked(keys: Sequence[int] | Array, times: Sequence[float] | Array) -> Batch:
    """Requests for answers of 100 bytes."""
    ones = np.ones(len(keys), np.int32)
    ids = mixed(np.asarray(keys, np.uint64), 1)
    none = np.full(len(keys), np.nan, np.float32)
    return Batch(ids, np.asarray(times, np.float64), 100 * ones, none, 50 * ones, 5 * ones, ones == 0)


def popular(keys: int, requests: int, intervals: int) -> Problem:
    """Popularity falls as the 0.8th power of the rank. A fifth of what there is fits, lifetimes are six intervals, and
    nobody waits for the backend: small caches have small queues, which is another matter."""
    rng = np.random.default_rng(1)
    weight = np.arange(1, keys + 1) ** -0.8
    rank = np.searchsorted(np.cumsum(weight / weight.sum()), rng.random(requests)).clip(0, keys - 1)
    _, key = np.unique(rng.permutation(keys)[rank], return_inverse=True)
    span = (intervals + 0.5) * INTERVAL_SECONDS
    size = rng.integers(500, 3_000, keys).astype(np.int32)
    trace = Trace(
        TraceInfo("popular", "seed 1"),
        np.linspace(0.0, span, requests),
        key.astype(np.int32),
        size[key],
        int(key.max()) + 1,
        prompt_tokens=rng.integers(100, 900, requests).astype(np.int32),
        output_tokens=rng.integers(10, 80, requests).astype(np.int32),
    )
    bytes_in_all = float(size.sum())
    size_knob = Knob("cache_size", "bytes", 0.02 * bytes_in_all, bytes_in_all, 0.2 * bytes_in_all, 0.1, "log")
    ttl_knob = Knob("ttl_seconds", "seconds", 5.0, 200.0, 60.0, 0.2, "log")
    profile = PROFILE.model_copy(update={"max_sequences": 4_000, "prefill_tokens_per_second": 10_000.0})
    knobs = KnobSpace(size_knob, ttl_knob, KNOBS.warmup_ratio)
    prices = PRICES.model_copy(update={"memory_usd_per_gib_hour": 40.0, "answer_lifetime_seconds": 600.0})
    serving = Serving()
    return problem(trace, knobs=knobs, profile=profile, prices=prices, serving=serving, warmup_candidates=100)
