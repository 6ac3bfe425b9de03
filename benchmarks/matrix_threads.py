"""One product of many rows with a vector beside busy cores: in one call, which wakes the threads of the linear algebra
library, and in pieces, as caches/semantic/matrix.py does it. Prints both in milliseconds.

A script of its own: how many threads there are is read when numpy is imported.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import orjson

from caches.semantic.matrix import ROWS_AT_A_TIME

DIMENSIONS = 256
ROWS = 4_096


def main(times: int) -> None:
    busy = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in busy:
        process.start()
    random = np.random.default_rng(0)
    rows, vector = random.standard_normal((ROWS, DIMENSIONS), np.float32), np.ones(DIMENSIONS, np.float32)
    pieces = [rows[start : start + ROWS_AT_A_TIME] for start in range(0, ROWS, ROWS_AT_A_TIME)]
    whole_ms = _median_ms(lambda: rows @ vector, times)
    pieces_ms = _median_ms(lambda: [piece @ vector for piece in pieces], times)
    for process in busy:
        process.kill()
    sys.stdout.write(orjson.dumps([whole_ms, pieces_ms]).decode())


def _spin() -> None:
    while True:
        pass


def _median_ms(work: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return 1e3 * statistics.median(taken)


if __name__ == "__main__":
    main(int(sys.argv[1]))
