"""Looks at validation traffic while a policy learns: what each saw, the best actor so far, and when to stop."""

from __future__ import annotations

from dataclasses import dataclass, field

from agents.actor import Actor
from caches.errors import InputError


@dataclass(frozen=True)
class Look:
    """One look at validation traffic. saving: share of the reference's cost there. excess: share of unsafe intervals
    above what is tolerated there."""

    steps: int
    update: int
    reward: float
    saving: float
    exploration: float
    excess: float

    def beats(self, other: Look) -> bool:
        """Safety first: fewer unsafe intervals above what is tolerated, then more saved."""
        return (self.excess, -self.saving) < (other.excess, -other.saving)


@dataclass
class Looks:
    """All looks in order; the best is kept with its actor, of equals the first."""

    looks: list[Look] = field(default_factory=list)
    kept: tuple[Look, Actor] | None = None

    def add(self, look: Look, actor: Actor) -> None:
        self.looks.append(look)
        if self.kept is None or look.beats(self.kept[0]):
            self.kept = (look, actor)

    @property
    def best(self) -> tuple[Look, Actor]:
        """InputError before the first look."""
        if self.kept is None:
            raise InputError("looks: got none, expected at least one")
        return self.kept

    @property
    def without_improvement(self) -> int:
        """Looks since the best one."""
        return len(self.looks) - 1 - self.looks.index(self.best[0])
