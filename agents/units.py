"""Amounts as people read them."""

from __future__ import annotations

import numpy as np

_UNITS = {
    "bytes": ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
    "seconds": ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")),
}
_UNITS["s"] = _UNITS["seconds"]


def readable(value: float, unit: str) -> str:
    """In the largest unit that it fills at least once, three digits; the plain number for a unit without others."""
    scale = _UNITS.get(unit)
    if scale is None:
        return f"{value:.3g}"
    size, name = next((one for one in scale if value >= 0.9995 * one[0]), scale[-1])
    return f"{value / size:.3g} {name}"


def usd(value: float) -> str:
    """Four digits, never as a power of ten."""
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return np.format_float_positional(float(f"{value:.4g}"), trim="-")
