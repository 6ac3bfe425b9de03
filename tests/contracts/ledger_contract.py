"""One contract for every ledger: what the seam in tuner/ledger.py says, claim by claim.

Subclass it in a test module with a fixture `opener`, which opens the same ledger as often as it is called: an empty one
for each test. `skew_seconds` is what the ledger allows clocks to differ by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import TypeVar

import pytest

from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.target import Arm, Plan, Split
from tests.contracts.ledger_opened import OpenedLedger, Opener
from tests.contracts.ledger_reading_contract import PruneContract, ReadContract
from tests.contracts.ledger_records import (
    CACHE,
    EXPERIMENT,
    HOUR,
    OURS,
    PLAN,
    START,
    THEIRS,
    counted,
    decision,
    experiment,
    full_tick,
    interval,
    judgement,
    standing,
    state,
    taken,
    tick,
    wish,
)
from tuner.ledger import Lease, LeaseLost, Ledger
from tuner.records import Mode, Tick

T = TypeVar("T")


class LeaseContract(OpenedLedger):
    skew_seconds: float

    def test_nobody_has_it_at_first(self, ledger: Ledger) -> None:
        assert ledger.lease(CACHE) is None
        lease = ledger.take_lease(CACHE, "a", START, 90.0)
        assert lease is not None
        assert (lease.cache, lease.holder, lease.until_seconds) == (CACHE, "a", START + 90)
        assert ledger.lease(CACHE) == lease

    def test_its_holder_renews_it_under_the_same_fence(self, ledger: Ledger) -> None:
        first = taken(ledger)
        assert ledger.take_lease(CACHE, "a", START + 60, HOUR) == replace(first, until_seconds=START + 60 + HOUR)

    def test_another_has_to_wait_for_its_end_and_for_the_skew_of_clocks(self, ledger: Ledger) -> None:
        first = taken(ledger)
        almost = first.until_seconds + self.skew_seconds - 0.001
        assert [ledger.take_lease(CACHE, "b", now, HOUR) for now in (START, first.until_seconds - 1, almost)] == [
            None
        ] * 3
        assert ledger.lease(CACHE) == first
        second = taken(ledger, first.until_seconds + self.skew_seconds, "b")
        assert second.fence > first.fence

    def test_one_that_ran_out_is_still_the_last(self, ledger: Ledger) -> None:
        first = taken(ledger)
        assert ledger.take_lease(CACHE, "b", first.until_seconds - 1, 1.0) is None
        assert ledger.lease(CACHE) == first

    def test_its_own_holder_that_let_it_run_out_gets_the_next_fence(self, ledger: Ledger) -> None:
        first = taken(ledger)
        again = taken(ledger, first.until_seconds)
        assert again.fence > first.fence
        with pytest.raises(LeaseLost):
            ledger.commit(first, tick(1), first.until_seconds + 1)

    def test_by_force_it_goes_to_another_or_to_the_same_with_the_next_fence(self, ledger: Ledger) -> None:
        first = taken(ledger)
        second = ledger.take_lease(CACHE, "b", START + 1, 30.0, force=True)
        assert second is not None
        third = ledger.take_lease(CACHE, "b", START + 2, 10.0, force=True)
        assert third is not None
        assert first.fence < second.fence < third.fence
        assert third.until_seconds == START + 12

    def test_a_dropped_one_can_be_taken_at_once(self, ledger: Ledger) -> None:
        first = taken(ledger)
        ledger.drop_lease(first)
        with pytest.raises(LeaseLost):
            ledger.commit(first, tick(1), START)
        second = taken(ledger, 0.0, "b")  # whatever its clock says
        assert second.fence > first.fence
        ledger.drop_lease(first)  # no more its own
        assert ledger.lease(CACHE) == second

    def test_caches_have_their_own(self, ledger: Ledger) -> None:
        assert taken(ledger).holder == "a"
        assert taken(ledger, holder="b", cache="other").holder == "b"
        assert ledger.lease("third") is None

    def test_a_clock_set_back_does_not_shorten_what_its_holder_was_told(self, ledger: Ledger) -> None:
        first = taken(ledger)
        assert ledger.take_lease(CACHE, "a", START - 10 * HOUR, HOUR) == first
        assert ledger.take_lease(CACHE, "b", START - 5 * HOUR, HOUR) is None
        assert ledger.take_lease(CACHE, "b", first.until_seconds - 1, HOUR) is None

    def test_a_clock_set_back_does_not_let_the_former_holder_act(self, ledger: Ledger) -> None:
        first = taken(ledger)
        second = taken(ledger, first.until_seconds + self.skew_seconds, "b")
        with pytest.raises(LeaseLost):
            ledger.commit(first, tick(1), START)
        assert ledger.take_lease(CACHE, "a", START, HOUR) is None
        ledger.commit(second, tick(1), first.until_seconds + self.skew_seconds)

    def test_a_clock_that_jumps_ahead_loses_only_to_itself(self, ledger: Ledger) -> None:
        first = taken(ledger)
        with pytest.raises(LeaseLost):
            ledger.commit(first, tick(1), START + 10 * HOUR)
        again = taken(ledger, START + 10 * HOUR)
        ledger.commit(again, tick(1), START + 10 * HOUR)
        ledger.commit(again, tick(2), START + 1)  # and back: what it was told is true
        assert ledger.take_lease(CACHE, "b", START + 2 * HOUR, HOUR) is None
        forced = ledger.take_lease(CACHE, "b", START + 2 * HOUR, HOUR, force=True)
        assert forced is not None
        assert forced.until_seconds == START + 3 * HOUR

    @pytest.mark.parametrize(
        ("now_seconds", "seconds"), [(float("nan"), 1.0), (START, 0.0), (START, float("inf")), (float("inf"), 1.0)]
    )
    def test_times_that_are_none_are_refused(self, ledger: Ledger, now_seconds: float, seconds: float) -> None:
        with pytest.raises(InputError, match="seconds: got"):
            ledger.take_lease(CACHE, "a", now_seconds, seconds)
        assert ledger.lease(CACHE) is None

    def test_of_many_that_ask_at_once_one_gets_it(self, opener: Opener) -> None:
        def ask(number: int) -> list[Lease]:
            ledger = opener()
            lease = ledger.take_lease(CACHE, str(number), START, HOUR)
            ledger.close()
            return [] if lease is None else [lease]

        assert len(together([lambda number=number: ask(number) for number in range(4)])) == 1


class TickContract(OpenedLedger):
    def test_before_the_first_tick_there_is_nothing(self, ledger: Ledger) -> None:
        assert ledger.state(CACHE) is None
        assert list(ledger.caches()) == []
        assert [*ledger.intervals(CACHE, 0, 9), *ledger.decisions(CACHE), *ledger.judgements(EXPERIMENT)] == []
        assert [*ledger.wishes(CACHE), *ledger.open_wishes(CACHE), *ledger.experiments()] == []
        assert ledger.experiment(EXPERIMENT) is None

    def test_all_of_a_tick_comes_back_as_it_was(self, ledger: Ledger, opener: Opener) -> None:
        whole = full_tick(2, ledger.wish(wish()))
        ledger.commit(taken(ledger), whole, START)
        other = opener()
        assert other.state(CACHE) == whole.state
        assert tuple(other.intervals(CACHE, 1, 1)) == whole.intervals
        assert tuple(other.decisions(CACHE)) == whole.decisions
        assert tuple(other.wishes(CACHE)) == whole.wishes
        assert list(other.open_wishes(CACHE)) == []
        assert tuple(other.experiments()) == whole.experiments[::-1]
        assert list(other.judgements(EXPERIMENT)) == [whole.judgement]
        other.close()

    def test_the_tick_of_the_test_above_has_all_that_a_tick_can_hold(self) -> None:
        whole = full_tick(2, replace(wish(), id=1))
        assert whole.judgement is not None
        records = (whole.state, whole.intervals[0], whole.decisions[0], whole.wishes[0], whole.experiments[0])
        for record in (*records, whole.judgement):
            plain = [one.name for one in fields(record) if getattr(record, one.name) in ({}, "", None, one.default)]
            assert plain == []

    def test_the_same_tick_again_changes_nothing(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        ledger.commit(lease, tick(1), START)
        ledger.confirm(lease, 1, standing(), counted(1), START)
        before, revision = ledger.state(CACHE), ledger.revision()
        ledger.commit(lease, tick(1), START + 1)
        assert before is not None
        assert before.confirmed
        assert (ledger.state(CACHE), ledger.revision()) == (before, revision)
        assert len(ledger.intervals(CACHE, 0, 9)) == len(ledger.decisions(CACHE)) == 2

    def test_another_tick_for_the_same_or_an_earlier_interval_is_refused(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        ledger.commit(lease, tick(5), START)
        other = replace(tick(5), decisions=(decision(5, limited=THEIRS),))
        for late in (other, replace(tick(5), intervals=()), tick(4)):
            with pytest.raises(LeaseLost, match="interval"):
                ledger.commit(lease, late, START)
        assert ledger.state(CACHE) == tick(5).state
        assert {one.limited for one in ledger.decisions(CACHE)} == {OURS}

    def test_intervals_may_be_missing(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        ledger.commit(lease, tick(5), START)
        ledger.commit(lease, tick(9), START)
        assert [one.index for one in ledger.intervals(CACHE, 0, 99, Arm.CONTROL)] == [4, 8]

    @pytest.mark.parametrize(
        "wrong",
        [
            replace(tick(2), wishes=(replace(wish(), id=99, done_index=2, answer="yes"),)),
            replace(tick(2), judgement=judgement(1, "an unknown one")),
            replace(tick(2), intervals=(interval(1), interval(1))),
            replace(tick(2), state=replace(state(2), memory={"odd": [0.5, float("nan")]})),
            replace(tick(2), state=replace(state(2), memory={"odd": object()})),
            replace(tick(2), state=replace(state(2), latched="a\0b")),
            replace(tick(2), intervals=(interval(2),)),
            replace(tick(2), decisions=(decision(1),)),
            replace(tick(2), decisions=(decision(2, cache="other"),)),
            replace(tick(2), wishes=(wish(),)),
            tick(2, "other"),
        ],
    )
    def test_of_a_tick_with_one_thing_wrong_nothing_is_kept(self, ledger: Ledger, wrong: Tick) -> None:
        lease = taken(ledger)
        ledger.commit(lease, tick(1), START)
        revision = ledger.revision()
        with pytest.raises(InputError, match="got"):
            ledger.commit(lease, replace(wrong, experiments=(experiment(cache=wrong.state.cache),)), START)
        assert (ledger.state(CACHE), ledger.revision()) == (tick(1).state, revision)
        assert [*ledger.intervals(CACHE, 1, 99), *ledger.experiments()] == []
        assert {one.index for one in ledger.decisions(CACHE)} == {1}

    def test_what_json_cannot_hold_is_named(self, ledger: Ledger) -> None:
        odd = replace(tick(1), state=replace(state(1), memory={"policy": {"rewards": [1.0, float("inf")]}}))
        with pytest.raises(InputError, match=r"tick\.state\.memory\.policy\.rewards\[1\]: got inf, expected a finite"):
            ledger.commit(taken(ledger), odd, START)

    def test_nobody_but_the_current_holder_in_time_can_commit_or_confirm(self, ledger: Ledger) -> None:
        stale = taken(ledger)
        ledger.commit(stale, tick(1), START)
        lease = ledger.take_lease(CACHE, "b", START, HOUR, force=True)
        assert lease is not None
        strangers = [stale, replace(lease, holder="a"), replace(lease, fence=lease.fence + 1)]
        for one, now in [*((one, START) for one in strangers), (lease, lease.until_seconds)]:
            with pytest.raises(LeaseLost, match="expected the current one"):
                ledger.commit(one, tick(2), now)
            with pytest.raises(LeaseLost, match="expected the current one"):
                ledger.confirm(one, 1, standing(), counted(1), now)
        assert ledger.state(CACHE) == tick(1).state
        ledger.commit(lease, tick(2), lease.until_seconds - 0.001)

    def test_of_a_cache_without_a_lease_nothing_is_written(self, ledger: Ledger) -> None:
        with pytest.raises(LeaseLost):
            ledger.commit(Lease(CACHE, "a", 1, START + HOUR), tick(1), START)
        assert list(ledger.caches()) == []

    def test_a_confirmation_says_what_the_cache_took(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        decisions = (decision(1), decision(1, Arm.TREATMENT, mode=Mode.SHADOW))
        ledger.commit(lease, replace(tick(1), decisions=decisions), START)
        took = Plan(Split("a salt", 0.05), KnobSettings(5.0, 6.0, 0.5), THEIRS)
        ledger.confirm(lease, 1, standing(took), counted(1), START)
        assert [one.applied for one in ledger.decisions(CACHE)] == [took.control, None]
        after = ledger.state(CACHE)
        assert after == replace(tick(1).state, opened=counted(1), confirmed=True)
        assert after is not None
        assert after.plan == PLAN

    def test_a_confirmation_may_come_without_counters_and_again(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        ledger.commit(lease, tick(1), START)
        ledger.confirm(lease, 1, standing(), None, START)
        assert ledger.state(CACHE) == replace(tick(1).state, confirmed=True)
        ledger.confirm(lease, 1, standing(), counted(1), START)
        ledger.confirm(lease, 1, standing(), counted(1), START)
        assert ledger.state(CACHE) == replace(tick(1).state, opened=counted(1), confirmed=True)

    def test_a_confirmation_of_another_interval_is_refused(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        ledger.commit(lease, tick(2), START)
        for index in (1, 3):
            with pytest.raises(LeaseLost, match=f"interval {index}"):
                ledger.confirm(lease, index, standing(), counted(index), START)
        assert ledger.state(CACHE) == tick(2).state

    def test_an_open_interval_goes_on_under_another_plan(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        ledger.commit(lease, tick(2), START)
        ledger.confirm(lease, 2, standing(), counted(2), START)
        killed = replace(state(2), plan=Plan(Split(), THEIRS, THEIRS))
        ledger.amend(lease, killed, START)
        assert ledger.state(CACHE) == killed
        ledger.commit(lease, tick(2), START)  # of before; it is committed
        assert ledger.state(CACHE) == killed
        ledger.confirm(lease, 2, standing(killed.plan), counted(2), START)
        assert [one.applied for one in ledger.decisions(CACHE)] == [THEIRS, THEIRS]
        for index in (1, 3):
            with pytest.raises(LeaseLost, match=f"interval {index}"):
                ledger.amend(lease, replace(killed, index=index), START)
        with pytest.raises(LeaseLost, match="expected the current one"):
            ledger.amend(lease, killed, lease.until_seconds)
        with pytest.raises(InputError, match=r"state\.cache: got 'other'"):
            ledger.amend(lease, replace(killed, cache="other"), START)
        assert ledger.state(CACHE) == replace(killed, confirmed=True, opened=counted(2))

    def test_of_two_that_commit_one_interval_at_once_one_does(self, opener: Opener) -> None:
        ledger = opener()
        lease = taken(ledger)
        ledger.close()

        def write(number: int) -> list[int]:
            ledger = opener()
            mine = replace(tick(1), decisions=(decision(1, limited=KnobSettings(float(number), 1.0, 0.0)),))
            try:
                ledger.commit(lease, mine, START)
            except LeaseLost:
                return []
            finally:
                ledger.close()
            return [number]

        (winner,) = together([lambda number=number: write(number) for number in range(4)])
        ledger = opener()
        assert [one.limited.cache_size for one in ledger.decisions(CACHE)] == [float(winner)]
        ledger.close()


class LedgerContract(LeaseContract, TickContract, ReadContract, PruneContract):
    """All of it."""


def together(calls: Sequence[Callable[[], Sequence[T]]]) -> list[T]:
    """What they return, each in a thread of its own."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return [one for found in threads.map(lambda call: call(), calls) for one in found]
