"""Work of several processes on a Ray cluster (the extra `ray`) instead of this machine alone.

Functions and their arguments are sent, traces are not: a path must lead to the same trace on every node, and every node
needs the same version of Setpoint. Equal seeds give equal results wherever they run.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from caches.errors import InputError, SetpointError

Result = TypeVar("Result")
CONNECT_SECONDS = 10.0
RETRIES = 3  # times that a task starts anew after its worker was lost
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


def require_ray() -> Any:
    """The package, loaded now because loading it changes the environment. InputError where it is missing."""
    try:
        import ray
    except ImportError as error:
        raise InputError('ray: got no package "ray", expected it for --ray (pip install "setpoint[ray]")') from error
    return ray


def run_on_ray(
    address: str,
    function: Callable[..., Result],
    tasks: Sequence[tuple[Any, ...]],
    done: Callable[[int], None] | None = None,
) -> list[Result]:
    """function(*task) for every task, on one CPU each, results in the order of the tasks.

    address: of a running cluster, as `ray.init` takes it (host:port, ray://host:port, auto), or `local` to start one
    here for as long as this takes. done: called with a task's position when it is finished. A task whose worker is lost
    starts anew, RETRIES times. An error in a task is raised here; then, and when this is interrupted, the others are
    cancelled. InputError where the cluster cannot be reached.
    """
    ray = require_ray()
    with _Connection(ray, address):
        remote = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False)(function)
        waiting = {remote.remote(*task): index for index, task in enumerate(tasks)}
        results: dict[int, Result] = {}
        try:
            while waiting:
                finished, _ = ray.wait(list(waiting), num_returns=1)
                index = waiting.pop(finished[0])
                results[index] = _result(ray, finished[0], index)
                if done is not None:
                    done(index)
        finally:
            for unfinished in waiting:
                ray.cancel(unfinished, force=True)
        return [results[index] for index in range(len(tasks))]


def _result(ray: Any, reference: Any, index: int) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, SetpointError) else error from None
    except ray.exceptions.WorkerCrashedError as error:
        raise SetpointError(f"task {index}: its worker was lost {RETRIES + 1} times") from error


class _Connection:
    """Joins a cluster, or starts a local one; one that was joined before stays as it was."""

    def __init__(self, ray: Any, address: str) -> None:
        self._ray, self._address, self._mine = ray, address, False

    def __enter__(self) -> None:
        if self._ray.is_initialized():
            return
        _require_listening(self._address)
        where: dict[str, Any] = {"address": self._address}
        if self._address == "local":
            where |= {"num_cpus": os.cpu_count(), "include_dashboard": False}
        try:
            self._ray.init(**where, log_to_driver=False, logging_level="ERROR", runtime_env={"env_vars": ONE_THREAD})
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise InputError(f"--ray: got {self._address!r}, expected a running Ray cluster ({error})") from error
        self._mine = True

    def __exit__(self, *_: object) -> None:
        if self._mine:
            self._ray.shutdown()


def _require_listening(address: str) -> None:
    """InputError unless something listens at host:port; Ray itself tries for minutes and then ends the process."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:  # auto, local
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(f"--ray: got {address!r}, expected a running Ray cluster ({error})") from error
