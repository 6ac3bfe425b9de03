"""Whether a tier pays, by hand."""

from __future__ import annotations

import pytest

from caches.keys.request_key import Partition
from caches.worth import Worth, WorthRule

HERE, THERE = Partition("a", "here"), Partition("a", "there")


def test_a_tier_that_costs_more_than_it_saves_is_passed_by_and_probed() -> None:
    worth = Worth(WorthRule(least=10, least_seconds=0.0, memory=100, probe_every=5))
    for _ in range(10):
        assert worth.wanted(HERE, 0.0)
        worth.looked(HERE, 0.0, 0.010, None)
    assert worth.seconds(HERE) == pytest.approx(-0.010)
    assert [worth.wanted(HERE, 0.0) for _ in range(10)] == [False, False, False, False, True] * 2
    assert worth.wanted(THERE, 0.0)  # another partition is judged by its own


def test_seldom_hits_that_save_much_pay() -> None:
    worth = Worth(WorthRule(least=10, least_seconds=0.0, memory=100))
    for number in range(100):
        worth.looked(HERE, 0.0, 0.010, 2.0 if number % 50 == 0 else None)
    assert worth.seconds(HERE) == pytest.approx(0.04 - 0.01)  # two of a hundred save two seconds each
    assert worth.wanted(HERE, 0.0)


def test_probes_bring_it_back() -> None:
    worth = Worth(WorthRule(least=2, least_seconds=0.0, memory=4, probe_every=2))
    for _ in range(2):
        worth.looked(HERE, 0.0, 0.010, None)
    assert not worth.wanted(HERE, 0.0)
    assert worth.wanted(HERE, 0.0)
    worth.looked(HERE, 0.0, 0.010, 1.0)
    assert worth.wanted(HERE, 0.0)
    assert worth.wanted(HERE, 0.0)


def test_nothing_is_concluded_from_nothing() -> None:
    worth = Worth()
    assert worth.wanted(HERE, 0.0)
    assert worth.seconds(HERE) == 0.0


def test_a_cold_start_is_given_time() -> None:
    worth = Worth(WorthRule(least=10, least_seconds=60.0))
    for _ in range(100):
        assert worth.wanted(HERE, 5.0)
        worth.looked(HERE, 5.0, 0.010, None)
    assert worth.wanted(HERE, 64.9)
    assert not worth.wanted(HERE, 65.0)
