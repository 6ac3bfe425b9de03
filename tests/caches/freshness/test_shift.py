"""Drift: pairs of answers, and the families that they count for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from caches.errors import InputError
from caches.freshness.shift import KEPT, Drift, Shift, ShiftRule, families
from caches.semantic.embedder import Vectors
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer
from tests.caches.freshness.test_answer_facts import chat
from tests.contracts.tier_contract import key_of


class Directions:
    """Embeds a text that is an angle in degrees."""

    name, dimensions, slow = "directions", 2, False

    def embed(self, texts: Sequence[str]) -> Vectors:
        angles = np.deg2rad([float(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    def close(self) -> None:
        """Nothing is held."""


def drift(rule: ShiftRule = ShiftRule()) -> Drift:
    return Drift(Directions(), lambda answer: answer.body.decode(), rule)


def answer(text: str) -> Answer:
    return Answer(text.encode(), 0.0)


SHIFTED, SAME = Shift(1.0, None, True), Shift(0.0, None, False)


@pytest.mark.parametrize(
    ("new", "cosine", "shifted"),
    [("0", 0.0, False), ("34", 1 - 0.829038, False), ("35", 1 - 0.819152, True), ("90", 1.0, True), ("180", 2.0, True)],
)
def test_a_cosine_distance_above_the_limit_is_a_shift(new: str, cosine: float, shifted: bool) -> None:
    """cos 34° = 0.829, cos 35° = 0.819; the limit is 0.18."""
    found = drift().compare(answer("0"), answer(new))
    assert found.cosine == pytest.approx(cosine, abs=1e-5)
    assert (found.nats, found.shifted) == (None, shifted)


def test_so_is_a_divergence_where_it_is_looked_at() -> None:
    old, new = Answer(chat((0.9, {"x": 0.9})), 0.0), Answer(chat((0.9, {"y": 0.9})), 0.0)
    told = Drift(Directions(), lambda _: "0", ShiftRule(nats=1.0)).compare(old, new)
    assert told.nats is not None
    assert told.nats > 1.0
    assert told.shifted
    assert not Drift(Directions(), lambda _: "0").compare(old, new).shifted
    assert Drift(Directions(), lambda _: "0", ShiftRule(nats=1.0)).compare(answer("0"), answer("0")).nats is None


def test_a_family_has_shifted_when_that_is_sure() -> None:
    """Five pairs at least. Two of five: at least 5.3 %; three of six: at least 11.8 %, above 10 %."""
    known = drift()
    key, family = key_of(1), Selection(key_of(1).partition, "model 1")
    for shift in (SHIFTED, SHIFTED, SAME, SAME, SAME):
        assert known.record(key, shift) == []
    assert known.lifetime_share(key) == 1.0
    assert known.record(key, SHIFTED) == [family]
    assert known.record(key, SHIFTED) == []  # it is known
    assert (known.lifetime_share(key), known.lifetime_share(key_of(2)), known.lifetime_share(key_of(1, 1))) == (
        0.5,
        1,
        1,
    )
    assert known.shifted() == [family]
    for _ in range(KEPT):
        assert known.record(key, SAME) == []
    assert (known.lifetime_share(key), known.shifted()) == (1.0, [])
    assert (known.compared, known.shifts) == (27, 4)


def test_what_began_anew_has_not_shifted() -> None:
    known = drift()
    key = key_of(1, tags=("red", "blue"))
    for _ in range(4):
        known.record(key, SHIFTED)
    red, blue = (Selection(key.partition, tag=tag) for tag in ("red", "blue"))
    assert known.record(key, SHIFTED) == [blue, red] == families(key)
    known.begin_anew(red)
    assert known.shifted() == [blue]
    assert known.lifetime_share(key_of(2, tags=("red",))) == 1.0
    assert known.lifetime_share(key_of(2, tags=("red", "blue"))) == 0.5


@pytest.mark.parametrize("wrong", [{"cosine": 0.0}, {"share": 1.5}, {"lifetime_share": 0.0}, {"nats": 0.0}])
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"shift {next(iter(wrong))}: got"):
        ShiftRule(**wrong)
