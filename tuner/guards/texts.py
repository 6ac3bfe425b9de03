"""Numbers in the sentences of guardrails, with as many digits as it takes to tell them apart."""

from __future__ import annotations

import numpy as np

BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
SECONDS = ((86_400.0, "d"), (3600.0, "h"), (1.0, "s"), (1e-3, "ms"))
SHARE = ((0.01, "%"),)
PLAIN = ((1.0, ""),)
SCALES = {"bytes": BYTES, "seconds": SECONDS, "share": SHARE, "requests": PLAIN, "deviations": PLAIN}


def amounts(unit: str, *values: float) -> list[str]:
    """Each in the largest unit that it fills; three digits, or as many as make different values differ."""
    for digits in range(3, 10):
        texts = [_amount(unit, value, digits) for value in values]
        if len(set(texts)) == len(set(values)):
            return texts
    return [_amount(unit, value, 17) for value in values]


def amount(unit: str, value: float) -> str:
    return amounts(unit, value)[0]


def _amount(unit: str, value: float, digits: int) -> str:
    scale = SCALES[unit]
    size, name = next((one for one in scale if abs(value) >= one[0]), scale[-1])
    return f"{_positional(value / size, digits)} {name}".rstrip()


def _positional(value: float, digits: int) -> str:
    """Never as a power of ten."""
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) >= 1000.0:
        return f"{rounded:,.0f}" if rounded == int(rounded) else f"{rounded:,}"
    return np.format_float_positional(rounded, trim="-")
