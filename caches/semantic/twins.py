"""Entries by the form of their questions: those of one group and form are twins, and may answer for each other."""

from __future__ import annotations

from caches.semantic.index import Group


class Twins:
    """Which fingerprints have a form, the latest last."""

    def __init__(self) -> None:
        self._held: dict[tuple[Group, str], dict[bytes, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def add(self, group: Group, form: str, fingerprint: bytes) -> None:
        self._held.setdefault((group, form), {})[fingerprint] = None

    def remove(self, group: Group, form: str, fingerprint: bytes) -> None:
        """One that is held."""
        place = group, form
        del self._held[place][fingerprint]
        if not self._held[place]:
            del self._held[place]

    def of(self, group: Group, form: str) -> list[bytes]:
        """The latest first."""
        return list(reversed(self._held.get((group, form), {})))
