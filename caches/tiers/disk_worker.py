"""A thread with a connection of its own to a database file, so that the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from caches.errors import SetpointError
from caches.tiers.tier import TierError

Result = TypeVar("Result")


class DiskWorker:
    """Runs jobs one after the other, in the order in which they are handed in.

    connect: called in the thread, before the first job and before the first one after a failure: so a file that was
    repaired or removed is gone on with. tier: its name, for errors.
    """

    def __init__(self, tier: str, path: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        self._tier, self._path, self._connect = tier, path, connect
        self._thread = ThreadPoolExecutor(1, f"tier-{tier}")
        self._database: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode that the connection is to
        self._closed = False

    async def run(self, job: Callable[..., Result], *arguments: Any) -> Result:
        """What a job returns, given the connection and the arguments.

        Raises TierError where the database cannot do it; a transaction is rolled back then.
        """
        return await self._in_thread(partial(self._do, job, *arguments))

    async def follow(self) -> None:
        """Lets go of a file that is not at its path any more."""
        await self._in_thread(self._let_go_of_removed)

    async def close(self) -> None:
        """After the jobs that were handed in. Can be called again."""
        if not self._closed:
            ended = self._in_thread(self._disconnect)
            self._closed = True
            await ended
            self._thread.shutdown(wait=False)

    def _in_thread(self, job: Callable[[], Result]) -> asyncio.Future[Result]:
        if self._closed:
            raise TierError(f"tier {self._tier}: {self._path}: is closed")
        return asyncio.get_running_loop().run_in_executor(self._thread, job)

    def _do(self, job: Callable[..., Result], *arguments: Any) -> Result:
        try:
            if self._database is None:
                self._database = self._connect()
                self._file = self._there()
            return job(self._database, *arguments)
        except (sqlite3.DatabaseError, SetpointError, OSError) as error:
            self._disconnect()
            about = "" if str(self._path) in str(error) else f"{self._path}: "
            raise TierError(f"tier {self._tier}: {about}{error}") from error

    def _let_go_of_removed(self) -> None:
        if self._database is not None and self._there() != self._file:
            self._disconnect()

    def _there(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:  # the next connection says what is wrong
            return None
        return found.st_dev, found.st_ino

    def _disconnect(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()
