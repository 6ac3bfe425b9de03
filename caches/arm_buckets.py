"""The buckets that arms count in: fine enough to read a P99, the same wherever arms are counted."""

from __future__ import annotations


def spaced(decade: int, first: int, last: int) -> tuple[float, ...]:
    """Upper ends 10 ** (place / decade), for places from `first` to `last`."""
    return tuple(float(f"{10 ** (place / decade):.4g}") for place in range(first, last + 1))


SECONDS = spaced(16, -64, 45)  # of latencies: 0.1 ms to 650 s, each 15.5 % above the one before
AGES = spaced(10, 0, 65)  # of hits: 1 s to 36 days
