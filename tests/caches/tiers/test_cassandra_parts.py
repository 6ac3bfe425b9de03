"""What of the tier in Cassandra needs no server: rows, sums of slices, touches, tables and URLs."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.errors import InputError
from caches.tiers.cassandra_books import CassandraOptions
from caches.tiers.cassandra_connection import CassandraConnection
from caches.tiers.cassandra_rows import Entry, about_of, left_seconds, plan, told
from caches.tiers.cassandra_slices import Amount, Slices
from caches.tiers.cassandra_tables import tables
from caches.tiers.cassandra_touches import CassandraTouches, Place, Touch
from caches.tiers.tier import Answer, TierError
from tests.contracts.tier_contract import START, answer_of, key_of

ONE: Place = ("a", "x", b"one")
TWO: Place = ("a", "x", b"two")
EVERYTHING = 1_000


def row(number: int, size: int, touched: int, age: float = 0.0) -> Entry:
    about = about_of(key_of(number), answer_of(number, 1, START - age))
    return Entry("a", "x", b"%03d" % number, about, size, touched, 10, 20)


def too_old(answer: Answer) -> bool:
    return answer.outlived(5.0, START)


def touch_of(entry: Entry) -> int:
    return entry.touched or 0


def names(entries: list[Entry]) -> list[int]:
    return [int(entry.name) for entry in entries]


def test_an_answer_and_its_request_come_back_as_they_were() -> None:
    answer = Answer(b"body", START - 3.25, 60.0, 123, 45, 0.25)
    found = told(about_of(key_of(1, tags=("red", "é", '"')), answer))
    assert found is not None
    assert found.found(b"body").answer == answer
    assert (found.model, found.tags) == ("model 1", {"red", "é", '"'})
    assert told(about_of(key_of(1), replace(answer, ttl_seconds=None))).answer.ttl_seconds is None  # type: ignore[union-attr]


def test_a_row_of_another_version_is_as_good_as_not_there() -> None:
    assert told('[2,"anything",{}]') is None


@pytest.mark.parametrize("about", ["", "nonsense", "[1]", "7", '[1,"model",["red"]]'])
def test_what_is_no_row_of_ours_is_an_error_of_the_tier(about: str) -> None:
    with pytest.raises(TierError, match="expected one of ours"):
        told(about)


@pytest.mark.parametrize(
    ("own", "age", "ceiling", "expected"),
    [
        (None, 0.0, 100.0, 160),  # a minute late
        (None, 0.5, 100.0, 160),  # 99.5, rounded up
        (30.0, 10.0, 100.0, 80),
        (300.0, 10.0, 100.0, 150),
        (None, 99.999, 100.0, 61),
        (None, 0.0, 1e12, 630_720_000),  # no longer than Cassandra takes
        (5.0, 500.0, 100.0, 1),
    ],
)
def test_the_databases_lifetime_ends_no_sooner_than_any_that_may_be_set(
    own: float | None, age: float, ceiling: float, expected: int
) -> None:
    assert left_seconds(answer_of(1, 10, START - age, own), START, ceiling) == expected


def test_the_least_recently_touched_go_until_the_target_is_kept() -> None:
    rows = [row(1, 30, 5), row(2, 30, 3), row(3, 30, 9), row(4, 30, 1)]
    assert plan(rows, too_old, touch_of, 120, 60, EVERYTHING).evicted == []  # it fits
    done = plan(rows, too_old, touch_of, 119, 60, EVERYTHING)
    assert names(done.evicted) == [4, 2]
    assert (done.entries, done.used_bytes, done.more) == (2, 60, False)


def test_what_is_too_old_goes_first_and_no_more_than_said() -> None:
    rows = [row(1, 30, 5, 5.0), row(2, 30, 3), row(3, 30, 9, 6.0), row(4, 30, 1, 9.0), row(5, 30, 2)]
    done = plan(rows, too_old, touch_of, 50, 50, EVERYTHING)
    assert (names(done.expired), names(done.evicted), done.used_bytes, done.more) == ([1, 3, 4], [5], 30, False)
    done = plan(rows, too_old, touch_of, 50, 50, 2)
    assert (names(done.expired), done.evicted, done.entries, done.used_bytes, done.more) == ([1, 3], [], 3, 90, True)
    done = plan(rows, too_old, touch_of, 50, 50, 3)
    assert (names(done.expired), done.evicted, done.entries, done.used_bytes, done.more) == ([1, 3, 4], [], 2, 60, True)


def test_what_is_left_of_a_removed_entry_goes_and_counts_for_nothing() -> None:
    remnant = Entry("a", "x", b"007", None, None, 4, None, 30)
    done = plan([remnant, row(1, 30, 5)], too_old, touch_of, 100, 100, 0)
    assert (done.remnants, done.entries, done.used_bytes, done.more) == ([remnant], 1, 30, False)
    assert (remnant.stamp, row(1, 30, 5).stamp) == (30, 20)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9), st.sampled_from([0.0, 7.0])), max_size=12),
    st.integers(0, 300),
    st.floats(0.0, 1.0),
    st.integers(0, 15),
)
def test_a_plan_keeps_what_it_says_and_is_the_same_for_whoever_makes_it(
    entries: list[tuple[int, int, float]], limit: int, share: float, most: int
) -> None:
    rows = [row(number, *one) for number, one in enumerate(entries)]
    done = plan(rows, too_old, touch_of, limit, limit * share, most)
    assert plan(rows[::-1], too_old, touch_of, limit, limit * share, EVERYTHING).evicted == (
        plan(rows, too_old, touch_of, limit, limit * share, EVERYTHING).evicted
    )
    gone = [*done.expired, *done.evicted]
    stayed = [one for one in rows if one not in gone]
    assert len(gone) <= most
    assert (done.entries, done.used_bytes) == (len(stayed), sum(one.size or 0 for one in stayed))
    fresh = [one for one in stayed if one.known is not None and not too_old(one.known.answer)]
    settled = len(fresh) == len(stayed) and sum(one.size or 0 for one in fresh) <= limit
    assert done.more != settled
    assert all(touch_of(lost) <= touch_of(one) for lost in done.evicted for one in fresh)


def test_a_slice_is_what_was_found_and_what_we_changed_since() -> None:
    slices = Slices(2)
    slices.change(0, 1, 100)  # nobody has swept it yet
    assert (slices.last(0), slices.totals()) == (None, (1, 100))
    slices.swept(0, Amount(10, 1_000), 5.0, slices.changed(0), False)
    slices.change(0, 1, 100)
    assert (slices.now(0), slices.untold_bytes(0)) == ((11, 1_100), 100)
    before = slices.changed(0)
    slices.change(0, 2, 50)  # while it is swept again
    slices.swept(0, Amount(11, 1_100), 6.0, before, False)
    assert slices.totals() == (13, 1_150)
    slices.heard(1, 4, 400, 1.0)
    assert slices.totals() == (17, 1_550)


def test_what_another_process_found_counts_with_what_we_stored_lately() -> None:
    slices = Slices(1)
    slices.swept(0, Amount(), 1.0, Amount(), False)
    slices.change(0, 3, 300)
    slices.looked()
    slices.change(0, 1, 100)
    slices.heard(0, 9, 900, 1.0)  # no later than what we know
    assert slices.totals() == (4, 400)
    slices.heard(0, 9, 900, 2.0)
    assert slices.totals() == (10, 1_000)


def test_a_smaller_capacity_binds_a_slice_when_it_is_swept() -> None:
    slices = Slices(2)
    slices.swept(0, Amount(10, 900), 1.0, Amount(), False)
    slices.change(0, 1, 100)
    slices.bind()
    assert (slices.binding_bytes(0, 400), slices.binding_bytes(0, 2_000)) == (1_000, 2_000)
    assert slices.binding_bytes(1, 400) == 400  # nobody knows what is there
    slices.swept(0, Amount(3, 300), 2.0, slices.changed(0), False)
    assert slices.binding_bytes(0, 400) == 400


def test_touches_follow_the_clock_and_never_go_back() -> None:
    touches = CassandraTouches()
    assert [touches.next(now) for now in (1.0, 1.0, 0.5, 2.0)] == [1_000_000, 1_000_001, 1_000_002, 2_000_000]
    touches.begin_after(7_000_000)
    assert touches.next(3.0) == 7_000_001


def test_touches_wait_since_the_first_and_are_written_once() -> None:
    touches = CassandraTouches()
    touches.note(ONE, 60, 10.0)
    touches.note(TWO, 60, 12.0)
    touches.note(ONE, 50, 15.0)
    assert touches.due(9.9) == {}
    due = touches.due(11.0)
    assert due == {ONE: Touch(15_000_000, 50, 10.0)}
    assert touches.due(99.0, 1) == due
    touches.note(ONE, 40, 16.0)  # while it is written
    touches.written(due)
    assert (touches.noted(ONE), touches.noted(TWO)) == (16_000_000, 12_000_000)
    touches.written(touches.due(99.0))
    assert (len(touches), touches.noted(ONE)) == (0, 0)


@pytest.mark.parametrize(("ceiling", "minutes"), [(60.0, 1), (86_400.0, 60), (30 * 86_400.0, 1_800), (86_401.0, 61)])
def test_a_lifetime_is_two_dozen_windows(ceiling: float, minutes: int) -> None:
    assert f"'compaction_window_size': {minutes}}}" in tables(ceiling)["answer"]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://host/keyspace", "expected cassandra://host:9042/keyspace"),
        ("cassandra://host:9042", "expected cassandra://host:9042/keyspace"),
        ("cassandra://host/one/two", "expected cassandra://host:9042/keyspace"),
        ("cassandra://user:secret@host:x/keyspace", "expected host or host:port"),
        ("cassandra://user:secret@,/keyspace", "expected host or host:port"),
        ("cassandra://host:1,other:2/keyspace", r"got the ports \[1, 2\]"),
    ],
)
def test_a_url_of_another_form_is_refused_and_its_password_kept(url: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as error:
        CassandraConnection(url)
    assert "secret" not in str(error.value)


@pytest.mark.skipif(find_spec("cassandra") is not None, reason="the driver is installed")
def test_without_the_driver_it_says_what_to_install() -> None:
    with pytest.raises(InputError, match=r'pip install "setpoint\[cassandra\]"'):
        CassandraConnection("cassandra://host/keyspace")


@pytest.mark.parametrize(("name", "value"), [("slices", 0), ("spare_share", 1.0), ("spare_share", -0.1)])
def test_options_that_cannot_be_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name}: got {value}, expected"):
        replace(CassandraOptions(), **{name: value})  # type: ignore[arg-type]
