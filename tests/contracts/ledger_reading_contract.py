"""The part of the ledger's contract that is about reading, wishing and pruning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from caches.errors import InputError
from caches.target import Arm
from tests.contracts.ledger_opened import OpenedLedger, Opener
from tests.contracts.ledger_records import (
    CACHE,
    EXPERIMENT,
    HOUR,
    START,
    STEP,
    THEIRS,
    at,
    counted,
    decision,
    experiment,
    interval,
    judgement,
    standing,
    taken,
    tick,
    wish,
)
from tuner.ledger import DecisionFilter, LeaseLost, Ledger, Pruned
from tuner.records import Decision, Outcome, Verdict, WishKind
from tuner.wish_key import KeyUsed, WishKey


class ReadContract(OpenedLedger):
    def test_wishes_are_numbered_and_answered_by_a_tick(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        first, second, third = (ledger.wish(wish(kind)) for kind in (WishKind.PAUSE, WishKind.KILL, WishKind.RESUME))
        ledger.wish(wish(cache="other"))
        assert first == replace(wish(), id=first.id)
        assert len({first.id, second.id, third.id}) == 3
        done = replace(second, done_index=1, answer="static settings bind")
        ledger.commit(lease, replace(tick(1), wishes=(done,)), START)
        assert list(ledger.open_wishes(CACHE)) == [first, third]
        assert list(ledger.wishes(CACHE)) == [third, done, first]
        assert list(ledger.wishes(CACHE, 1)) == [third]
        assert list(ledger.wishes(CACHE, 1, before_id=third.id)) == [done]
        assert list(ledger.wishes(CACHE, before_id=first.id)) == []

    def test_a_wish_that_was_answered_in_the_meantime_stops_the_tick(self, ledger: Ledger) -> None:
        lease, asked = taken(ledger), ledger.wish(wish())
        done = replace(asked, done_index=1, answer="paused")
        ledger.commit(lease, replace(tick(1), wishes=(done,)), START)
        with pytest.raises(LeaseLost, match=f"wish {asked.id} was answered in the meantime: paused"):
            ledger.commit(lease, replace(tick(2), wishes=(replace(done, done_index=2),)), START)
        assert ledger.state(CACHE) == tick(1).state

    def test_a_wish_with_an_id_is_no_new_one(self, ledger: Ledger) -> None:
        with pytest.raises(InputError, match="wish: got one that was written down before"):
            ledger.wish(ledger.wish(wish()))

    def test_a_key_stands_for_one_wish_for_a_day(self, ledger: Ledger) -> None:
        key = WishKey("ada", "k1", "of a pause")
        assert ledger.wished_before(key, START) is None
        first = ledger.wish(wish(), key)
        done = replace(first, done_index=1, answer="paused")
        ledger.commit(taken(ledger), replace(tick(1), wishes=(done,)), START)
        revision = ledger.revision()
        day = 86_400.0
        assert ledger.wish(wish(at_seconds=START + day - 1), key) == first
        assert ledger.wished_before(key, START + day - 1) == first
        assert ledger.wished_before(replace(key, by="bob"), START) is None
        again = replace(key, fingerprint="of a kill")
        with pytest.raises(KeyUsed, match="'k1': it was used for another request"):
            ledger.wish(wish(WishKind.KILL), again)
        with pytest.raises(KeyUsed):
            ledger.wished_before(again, START)
        assert (list(ledger.wishes(CACHE)), ledger.revision()) == ([done], revision)
        assert ledger.wished_before(key, START + day) is None
        later = ledger.wish(wish(WishKind.KILL, START + day), replace(key, fingerprint="of a kill"))
        assert ledger.wish(wish(at_seconds=START + day), replace(key, by="bob")).id not in (first.id, later.id)
        assert len(ledger.wishes(CACHE)) == 3

    def test_a_key_whose_wish_is_gone_stands_for_nothing(self, ledger: Ledger) -> None:
        key = WishKey("ada", "k1", "of a pause")
        first = ledger.wish(wish(), key)
        ledger.commit(taken(ledger), replace(tick(1), wishes=(replace(first, done_index=1, answer="paused"),)), START)
        ledger.prune(START + 1)
        assert ledger.wished_before(key, START + 2) is None
        assert ledger.wish(wish(at_seconds=START + 2), key).id != first.id

    def test_caches_are_in_order_of_name(self, ledger: Ledger) -> None:
        for cache in ("b", "Z", "ä", "a"):
            ledger.commit(taken(ledger, cache=cache), tick(1, cache), START)
        assert list(ledger.caches()) == ["Z", "a", "b", "ä"]

    def test_intervals_are_those_asked_for_in_order(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        for index in (1, 2, 3, 4):
            ledger.commit(lease, tick(index), START)
        assert list(ledger.intervals(CACHE, 1, 2)) == [interval(index, arm) for index in (1, 2) for arm in Arm]
        assert list(ledger.intervals(CACHE, 2, 9, Arm.TREATMENT)) == [
            interval(2, Arm.TREATMENT),
            interval(3, Arm.TREATMENT),
        ]
        assert [*ledger.intervals(CACHE, 4, 9), *ledger.intervals(CACHE, 2, 1), *ledger.intervals("other", 0, 9)] == []
        assert (ledger.first_index(CACHE), ledger.first_index("other")) == (0, None)
        ledger.prune(at(2) + 1)
        assert ledger.first_index(CACHE) == 2

    def test_decisions_come_page_by_page_and_none_is_lost_between_two(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        for index in (1, 2, 3):
            ledger.commit(lease, tick(index), START)
        listed = [(index, arm) for index in (3, 2, 1) for arm in Arm]
        assert keys(ledger.decisions(CACHE)) == listed
        for limit in (1, 2, 4):
            assert list(paged(ledger, limit)) == listed

    def test_decisions_are_filtered(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        held = replace(decision(3), verdict=Verdict.HOLD)
        for index, one in enumerate((decision(1), decision(2, limited=THEIRS), held, decision(4)), start=1):
            ledger.commit(
                lease, replace(tick(index), decisions=(one, decision(index, Arm.TREATMENT, limited=THEIRS))), START
            )

        def found(**which: object) -> list[tuple[int, Arm]]:
            return keys(ledger.decisions(CACHE, DecisionFilter(**which)))  # type: ignore[arg-type]

        control, treatment = Arm.CONTROL, Arm.TREATMENT
        assert found(arm=treatment) == [(4, treatment), (3, treatment), (2, treatment), (1, treatment)]
        assert found(verdict=Verdict.HOLD) == [(3, control)]
        assert found(verdict=Verdict.ROLLBACK) == []
        # the first of each arm, then ours -> theirs -> ours
        assert found(changed=True) == [(3, control), (2, control), (1, control), (1, treatment)]
        assert found(changed=False, arm=control) == [(4, control)]
        assert found(changed=True, before=(3, control), limit=2) == [(2, control), (1, control)]

    @pytest.mark.parametrize("limit", [0, -1])
    def test_a_limit_is_at_least_one(self, ledger: Ledger, limit: int) -> None:
        for ask in (
            lambda: ledger.decisions(CACHE, DecisionFilter(limit=limit)),
            lambda: ledger.wishes(CACHE, limit),
            lambda: ledger.experiments(limit=limit),
        ):
            with pytest.raises(InputError, match=f"limit: got {limit}, expected at least 1"):
                ask()

    def test_what_no_database_can_hold_is_refused(self, ledger: Ledger) -> None:
        asks: list[Callable[[], object]] = [
            lambda: ledger.intervals(CACHE, 0, 10**30),
            lambda: ledger.decisions(CACHE, DecisionFilter(before=(10**30, Arm.CONTROL))),
            lambda: ledger.wish(replace(wish(), reason="half a character: \ud800")),
            lambda: ledger.wish(replace(wish(), at_seconds=float("nan"))),
            lambda: ledger.wish(replace(wish(), by="ada\0")),
        ]
        for ask in asks:
            with pytest.raises(InputError):
                ask()
        assert list(ledger.wishes(CACHE)) == []

    def test_experiments_are_newest_first_and_end_in_place(self, ledger: Ledger) -> None:
        lease, other = taken(ledger), taken(ledger, cache="other")
        first, second = experiment("a", began_seconds=START), experiment("b", began_seconds=START + 5)
        third = experiment("c", "other", START + 9)
        ledger.commit(lease, replace(tick(1), experiments=(first,)), START)
        ended = replace(first, ended_seconds=START + 4, outcome=Outcome.BETTER, answer="promoted")
        ledger.commit(lease, replace(tick(2), experiments=(ended, second)), START)
        ledger.commit(other, replace(tick(1, "other"), experiments=(third,)), START)
        assert list(ledger.experiments()) == [third, second, ended]
        assert list(ledger.experiments(CACHE)) == [second, ended]
        assert list(ledger.experiments(limit=1, before_seconds=START + 9)) == [second]
        assert ledger.experiment("a") == ended

    def test_judgements_are_in_order(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        for index in (1, 2, 3):
            one = replace(tick(index), experiments=(experiment(),), judgement=judgement(index - 1))
            ledger.commit(lease, one, START)
        assert list(ledger.judgements(EXPERIMENT)) == [judgement(0), judgement(1), judgement(2)]

    def test_the_revision_grows_with_every_write_and_with_nothing_else(self, ledger: Ledger, opener: Opener) -> None:
        lease = taken(ledger)
        seen = [ledger.revision()]
        for write in (
            lambda: ledger.take_lease(CACHE, "a", START, HOUR),
            lambda: ledger.commit(lease, tick(1), START),
            lambda: ledger.confirm(lease, 1, standing(), None, START),
            lambda: ledger.wish(wish()),
            lambda: ledger.prune(at(1) + 1),
            lambda: ledger.drop_lease(lease),
        ):
            write()
            seen.append(ledger.revision())
        assert seen == sorted(set(seen))
        ledger.commit(taken(ledger, holder="b"), tick(2), START)
        revision = ledger.revision()
        for nothing in (
            lambda: ledger.take_lease(CACHE, "a", START, HOUR),
            lambda: ledger.prune(START - HOUR),
            lambda: ledger.drop_lease(lease),
            lambda: ledger.decisions(CACHE),
        ):
            nothing()
        other = opener()
        assert other.revision() == revision
        other.close()

    def test_closing_twice_is_closing(self, opener: Opener) -> None:
        ledger = opener()
        ledger.close()
        ledger.close()


class PruneContract(OpenedLedger):
    def test_what_is_older_goes_and_the_open_interval_stays(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        for index in range(1, 6):
            ledger.commit(lease, tick(index), START)
        # intervals 0 and 1 ended before that, decisions 1 and 2 were made before it
        assert ledger.prunable(at(2) + 1) == Pruned(intervals=2 * 2, decisions=2 * 2, judgements=0, wishes=0)
        assert ledger.prune(at(2) + 1) == Pruned(intervals=2 * 2, decisions=2 * 2, judgements=0, wishes=0)
        assert ledger.prune(at(2) + 1).total == ledger.prunable(at(2) + 1).total == 0
        assert [one.index for one in ledger.intervals(CACHE, 0, 9, Arm.CONTROL)] == [2, 3, 4]
        assert {one.index for one in ledger.decisions(CACHE)} == {3, 4, 5}
        ledger.prune(at(100))
        assert [*ledger.intervals(CACHE, 0, 9)] == []
        assert {one.index for one in ledger.decisions(CACHE)} == {5}
        ledger.confirm(lease, 5, standing(), counted(5), START)
        assert all(one.applied for one in ledger.decisions(CACHE))

    def test_it_stops_after_so_many(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        for index in range(1, 6):
            ledger.commit(lease, tick(index), START)
        assert ledger.prunable(at(100)).total == 10 + 8
        removed = []
        while not removed or removed[-1]:
            removed.append(ledger.prune(at(100), 3).total)
        assert removed == [3 + 3, 3 + 3, 3 + 2, 1, 0]  # ten intervals, and eight decisions for those that are over

    def test_what_a_running_experiment_needs_stays(self, ledger: Ledger) -> None:
        lease = taken(ledger)
        for index in range(1, 7):
            begins = (experiment(began_seconds=at(3)),) if index == 3 else ()
            judged = judgement(index - 1) if index > 3 else None
            ledger.commit(lease, replace(tick(index), experiments=begins, judgement=judged), START)
        ledger.prune(at(100))
        # interval 2 ended as it began
        assert [one.index for one in ledger.intervals(CACHE, 0, 9, Arm.CONTROL)] == [2, 3, 4, 5]
        assert {one.index for one in ledger.decisions(CACHE)} == {3, 4, 5, 6}
        assert [one.index for one in ledger.judgements(EXPERIMENT)] == [3, 4, 5]

    def test_an_experiment_goes_when_its_end_is_old_but_its_record_and_last_judgement_stay(
        self, ledger: Ledger
    ) -> None:
        lease = taken(ledger)
        begun = experiment(began_seconds=at(1))
        ended = replace(begun, ended_seconds=at(4), outcome=Outcome.WORSE, answer="rolled back")
        for index in range(1, 7):
            changes = {1: (begun,), 4: (ended,)}.get(index, ())
            judged = judgement(index - 1) if 1 < index <= 4 else None
            ledger.commit(lease, replace(tick(index), experiments=changes, judgement=judged), START)
        assert ledger.prune(at(4)).total == 0
        assert [one.index for one in ledger.judgements(EXPERIMENT)] == [1, 2, 3]
        assert ledger.prunable(at(4) + 1) == Pruned(intervals=4 * 2, decisions=4 * 2, judgements=2, wishes=0)
        assert ledger.prune(at(4) + 1).total == 18
        assert [one.index for one in ledger.intervals(CACHE, 0, 9, Arm.CONTROL)] == [4, 5]
        assert list(ledger.judgements(EXPERIMENT)) == [judgement(3)]
        assert list(ledger.experiments()) == [ended]

    def test_an_experiment_on_one_cache_keeps_nothing_of_another(self, ledger: Ledger) -> None:
        lease, other = taken(ledger), taken(ledger, cache="other")
        ledger.commit(lease, replace(tick(1), experiments=(experiment(began_seconds=START - HOUR),)), START)
        ledger.commit(other, tick(1, "other"), START)
        ledger.prune(at(100))
        assert len(ledger.intervals(CACHE, 0, 9)) == 2
        assert list(ledger.intervals("other", 0, 9)) == []

    def test_open_wishes_stay(self, ledger: Ledger) -> None:
        lease, first, second = taken(ledger), ledger.wish(wish()), ledger.wish(wish())
        done = replace(first, done_index=1, answer="paused")
        ledger.commit(lease, replace(tick(1), wishes=(done,)), START)
        assert ledger.prune(START + STEP).wishes == 1
        assert list(ledger.wishes(CACHE)) == [second]
        new = ledger.wish(wish()).id
        assert new not in (first.id, second.id)


def keys(decisions: Sequence[Decision]) -> list[tuple[int, Arm]]:
    return [(one.index, one.arm) for one in decisions]


def paged(ledger: Ledger, limit: int) -> Iterator[tuple[int, Arm]]:
    page = keys(ledger.decisions(CACHE, DecisionFilter(limit=limit)))
    while page:
        yield from page
        page = keys(ledger.decisions(CACHE, DecisionFilter(limit=limit, before=page[-1])))
