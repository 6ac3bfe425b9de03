"""From settings to a control problem."""

from __future__ import annotations

import numpy as np

from agents.study import Split
from caches.errors import InputError
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
        knobs=config.knobs.space(footprint_bytes(trace)),
        prices=config.prices,
        constraints=config.constraints,
        profile=load_profile(config.serving.profile),
        serving=config.serving,
    )


def split_of(config: TunerConfig) -> Split:
    return Split(config.trace.split.train, config.trace.split.validation)


def footprint_bytes(trace: Trace) -> float:
    """Distinct bytes: every key once, at its largest size."""
    largest = np.zeros(trace.num_keys, np.int64)
    np.maximum.at(largest, trace.key, trace.size_bytes)
    return float(max(largest.sum(), 1))
