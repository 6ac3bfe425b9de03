"""The seam of a lease: of several processes one makes a backend call, the others wait for its answer."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class Claim(Enum):
    """What came of asking for a lease. DONE: whoever held it a moment ago made the call and left its answer."""

    MINE = "mine"
    HELD = "held"
    DONE = "done"


class Lease(Protocol):
    """Held by name, for a bounded time unless it is renewed. Methods raise TierError where the keeper cannot be
    reached; whoever asked then goes on alone."""

    lifetime_seconds: float

    async def take(self, name: bytes, again: bool = False) -> Claim:
        """Asks for it. again: also where a call was just done, because its answer is not to be had."""

    async def renew(self, name: bytes) -> bool:
        """A new lifetime. False where it is not ours any more."""

    async def give(self, name: bytes, done: bool) -> None:
        """Lets go of it, where it is ours. done: the answer is stored; for a lifetime `take` says so."""
