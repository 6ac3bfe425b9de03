"""Whether the treatment's tail of latencies is longer, from one histogram per arm and interval.

The P99 of an arm is above x exactly where more than 1 % of its requests take longer than x. So a test of the P99
becomes one of a mean: of the share of requests beyond a fixed threshold, the control's P99 as it was in the lead-in.
That is how S. R. Howard and A. Ramdas make sequential quantile tests (Sequential estimation of quantiles with
applications to A/B testing and best-arm identification, Bernoulli 28, 2022). Their boundary takes requests as
independent; latencies are not (queues, hot keys, two groups of keys that differ by luck), so here the shares are
compared interval by interval, with lead-in and batches, as costs are (tuner/judging/paired.py).

A threshold is a bound of the histogram, so no value inside a bucket is guessed. The price is resolution: a shift that
carries no request over the threshold cannot be seen.
"""

from __future__ import annotations

import math

from caches.target import Histogram


def threshold_near(histogram: Histogram, share: float) -> float | None:
    """The bound beyond which the share of values is nearest to `share`, by ratio; None where no bound has any beyond.
    Where two are as near, the lower one."""
    number, above, best, distance = histogram.number, histogram.number, None, math.inf
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
        above -= count
        if above <= 0:
            break
        away = abs(math.log(above / number / share))
        if above < number and away < distance:
            best, distance = bound, away
    return best
