"""Small traces written out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from traces.trace import Trace, TraceInfo


def tiny_trace(
    keys: Sequence[int], seconds: Sequence[float], sizes: Sequence[int] | None = None, **columns: Any
) -> Trace:
    """Requests of these keys at these times; one byte each unless `sizes` says otherwise."""
    return Trace(
        info=columns.pop("info", TraceInfo("tiny", "written by hand")),
        arrival_seconds=np.array(seconds, dtype=np.float64),
        key=np.array(keys, dtype=np.int32),
        size_bytes=np.array([1] * len(keys) if sizes is None else sizes, dtype=np.int32),
        num_keys=max(keys) + 1,
        **columns,
    )
