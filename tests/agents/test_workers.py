"""Tasks in processes of this machine."""

from __future__ import annotations

import os
import time

import pytest

from agents.workers import run_here
from caches.errors import NotFound


def square(number: int, wait: float = 0.0) -> tuple[int, int, str]:
    time.sleep(wait)
    return number * number, os.getpid(), os.environ["NUMBA_NUM_THREADS"]


def refuse(number: int) -> None:
    raise NotFound(f"task {number}: nothing there")


def test_results_come_in_the_order_of_the_tasks_from_other_processes() -> None:
    results = run_here(square, [(3, 0.5), (4,), (5,)], workers=2)
    assert [value for value, _, _ in results] == [9, 16, 25]
    assert os.getpid() not in {process for _, process, _ in results}
    assert {threads for _, _, threads in results} == {"1"}


def test_an_error_in_a_task_is_raised_here() -> None:
    with pytest.raises(NotFound, match="task 7: nothing there"):
        run_here(refuse, [(7,), (8,)], workers=1)
