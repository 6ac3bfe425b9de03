"""What a histogram says of values between its bounds.

One rule for everything that is read from buckets: an interval's row, a report over many intervals, a signal that a
cache counts by itself. So wherever the P99 of the same requests is shown it is the same number. The rule is that of
Prometheus' histogram_quantile, so that boards and signals from there agree too: inside a bucket values are spread
evenly; the first begins at 0 or, where its end is not above that, has no width. A logarithmic scale would be nearer to
how latencies lie, but in buckets as fine as SECONDS of `caches.arm_buckets` by no more than 0.3 % of a value.

Sequential tests of a quantile guess nothing inside a bucket: `tuner/judging/quantile_test.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from caches.target import Histogram


def quantile(histogram: Histogram, share: float) -> float | None:
    """The value below which that share of what was seen lies; the highest bound, which is then a lower limit, where it
    lies above all. None of nothing, and without bounds."""
    if not histogram.number or not histogram.bounds:
        return None
    rank, seen = share * histogram.number, 0
    for place, count in enumerate(histogram.counts[:-1]):
        if count and seen + count >= rank:
            low, high = _ends(histogram.bounds, place)
            return low + (high - low) * (rank - seen) / count
        seen += count
    return histogram.bounds[-1]


def above(histogram: Histogram, value: float) -> float:
    """How many of what was seen lie above a value: of the bucket that it falls in, the part above it."""
    number = float(histogram.counts[-1])
    for place, count in enumerate(histogram.counts[:-1]):
        low, high = _ends(histogram.bounds, place)
        if value <= low:
            number += count
        elif value < high:
            number += count * (high - value) / (high - low)
    return number


def added(histograms: Sequence[Histogram]) -> Histogram:
    """All together; at least one, all with the same buckets."""
    counts = tuple(map(sum, zip(*(one.counts for one in histograms), strict=True)))
    return Histogram(histograms[0].bounds, counts, sum(one.total for one in histograms))


def _ends(bounds: tuple[float, ...], place: int) -> tuple[float, float]:
    high = bounds[place]
    return (bounds[place - 1] if place else min(0.0, high)), high
