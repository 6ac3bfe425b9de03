"""Traffic put together from two recordings: when requests arrive from one, what they ask for from another.

No public source has days of arrivals and the keys behind them. A composed trace has real parts but is not a
recording: `info.composed` is True and `info.assumptions` says what was done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from caches.errors import InputError
from traces.encode import renumber
from traces.per_key import Int64Array, per_key_lognormal
from traces.servegen import RATE_WINDOW_SECONDS, ArrivalRates, LengthFit, Lognormal, TokenLengths, fit_lengths
from traces.trace import FloatArray, Int32Array, Trace, TraceInfo


class _Stream(IntEnum):
    """What is drawn, each from random numbers of its own. The numbers are part of what a seed means."""

    ARRIVALS = 101
    PROMPT_TOKENS = 102
    OUTPUT_TOKENS = 103


@dataclass(frozen=True)
class Span:
    """Which days of the rates to use: `days` of them from `start_day` on; None means all there are."""

    days: float | None = None
    start_day: float = 0.0


@dataclass(frozen=True)
class Volume:
    """How many requests: exactly `requests`, or on average the rates times `rate_scale`.

    At most one of the two; without either, all requests of the key source.
    """

    requests: int | None = None
    rate_scale: float | None = None

    def __post_init__(self) -> None:
        if self.requests is not None and self.rate_scale is not None:
            raise InputError("volume: got both requests and rate_scale, expected one of them")
        if self.requests is not None and self.requests < 1:
            raise InputError(f"requests: got {self.requests}, expected at least 1")
        if self.rate_scale is not None and not 0 < self.rate_scale < math.inf:
            raise InputError(f"rate_scale: got {self.rate_scale!r}, expected a finite number above 0")


@dataclass(frozen=True)
class Arrivals:
    """Where arrival times come from: the rates, which days of them, how many requests, and token lengths."""

    rates: ArrivalRates
    span: Span = Span()
    volume: Volume = Volume()
    lengths: TokenLengths | None = None


def compose(arrivals: Arrivals, keys: Trace, seed: int, name: str = "composed") -> Trace:
    """Requests of `keys` in their order, at times drawn from `arrivals.rates`.

    Within a window of ten minutes arrivals are Poisson with the sum of all clients' rates. Given the number
    of requests such times are independent with a density proportional to the rate, which is how they are
    drawn. With `lengths`, tokens are drawn once per key from fitted lognormals; without, the key source's
    stay. All other columns are the key source's.

    Raises InputError if the days are not in the rates, if there are fewer keys than requests, and for a
    negative seed.
    """
    if seed < 0:
        raise InputError(f"seed: got {seed}, expected a whole number from 0 on")
    start, stop = windows_of(arrivals.rates, arrivals.span)
    expected = arrivals.rates.expected_requests(start, stop)
    if expected.sum() <= 0:
        raise InputError(f"{arrivals.rates.name}: got no traffic in these days, expected some")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_Stream.ARRIVALS,)))
    count = _request_count(arrivals, float(expected.sum()), keys, rng)
    times = arrival_times(expected, count, rng)
    fit = None if arrivals.lengths is None else fit_lengths(arrivals.lengths, arrivals.rates, start, stop)
    scale = arrivals.volume.rate_scale or count / float(expected.sum())
    info = _info(name, arrivals, keys, _Facts(start, stop, count, scale, seed, fit))
    return _join(info, times, keys, _tokens(keys.key[:count], fit, seed))


def windows_of(rates: ArrivalRates, span: Span) -> tuple[int, int]:
    """First and last + 1 window of the days asked for. Raises InputError where the rates do not have them."""
    there = rates.days
    if not 0 <= span.start_day < there:
        raise InputError(f"start_day: got {span.start_day}, expected 0 to below {there:g}")
    days = there - span.start_day if span.days is None else span.days
    if not (days > 0 and span.start_day + days <= there + 1e-9):
        most = there - span.start_day
        raise InputError(f"days: got {days}, expected above 0 to {most:g}, as {rates.name} has")
    windows_per_day = 86400 / RATE_WINDOW_SECONDS
    start = round(span.start_day * windows_per_day)
    return start, max(round((span.start_day + days) * windows_per_day), start + 1)


def _request_count(arrivals: Arrivals, expected: float, keys: Trace, rng: np.random.Generator) -> int:
    volume, there = arrivals.volume, len(keys)
    if volume.requests is not None:
        if volume.requests > there:
            raise InputError(f"requests: got {volume.requests:,}, expected at most {there:,}, as in {keys.info.name}")
        return volume.requests
    if volume.rate_scale is None:
        return there
    mean = volume.rate_scale * expected
    if mean > there:
        raise InputError(
            f"rate_scale: got {volume.rate_scale:g}, which asks for {mean:,.0f} requests, "
            f"expected at most {there / expected:.3g} for the {there:,} of {keys.info.name}"
        )
    return int(min(max(rng.poisson(mean), 1), there))


def arrival_times(expected: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """`count` ascending times from the start of the first window, with density proportional to `expected`."""
    cumulative = np.concatenate([[0.0], np.cumsum(expected)])
    edges = RATE_WINDOW_SECONDS * np.arange(len(cumulative), dtype=np.float64)
    return np.asarray(np.interp(np.sort(rng.random(count)) * cumulative[-1], cumulative, edges), np.float64)


def _tokens(key: Int32Array, fit: LengthFit | None, seed: int) -> tuple[Int32Array, Int32Array] | None:
    if fit is None:
        return None
    ids: Int64Array = key.astype(np.int64)
    return (
        _drawn(ids, fit.prompt, seed, _Stream.PROMPT_TOKENS),
        _drawn(ids, fit.output, seed, _Stream.OUTPUT_TOKENS),
    )


def _drawn(ids: Int64Array, fit: Lognormal, seed: int, stream: _Stream) -> Int32Array:
    values = per_key_lognormal(ids, fit.median, fit.sigma, seed, stream)
    return np.minimum(values, np.int32(fit.highest))


def _join(info: TraceInfo, times: FloatArray, keys: Trace, tokens: tuple[Int32Array, Int32Array] | None) -> Trace:
    count = len(times)
    key, num_keys = renumber(keys.key[:count])
    offsets = None if keys.block_offsets is None else keys.block_offsets[: count + 1]
    chains = None if keys.block_hashes is None or offsets is None else keys.block_hashes[: offsets[-1]]
    prompt, output = (keys.prompt_tokens, keys.output_tokens) if tokens is None else tokens
    return Trace(
        info=info,
        arrival_seconds=times,
        key=key,
        size_bytes=keys.size_bytes[:count],
        num_keys=num_keys,
        namespace=None if keys.namespace is None else keys.namespace[:count],
        prompt_tokens=None if prompt is None else prompt[:count],
        output_tokens=None if output is None else output[:count],
        ttl_seconds=None if keys.ttl_seconds is None else keys.ttl_seconds[:count],
        operation=None if keys.operation is None else keys.operation[:count],
        session=None if keys.session is None else keys.session[:count],
        block_offsets=offsets,
        block_hashes=chains,
    )


@dataclass(frozen=True)
class _Facts:
    """What the metadata tells about one composition."""

    start_window: int
    stop_window: int
    count: int
    scale: float
    seed: int
    fit: LengthFit | None

    @property
    def start_day(self) -> float:
        return self.start_window * RATE_WINDOW_SECONDS / 86400

    @property
    def stop_day(self) -> float:
        return self.stop_window * RATE_WINDOW_SECONDS / 86400


def _info(name: str, arrivals: Arrivals, keys: Trace, facts: _Facts) -> TraceInfo:
    days = f"days {facts.start_day:g} to {facts.stop_day:g}"
    source = f"arrival rates: ServeGen, {arrivals.rates.name}, {days}; keys and sizes: {keys.info.source}"
    licence = f"rates Apache-2.0; keys {keys.info.licence or 'not stated'}"
    minutes = float(keys.arrival_seconds[facts.count - 1] - keys.arrival_seconds[0]) / 60
    span = facts.stop_day - facts.start_day
    return TraceInfo(
        name=name,
        source=source,
        licence=licence,
        composed=True,
        assumptions=(
            f"Composed: arrival rates and keys come from different services (seed {facts.seed}).",
            f"The rates are multiplied by {facts.scale:.6g}, which gives {facts.count:,} requests.",
            "Inside windows of ten minutes arrivals are Poisson with the sum of all clients' rates; the "
            "clients' own inter-arrival distributions are not used.",
            f"The order of keys is that of {minutes:,.1f} recorded minutes, stretched over {span:g} days: "
            "times between requests of a key and the drift of popularity are slower by as much, and which "
            "keys are requested does not depend on the hour.",
            *_token_assumptions(arrivals, facts),
            *keys.info.assumptions,
        ),
        block_size_tokens=keys.info.block_size_tokens,
        namespaces=keys.info.namespaces,
    )


def _token_assumptions(arrivals: Arrivals, facts: _Facts) -> tuple[str, ...]:
    if arrivals.lengths is None or facts.fit is None:
        return ()
    prompt, output, known = facts.fit.prompt, facts.fit.output, facts.fit.known_share
    return (
        "Tokens are drawn once per key, independent of its size, from lognormals fitted to the medians and "
        f"95th percentiles of {arrivals.lengths.name}, weighted by the clients' requests "
        f"(lengths are known for {known:.0%} of these): prompt {_words(prompt)}; output {_words(output)}.",
    )


def _words(fit: Lognormal) -> str:
    return f"median {fit.median:.4g}, sigma {fit.sigma:.3g}, at most {fit.highest:,.0f}"
