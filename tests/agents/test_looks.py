"""Which look at validation traffic is kept."""

from __future__ import annotations

import numpy as np
import pytest

from agents.actor import Actor
from agents.looks import Look, Looks
from caches.errors import InputError


def look(saving: float, excess: float = 0.0) -> Look:
    return Look(0, 0, 0.0, saving, 0.5, excess)


def actor() -> Actor:
    return Actor(((np.zeros((3, 3), np.float32), np.zeros(3, np.float32)),))


def test_the_safest_is_kept_and_of_those_the_one_that_saves_most() -> None:
    looks, actors = Looks(), [actor() for _ in range(6)]
    seen = [look(0.0), look(0.2, 0.01), look(0.1), look(0.05), look(0.3, 0.001), look(0.1)]
    kept = [0, 0, 2, 2, 2, 2]  # of two that save 0.1, the first
    for one, mine, best in zip(seen, actors, kept, strict=True):
        looks.add(one, mine)
        assert looks.best == (seen[best], actors[best])
    assert looks.without_improvement == 3


def test_where_none_is_safe_the_least_unsafe_is_kept() -> None:
    looks = Looks()
    for one in (look(0.5, 0.02), look(-0.1, 0.01), look(0.2, 0.015)):
        looks.add(one, actor())
    assert looks.best[0] == look(-0.1, 0.01)


def test_before_the_first_there_is_no_best() -> None:
    with pytest.raises(InputError, match="looks: got none"):
        Looks().best  # noqa: B018  # the property raises
