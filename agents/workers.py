"""Processes of this machine that work for this one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

Result = TypeVar("Result")
SPAWN = get_context("spawn")  # threads of numba and torch do not survive a fork


@contextmanager
def worker_pool(workers: int, set_up: Callable[..., None] | None = None, *given: Any) -> Iterator[ProcessPoolExecutor]:
    """Processes with one thread for numeric libraries; each calls set_up(*given) first. Interrupts are left to this
    process. Whatever is raised in the block, no worker outlives it, nor this process."""
    pool = ProcessPoolExecutor(workers, SPAWN, _begin, (set_up, given))
    try:
        yield pool
    except BaseException:
        for worker in list(pool._processes.values()):  # the pool itself would wait for all of their work
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def run_here(function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]], workers: int) -> list[Result]:
    """function(*task) for every task, results in the order of the tasks. An error in a task is raised here."""
    with worker_pool(min(workers, len(tasks))) as pool:
        return [future.result() for future in [pool.submit(function, *task) for task in tasks]]


def _begin(set_up: Callable[..., None] | None, given: tuple[Any, ...]) -> None:
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if set_up is not None:
        set_up(*given)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
