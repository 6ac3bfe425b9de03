"""From the analysis of a sample of keys to the whole trace that it stands for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traces.drift import WindowStats
from traces.key_sample import KeySample
from traces.workload import Curve, SampledKeys, Workload


def scaled_up(found: Workload, sample: KeySample) -> Workload:
    """found: of the requests in the sample. Sums over keys are divided by the share of the keys; requests and rates are
    those that were counted. Quantiles, the one-hit share and distances between windows stay those of the sampled keys.
    There is no entropy: the few most requested keys decide it, and whether they were drawn is chance."""
    requests, span = sample.requests.total, sample.span_seconds
    unique = round(found.unique_keys / sample.share)
    popularity, rate = found.popularity, found.rate
    if rate is not None and found.rate_bin_seconds is not None:
        edges = np.append(rate.x, rate.x[-1] + found.rate_bin_seconds)
        rate = Curve(rate.x, sample.requests.between(edges) / found.rate_bin_seconds)
    footprint = found.footprint_bytes
    return replace(
        found,
        requests=requests,
        unique_keys=unique,
        span_seconds=span,
        rereference_ratio=max(1.0 - unique / requests, 0.0),
        footprint_bytes=None if footprint is None else round(footprint / sample.share),
        mean_rate_rps=requests / span if span > 0 else None,
        entropy_bits=None,
        entropy_change_bits=None,
        popularity=Curve(popularity.x / sample.share, popularity.y),
        rate=rate,
        windows=_windows(found, sample),
        sampled=SampledKeys(sample.share, found.requests),
    )


def _windows(found: Workload, sample: KeySample) -> tuple[WindowStats, ...]:
    if found.window_seconds is None:
        return found.windows
    starts = np.array([window.start_seconds for window in found.windows])
    counted = np.rint(sample.requests.between(np.append(starts, starts[-1:] + found.window_seconds))).astype(int)
    return tuple(
        replace(window, requests=int(many), entropy_bits=None, entropy_change_bits=None)
        for window, many in zip(found.windows, counted, strict=True)
    )
