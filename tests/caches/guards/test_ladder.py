"""The ladder: its table by hand, and every descent as a state machine."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from caches.errors import InputError
from caches.guards.ladder import TABLE, Descent, Ladder, Rung, Why


def walk(why: Why, there: set[Rung], among: tuple[Rung, ...] = tuple(Rung)) -> list[Rung]:
    descent, rungs = Descent(Ladder(TABLE, there), why, among), []
    while (rung := descent.next()) is not None:
        rungs.append(rung)
    return rungs


def test_the_table_is_total_and_as_the_page_says() -> None:
    assert set(TABLE) == set(Why)
    every = set(Rung)
    assert walk(Why.SLOW, every) == [Rung.STALE, Rung.FALLBACK, Rung.UPSTREAM]
    for why in (Why.OVER_RATE, Why.CLASS, Why.DOWN, Why.FAILED):
        assert walk(why, every) == [Rung.STALE, Rung.FALLBACK, Rung.TEMPLATE]


def test_rungs_that_are_not_there_or_that_a_namespace_may_not_use_are_left_out() -> None:
    assert walk(Why.DOWN, {Rung.TEMPLATE, Rung.UPSTREAM}) == [Rung.TEMPLATE]
    assert walk(Why.DOWN, set(Rung), (Rung.STALE,)) == [Rung.STALE]
    assert walk(Why.SLOW, set(Rung), (Rung.UPSTREAM,)) == [Rung.UPSTREAM]
    assert walk(Why.DOWN, set()) == []


def test_a_backend_that_is_asked_although_it_is_slow_and_fails_leaves_the_rest_of_the_ladder() -> None:
    descent = Descent(Ladder(TABLE, set(Rung)), Why.SLOW, tuple(Rung))
    assert [descent.next() for _ in range(3)] == [Rung.STALE, Rung.FALLBACK, Rung.UPSTREAM]
    descent.failed()
    assert descent.next() is Rung.TEMPLATE  # the others were tried
    assert descent.next() is None


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="when_down: got stale, stale, expected each once"):
        Ladder({**TABLE, Why.DOWN: (Rung.STALE, Rung.STALE)}, set(Rung))
    with pytest.raises(InputError, match="when_down: got upstream, expected of stale, fallback, template"):
        Ladder({**TABLE, Why.DOWN: (Rung.UPSTREAM,)}, set(Rung))


class Descents(RuleBasedStateMachine):
    """Whatever the operator's table, and whichever rungs have something to say, a descent ends; it tries nothing twice
    and nothing that is not there, and asks the backend at most once, and only where it was slow."""

    @initialize(
        table=st.fixed_dictionaries(
            {
                why: st.lists(
                    st.sampled_from(tuple(Rung) if why is Why.SLOW else TABLE[Why.DOWN]), unique=True, max_size=4
                ).map(tuple)
                for why in Why
            }
        ),
        there=st.sets(st.sampled_from(tuple(Rung))),
        among=st.sets(st.sampled_from(tuple(Rung))),
        why=st.sampled_from(tuple(Why)),
    )
    def begin(self, table: dict[Why, tuple[Rung, ...]], there: set[Rung], among: set[Rung], why: Why) -> None:
        self.table, self.there, self.among, self.first = table, there, among, why
        self.descent = Descent(Ladder(table, there), why, tuple(among))
        self.seen: list[Rung] = []
        self.ended = False

    @rule(fails=st.booleans())
    def step(self, fails: bool) -> None:
        rung = self.descent.next()
        assert rung is None or not self.ended
        if rung is None:
            self.ended = True
            left = set(self.table[self.descent.why]) & self.there & self.among
            assert left <= set(self.seen)
            return
        assert rung not in self.seen
        assert rung in self.there & self.among
        self.seen.append(rung)
        if rung is Rung.UPSTREAM:
            assert self.first is Why.SLOW
            if fails:
                self.descent.failed()

    @invariant()
    def is_short(self) -> None:
        if hasattr(self, "seen"):
            assert len(self.seen) <= len(Rung)


TestDescents = Descents.TestCase
TestDescents.settings = settings(max_examples=50, stateful_step_count=8, deadline=None)
