"""How much experience a policy needed: read off its looks at validation traffic."""

from __future__ import annotations

from collections.abc import Sequence

from agents.looks import Look
from caches.errors import InputError


def steps_until_within(looks: Sequence[Look], share: float = 0.01) -> int:
    """Intervals of training until the first look at which the policy saved all but `share` of what it saves in the end,
    which is what the best look saw, because that policy is kept. 0 where nothing better than the start was found.

    looks: in order. InputError without any.
    """
    if not looks:
        raise InputError("looks: got none, expected at least one")
    best = max(look.saving for look in looks)
    return next(look.steps for look in looks if look.saving >= best - share * abs(best))
