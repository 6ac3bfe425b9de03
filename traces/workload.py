"""What a trace looks like: the numbers behind `setpoint trace info`.

All operations count as requests. A number that the trace cannot give (a rate without a span, tokens that were
not recorded) is None.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from traces.blocks import block_reuse, token_hit_ratio
from traces.drift import WindowStats, entropy_bits, windows
from traces.trace import FloatArray, Int32Array, Trace

CURVE_POINTS = 200
RATE_BINS = 200
DRIFT_WINDOWS = 36

_NICE_SECONDS = (60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400)


@dataclass(frozen=True)
class Quantiles:
    """Observed values: the smallest one that at least this share of the values does not exceed."""

    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True, eq=False)
class Curve:
    """A picture's line: x and y, shape (points,) each."""

    x: FloatArray
    y: FloatArray


@dataclass(frozen=True, eq=False)
class Distribution:
    """Quantiles of one column, and its cumulative distribution: x a value, y the share not above it."""

    quantiles: Quantiles
    cdf: Curve


@dataclass(frozen=True, eq=False)
class PromptBlocks:
    """The blocks that prompts are made of, and what an endless cache that starts empty would find again of them.

    references: blocks of all prompts. different: chains of blocks that differ. token_hit_ratio: tokens of leading runs
    of blocks seen before / prompt tokens. per_prompt: blocks of a prompt, over requests. reuse_seconds: time since the
    last use of a block, over blocks used again. sessions, session_gap_seconds: how many sessions there are, and the
    time between two consecutive requests of one; None where the trace does not tell sessions.
    """

    block_size_tokens: int | None
    references: int
    different: int
    token_hit_ratio: float | None
    per_prompt: Distribution | None
    reuse_seconds: Distribution | None
    sessions: int | None
    session_gap_seconds: Distribution | None


@dataclass(frozen=True)
class SampledKeys:
    """What an analysis was made from where the trace was too long: the requests of a share of the keys."""

    share: float
    requests: int


@dataclass(frozen=True, eq=False)
class Workload:
    """The analysis of one trace.

    rereference_ratio: 1 - unique keys / requests, the hit ratio of an endless cache that starts empty.
    one_hit_share: keys requested once / keys. footprint_bytes: sum over keys of the size at their last
    request. mean_rate_rps: requests / span. Sizes and tokens are over requests, not keys. reuse_seconds: time
    between two consecutive requests of one key. entropy_change_bits, js_distance, js_floor: means over the
    windows, formulas in `traces.drift`. rate: requests per second (y) in bins that start at x; popularity:
    requests (y) of the key of rank x, the most requested being rank 1. blocks: None for a trace without prompt blocks.
    sampled: None where all requests were looked at; where not, entropies are None.
    """

    name: str
    source: str
    composed: bool
    assumptions: tuple[str, ...]
    requests: int
    unique_keys: int
    span_seconds: float
    rereference_ratio: float
    one_hit_share: float
    footprint_bytes: int | None
    mean_rate_rps: float | None
    entropy_bits: float | None
    entropy_change_bits: float | None
    js_distance: float | None
    js_floor: float | None
    size_bytes: Distribution | None
    prompt_tokens: Distribution | None
    output_tokens: Distribution | None
    reuse_seconds: Distribution | None
    blocks: PromptBlocks | None
    popularity: Curve
    rate_bin_seconds: float | None
    rate: Curve | None
    window_seconds: float | None
    windows: tuple[WindowStats, ...]
    sampled: SampledKeys | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, numbers, strings and None, ready for JSON."""
        plain: dict[str, Any] = _plain(self)
        return plain


def analyse(trace: Trace, window_seconds: float | None = None) -> Workload:
    """Everything about one trace.

    window_seconds: length of the windows whose key distributions are compared; None chooses a round length
    that gives 12 to 36 windows. Raises InputError if it is not a positive number.
    """
    counts = np.bincount(trace.key, minlength=trace.num_keys)
    span = trace.span_seconds
    if window_seconds is None and span > 0:
        window_seconds = round_seconds(span / DRIFT_WINDOWS)
    parts = () if window_seconds is None else windows(trace, window_seconds)
    bin_seconds = round_seconds(span / RATE_BINS) if span > 0 else None
    unique = int(np.count_nonzero(counts))
    return Workload(
        name=trace.info.name,
        source=trace.info.source,
        composed=trace.info.composed,
        assumptions=trace.info.assumptions,
        requests=len(trace),
        unique_keys=unique,
        span_seconds=span,
        rereference_ratio=1 - unique / len(trace),
        one_hit_share=int(np.count_nonzero(counts == 1)) / unique,
        footprint_bytes=_footprint_bytes(trace),
        mean_rate_rps=len(trace) / span if span > 0 else None,
        entropy_bits=entropy_bits(counts),
        entropy_change_bits=_mean([w.entropy_change_bits for w in parts]),
        js_distance=_mean([w.js_distance for w in parts]),
        js_floor=_mean([w.js_floor for w in parts]),
        size_bytes=distribution(trace.size_bytes) if _has_sizes(trace) else None,
        prompt_tokens=None if trace.prompt_tokens is None else distribution(trace.prompt_tokens),
        output_tokens=None if trace.output_tokens is None else distribution(trace.output_tokens),
        reuse_seconds=distribution(reuse_seconds(trace)) if span > 0 else None,
        blocks=prompt_blocks(trace),
        popularity=_popularity(counts),
        rate_bin_seconds=bin_seconds,
        rate=None if bin_seconds is None else _rate(trace, bin_seconds),
        window_seconds=window_seconds,
        windows=parts,
    )


def round_seconds(at_least: float) -> float:
    """The smallest round length of time that is not below `at_least` seconds.

    Round lengths are 1, 2 and 5 times a power of ten below a minute, then the usual parts and multiples of
    hours and days. Bins of whole seconds matter where a trace records whole seconds.
    """
    for seconds in _NICE_SECONDS:
        if 30 < at_least <= seconds:
            return float(seconds)
    unit = 86400.0 if at_least > 86400 else 1.0
    power = 10.0 ** np.floor(np.log10(at_least / unit))
    return next(float(unit * m * power) for m in (1, 2, 5, 10) if at_least <= unit * m * power)


def distribution(values: NDArray[Any], times: NDArray[np.int64] | None = None) -> Distribution | None:
    """Quantiles and cumulative distribution of a column, or None if it is empty.

    times: how often each value occurs, each at least once; once if None.
    """
    if len(values) == 0:
        return None
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    reached = np.arange(1, len(values) + 1) if times is None else np.cumsum(times[order])
    n = int(reached[-1])

    def at(percent: int) -> float:
        return float(ordered[np.searchsorted(reached, (n * percent + 99) // 100)])

    steps = np.arange(1, CURVE_POINTS + 1)
    rank = (n * steps + CURVE_POINTS - 1) // CURVE_POINTS
    cdf = Curve(ordered[np.searchsorted(reached, rank)].astype(np.float64), rank / n)
    return Distribution(Quantiles(at(50), at(90), at(99), float(ordered[-1])), cdf)


def prompt_blocks(trace: Trace) -> PromptBlocks | None:
    """None for a trace without prompt blocks."""
    reuse = block_reuse(trace)
    if reuse is None or trace.block_offsets is None:
        return None
    session, gaps = trace.session, None
    sessions = None if session is None else int(session.max()) + 1
    if session is not None and sessions is not None:
        gaps = distribution(_reuse(trace.arrival_seconds, session, sessions))
    return PromptBlocks(
        block_size_tokens=trace.info.block_size_tokens,
        references=int(trace.block_offsets[-1]),
        different=reuse.different,
        token_hit_ratio=token_hit_ratio(trace, reuse),
        per_prompt=distribution(np.diff(trace.block_offsets)),
        reuse_seconds=distribution(reuse.gap_seconds, reuse.blocks),
        sessions=sessions,
        session_gap_seconds=gaps,
    )


def reuse_seconds(trace: Trace) -> FloatArray:
    """Seconds since the previous request of the same key, in request order.

    Shape (requests - unique keys,).
    """
    return _reuse(trace.arrival_seconds, trace.key, trace.num_keys)


@njit(cache=True)
def _reuse(arrival: FloatArray, key: Int32Array, num_keys: int) -> FloatArray:
    last = np.full(num_keys, np.nan)
    gaps = np.empty(len(key))
    found = 0
    for i in range(len(key)):
        k = key[i]
        if not np.isnan(last[k]):
            gaps[found] = arrival[i] - last[k]
            found += 1
        last[k] = arrival[i]
    return gaps[:found].copy()


@njit(cache=True)
def _last_sizes(key: Int32Array, size: Int32Array, num_keys: int) -> Int32Array:
    sizes = np.zeros(num_keys, np.int32)
    for i in range(len(key)):
        sizes[key[i]] = size[i]
    return sizes


def _has_sizes(trace: Trace) -> bool:
    """A source without sizes leaves the column at zero: then there is nothing to report."""
    return bool(trace.size_bytes.any())


def _footprint_bytes(trace: Trace) -> int | None:
    if not _has_sizes(trace):
        return None
    return int(_last_sizes(trace.key, trace.size_bytes, trace.num_keys).sum(dtype=np.int64))


def _popularity(counts: NDArray[np.int64]) -> Curve:
    """Ranks spaced evenly on a logarithmic scale, the first and the last among them."""
    ordered = np.sort(counts[counts > 0])[::-1]
    ranks = np.unique(np.geomspace(1, len(ordered), CURVE_POINTS).round().astype(np.int64))
    return Curve(ranks.astype(np.float64), ordered[ranks - 1].astype(np.float64))


def _rate(trace: Trace, bin_seconds: float) -> Curve:
    """Complete bins only: the rest at the end would show a rate that is too low."""
    first = float(trace.arrival_seconds[0])
    edges = first + bin_seconds * np.arange(int(trace.span_seconds / bin_seconds) + 1)
    requests = np.diff(np.searchsorted(trace.arrival_seconds, edges)).astype(np.float64)
    return Curve(edges[:-1].astype(np.float64), requests / bin_seconds)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
