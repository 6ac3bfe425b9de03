"""From the access log of a gateway to the key stream of a daemon in the same process."""

from __future__ import annotations

from collections.abc import Sequence

from traces.access.record import AccessRecord
from tuner.keys.in_process import InProcessKeys


class KeysDestination:
    """A destination of an access log: records go to `keys`, and nowhere else."""

    def __init__(self, keys: InProcessKeys) -> None:
        self._keys = keys

    def ready(self) -> bool:
        return True

    def write(self, records: Sequence[AccessRecord], now_seconds: float) -> None:
        for record in records:
            self._keys.add(record)

    def tend(self, now_seconds: float) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is open."""
