"""Epochs: an invalidation in one step, however much it takes.

A flush of a selection begins a new epoch of it. Nothing is removed then: a lookup that finds an answer written in an
older epoch is a miss, in every tier alike, and the entry is overwritten, evicted or ended like any other. An epoch is
told by its beginning, since every entry knows when the backend wrote it; so entries need no number, and those that were
there before this was written have an epoch too.

Epochs outlive the process where their store does (`EpochStore`), and those of several processes are joined: of each
selection the latest beginning counts, so order and repetition do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from caches.errors import InputError, SetpointError
from caches.keys.request_key import Partition
from caches.tiers.selection import Labelled, Selection


class EpochsUnavailable(SetpointError):
    """A store of epochs cannot be reached, or holds nonsense."""


class EpochStore(Protocol):
    """Where beginnings of epochs lie, in Unix seconds. tests/contracts/epoch_store_contract.py is what each passes. All
    raise EpochsUnavailable."""

    async def read(self) -> Mapping[Selection, float]: ...

    async def join(self, begun: Mapping[Selection, float]) -> None:
        """Of each selection the later beginning is kept."""

    async def forget(self, before_seconds: float) -> None:
        """Those that began before."""

    async def close(self) -> None: ...


class Epochs:
    """keep_seconds: how long an entry can live at most, in any tier; an epoch that began longer ago says nothing about
    any entry and is forgotten."""

    def __init__(self, keep_seconds: float = math.inf) -> None:
        if not keep_seconds > 0.0:
            raise InputError(f"keep_seconds: got {keep_seconds}, expected above 0")
        self.keep_seconds = keep_seconds
        self._begun: dict[Partition, dict[tuple[str | None, str | None], float]] = {}

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._begun)

    def begin(self, selection: Selection, now_seconds: float) -> None:
        """What the selection takes of what was written until now is outdated. A later beginning stays."""
        of = self._begun.setdefault(selection.partition, {})
        name = (selection.model, selection.tag)
        of[name] = max(of.get(name, -math.inf), now_seconds)

    def outdated(self, stored_by: Labelled, written_seconds: float) -> bool:
        """stored_by: the request that stored the entry, or one with its labels."""
        begun = self._begun.get(stored_by.partition)
        if begun is None:
            return False
        if written_seconds <= begun.get((None, None), -math.inf):
            return True
        if written_seconds <= begun.get((stored_by.model, None), -math.inf):
            return True
        return any(
            written_seconds <= begun.get((model, tag), -math.inf)
            for tag in stored_by.tags
            for model in (None, stored_by.model)
        )

    def join(self, begun: Mapping[Selection, float]) -> bool:
        """Takes in what a store says; whether anything was new."""
        fresh = {selection: at for selection, at in begun.items() if at > self._at(selection)}
        for selection, at in fresh.items():
            self.begin(selection, at)
        return bool(fresh)

    def begun(self) -> dict[Selection, float]:
        return {
            Selection(partition, model, tag): at
            for partition, of in self._begun.items()
            for (model, tag), at in of.items()
        }

    def forget(self, now_seconds: float) -> None:
        """What says nothing about any entry any more."""
        oldest = now_seconds - self.keep_seconds
        for partition, of in list(self._begun.items()):
            kept = {name: at for name, at in of.items() if at >= oldest}
            if kept:
                self._begun[partition] = kept
            else:
                del self._begun[partition]

    def _at(self, selection: Selection) -> float:
        return self._begun.get(selection.partition, {}).get((selection.model, selection.tag), -math.inf)
