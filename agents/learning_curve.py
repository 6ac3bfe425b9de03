"""How much experience a policy needed: read off its looks at validation traffic."""

from __future__ import annotations

from collections.abc import Sequence

from agents.looks import Look
from caches.errors import InputError


def steps_until_within(looks: Sequence[Look], share: float = 0.01) -> int:
    """Intervals of training until the first look at which the policy saved all but `share` of what it saves in the end,
    as safely; the end is the best look, because that policy is kept. 0 where nothing better than the start was found.

    looks: in order. InputError without any.
    """
    if not looks:
        raise InputError("looks: got none, expected at least one")
    best = min(looks, key=lambda look: (look.excess, -look.saving))
    enough = best.saving - share * abs(best.saving)
    return next(look.steps for look in looks if look.excess <= best.excess and look.saving >= enough)
