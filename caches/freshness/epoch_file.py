"""Epochs in a file, beside a tier on disk: a JSON object from selections to beginnings, rewritten whole.

Processes of one machine may share it, as they share the tier: each writes under a lock what it and the file know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson
from filelock import FileLock, Timeout

from caches.files import written_whole
from caches.freshness.epoch_lines import name_of, seconds_of, selection_of
from caches.freshness.epochs import EpochsUnavailable
from caches.tiers.selection import Selection

LOCK_SECONDS = 5.0
Begun = dict[Selection, float]


class EpochFile:
    """path: made with its folder when the first epoch begins, for its owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[tuple[int, int, int], Begun] | None = None

    async def read(self) -> Mapping[Selection, float]:
        """Quick where the file is as it was."""
        return await asyncio.to_thread(self._read)

    async def join(self, begun: Mapping[Selection, float]) -> None:
        await asyncio.to_thread(self._change, lambda there: _later(there, begun))

    async def forget(self, before_seconds: float) -> None:
        if any(at < before_seconds for at in (await self.read()).values()):
            await asyncio.to_thread(self._change, lambda there: _since(there, before_seconds))

    async def close(self) -> None:
        """Nothing is held open."""

    def _read(self) -> Begun:
        try:
            about = self._path.stat()
            mark = (about.st_ino, about.st_mtime_ns, about.st_size)
            if self._seen is None or self._seen[0] != mark:
                self._seen = mark, _parsed(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise EpochsUnavailable(f"{self._path}: cannot be read: {error.strerror}") from error
        return dict(self._seen[1])

    def _change(self, changed: Callable[[Begun], Begun]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self._path.with_name(f"{self._path.name}.lock"), timeout=LOCK_SECONDS):
                there = self._read()
                wanted = changed(there)
                if wanted != there:
                    self._write(wanted)
        except (OSError, Timeout) as error:
            raise EpochsUnavailable(f"{self._path}: cannot be written: {error}") from error

    def _write(self, begun: Begun) -> None:
        with written_whole(self._path) as partial:
            partial.touch(0o600)
            partial.write_bytes(orjson.dumps({name_of(one).decode(): at for one, at in begun.items()}))


def _later(there: Begun, begun: Mapping[Selection, float]) -> Begun:
    return {one: max(at, there.get(one, at)) for one, at in {**there, **begun}.items()}


def _since(there: Begun, before_seconds: float) -> Begun:
    return {one: at for one, at in there.items() if at >= before_seconds}


def _parsed(text: bytes) -> Begun:
    try:
        named = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise EpochsUnavailable(f"epochs: the file is no JSON: {error}") from error
    if not isinstance(named, dict):
        raise EpochsUnavailable("epochs: the file holds no JSON object")
    return {selection_of(name.encode()): seconds_of(at) for name, at in named.items()}
