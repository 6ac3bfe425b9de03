"""Locks for moving the champion alias: one holder at a time, between processes or, by a server, machines."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from caches.errors import NotFound, SetpointError

LOCK_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.1


class LockModels(Protocol):
    """Registered models used as locks. The store must refuse a second model of one name."""

    def create_model(self, name: str, tags: Mapping[str, str]) -> bool:
        """Make the model; False, changing nothing, where it exists already."""

    def model_tags(self, name: str) -> Mapping[str, str] | None:
        """None where there is no such model."""

    def delete_model(self, name: str) -> None:
        """Remove the model."""


@contextmanager
def file_lock(database: Path, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
    """An operating-system lock on `<database>.lock`; it ends with its process, however that ends.

    Makes the folder where it is missing.
    """
    path = database.with_name(f"{database.name}.lock")
    lock = FileLock(path, timeout=timeout_seconds)
    try:
        lock.acquire()
    except Timeout as error:
        raise SetpointError(
            f"{path}: another process has held this lock for {timeout_seconds:g} s, try again when it is done"
        ) from error
    except OSError as error:
        raise SetpointError(f"{path}: cannot lock: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def model_lock(
    models: LockModels,
    name: str,
    timeout_seconds: float = LOCK_TIMEOUT_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """A lock that is a registered model called `name`; held while it exists, never broken by anyone else.

    The tag tells whose it is: a request that the client repeats after a lost answer finds the model that its
    first attempt made, and must not take it for someone else's.
    """
    holder = uuid.uuid4().hex
    polls = round(timeout_seconds / _POLL_SECONDS) + 1
    for _ in range(polls):
        if models.create_model(name, {"holder": holder}) or _holder(models, name) == holder:
            break
        sleep(_POLL_SECONDS)
    else:
        raise SetpointError(
            f"another promotion has held the lock for {timeout_seconds:g} s; if none is running, "
            f"one was killed: then delete the registered model {name!r} and try again"
        )
    try:
        yield
    finally:
        with suppress(NotFound):  # a repeated request finds that its first attempt did it
            models.delete_model(name)


def _holder(models: LockModels, name: str) -> str | None:
    return (models.model_tags(name) or {}).get("holder")
