"""From settings to a control problem."""

from __future__ import annotations

import numpy as np

from agents.study import Split
from caches.errors import InputError
from caches.stats import Expiry
from envs.serving import load_profile
from envs.world import Problem
from traces.catalog import load_trace
from traces.tokens import assume_tokens
from traces.trace import Trace
from tuner.config import TunerConfig


def make_problem(config: TunerConfig) -> Problem:
    """Opens the trace that the settings name. InputError when they name none."""
    if config.trace.path is None:
        raise InputError("trace.path: not set, expected the trace to work on (an argument, setpoint.toml or variable)")
    return problem_of(config, load_trace(config.trace.path))


def problem_of(config: TunerConfig, trace: Trace) -> Problem:
    """The problem that the settings describe, on this trace."""
    assume = config.trace.assume
    return Problem(
        trace=assume_tokens(trace, assume.prompt_tokens, assume.bytes_per_token),
        interval_seconds=config.trace.interval_seconds,
        knobs=config.knobs.space(footprint_bytes(trace, config.cache.entry_overhead_bytes)),
        prices=config.prices,
        constraints=config.constraints,
        profile=load_profile(config.serving.profile),
        serving=config.serving,
        expiry=Expiry[config.cache.expiry.upper()],
        warmup_candidates=config.cache.warmup_candidates,
        popularity_decay=config.cache.popularity_decay,
        entry_overhead_bytes=config.cache.entry_overhead_bytes,
    )


def split_of(config: TunerConfig) -> Split:
    return Split(config.trace.split.train, config.trace.split.validation)


def footprint_bytes(trace: Trace, overhead_bytes: int = 0) -> float:
    """Distinct bytes: an entry for every key, at its largest size."""
    largest = np.zeros(trace.num_keys, np.int64)
    np.maximum.at(largest, trace.key, trace.size_bytes.astype(np.int64) + overhead_bytes)
    return float(max(largest.sum(), 1))
