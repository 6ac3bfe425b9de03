"""From settings to a control problem."""

from __future__ import annotations

import numpy as np

from agents.bundle import PolicyBundle
from agents.study import Split
from caches.errors import InputError, Mismatch
from caches.policies.pair import CachePolicy
from caches.shadow.trie import chains_of
from caches.stats import Expiry
from envs.engine import engine_of
from envs.prefix import Placement, require_blocks
from envs.serving import ServingProfile, load_profile
from envs.world import Problem
from traces.catalog import load_trace
from traces.tokens import assume_tokens, sized_by_tokens
from traces.trace import Trace
from tuner.config import TunerConfig
from tuner.sections import AssumeConfig


def make_problem(config: TunerConfig) -> Problem:
    """Opens the trace that the settings name. InputError when they name none."""
    if config.trace.path is None:
        raise InputError("trace.path: not set, expected the trace to work on (an argument, setpoint.toml or variable)")
    return problem_of(config, load_trace(config.trace.path))


def problem_of(config: TunerConfig, trace: Trace) -> Problem:
    """The problem that the settings describe, on this trace."""
    trace, profile = _assumed(trace, config.trace.assume), load_profile(config.serving.profile)
    return Problem(
        trace=trace,
        interval_seconds=config.trace.interval_seconds,
        knobs=config.knobs.space(largest_bytes(config, trace, profile)),
        prices=config.prices,
        constraints=config.constraints,
        profile=profile,
        serving=config.serving,
        expiry=Expiry[config.cache.expiry.upper()],
        warmup_candidates=config.cache.warmup_candidates,
        popularity_decay=config.cache.popularity_decay,
        entry_overhead_bytes=config.cache.entry_overhead_bytes,
        prefix=config.prefix if config.cache.kind == "prefix" else None,
        policy=config.cache.policy,
    )


def under(config: TunerConfig, policy: CachePolicy) -> TunerConfig:
    """The same settings with that policy alone in the cache."""
    return config.model_copy(update={"cache": config.cache.under(policy)})


def under_bundle(config: TunerConfig, bundle: PolicyBundle) -> TunerConfig:
    """With the cache's policy that a control policy was made for. Raises Mismatch where the settings name others."""
    if bundle.policy not in config.cache.policies:
        expected = ", ".join(map(str, config.cache.policies))
        raise Mismatch(
            f"policy bundle {bundle.sha256[:12]} does not fit: it was made for a cache under {bundle.policy}, "
            f"cache.eviction_policy and cache.admission say {expected}"
        )
    return under(config, bundle.policy)


def _assumed(trace: Trace, assume: AssumeConfig) -> Trace:
    trace = assume_tokens(trace, assume.prompt_tokens, assume.bytes_per_token)
    if assume.envelope_bytes is None:
        return trace
    return sized_by_tokens(trace, assume.envelope_bytes, assume.bytes_per_token)


def largest_bytes(config: TunerConfig, trace: Trace, profile: ServingProfile) -> float:
    """What a cache could use at most."""
    if config.cache.kind == "response":
        return footprint_bytes(trace, config.cache.entry_overhead_bytes)
    blocks, tokens = require_blocks(trace)
    largest = float(len(chains_of(*blocks).parent)) * tokens * profile.kv_bytes_per_token
    if config.prefix.place == Placement.HOST:
        return largest
    engine = engine_of(profile, config.serving)
    return min(largest, engine.kv_tokens * profile.kv_bytes_per_token)


def split_of(config: TunerConfig) -> Split:
    return Split(config.trace.split.train, config.trace.split.validation)


def footprint_bytes(trace: Trace, overhead_bytes: int = 0) -> float:
    """Distinct bytes: an entry for every key, at its largest size."""
    largest = np.zeros(trace.num_keys, np.int64)
    np.maximum.at(largest, trace.key, trace.size_bytes.astype(np.int64) + overhead_bytes)
    return float(max(largest.sum(), 1))
