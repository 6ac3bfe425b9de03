"""Constants of the sketch, for both of its forms."""

from __future__ import annotations

BLOCK = 16  # counters that lie together: four rows of four
FIRST_BLOCKS = 4
MOST = 15  # where a counter stops
LEAST_HELD = 8  # requests that count: at least so many times the sample
