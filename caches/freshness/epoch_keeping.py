"""Epochs in memory, for lookups, and in stores, for other processes and the next start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from caches.freshness.epochs import Epochs, EpochStore, EpochsUnavailable
from caches.tiers.selection import Selection


class EpochKeeping:
    """stores: each holds all epochs. failed: calls of a store that did not get through; they are made up for by the
    next `tend`."""

    def __init__(self, epochs: Epochs, stores: Sequence[EpochStore] = ()) -> None:
        self.epochs, self._stores, self.failed = epochs, tuple(stores), 0

    @property
    def lasting(self) -> bool:
        """Whether they outlive this process."""
        return bool(self._stores)

    async def keep(self, begun: Mapping[Selection, float]) -> bool:
        """Whether every store has them."""
        return all([await self._kept(store, begun) for store in self._stores])

    async def tend(self, now_seconds: float) -> None:
        """Takes in what other processes began, gives each store what it lacks, and forgets what says nothing any
        more."""
        for store in self._stores:
            try:
                there = await store.read()
                self.epochs.join(there)
                self.epochs.forget(now_seconds)
                lacking = {one: at for one, at in self.epochs.begun().items() if there.get(one, at - 1.0) < at}
                if lacking:
                    await store.join(lacking)
                if any(at < now_seconds - self.epochs.keep_seconds for at in there.values()):
                    await store.forget(now_seconds - self.epochs.keep_seconds)
            except EpochsUnavailable:
                self.failed += 1
        self.epochs.forget(now_seconds)

    async def close(self) -> None:
        for store in self._stores:
            await store.close()

    async def _kept(self, store: EpochStore, begun: Mapping[Selection, float]) -> bool:
        try:
            await store.join(begun)
        except EpochsUnavailable:
            self.failed += 1
            return False
        return True
