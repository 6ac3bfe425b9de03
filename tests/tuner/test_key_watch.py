"""The ghosts beside a control loop: fed between ticks, closed at ticks, whatever the source and the loop do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from caches.knobs import KnobSettings
from caches.target import Arm, Plan, Split
from tests.envs.worlds import KNOBS, SETTINGS, problem
from tests.traces.access_records import SECRET
from tests.tuner.ghost_traffic import ALONE, HERE, rules_of
from traces.access.parquet_log import ParquetAccessLog
from traces.access.record import AccessRecord
from tuner.keys import parquet_files
from tuner.keys.ghosts import LiveGhosts
from tuner.keys.in_process import InProcessKeys
from tuner.keys.parquet_files import ParquetKeys
from tuner.keys.view import Viewpoint
from tuner.keys.watch import KeyWatch
from tuner.loop.sight import KeysSeen
from tuner.records import ControlState

SECONDS, FIRST = 10.0, 170_000_000  # intervals of ten seconds; the number of the first one


def state(index: int, plan: Plan = ALONE) -> ControlState:
    return ControlState("cache", FIRST + index, SECONDS * (FIRST + index), None, plan, True)


def at(interval: float) -> float:
    return SECONDS * (FIRST + interval)


def records(intervals: int, arm: str | None = None) -> list[AccessRecord]:
    """Twenty requests in each, for a dozen keys."""
    rng = np.random.default_rng(0)
    keys = rng.geometric(0.2, 20 * intervals) % 12
    return [
        AccessRecord(at((number + 0.5) / 20.0), b"%d" % key, "default", "default", "miss", 200, 200, 90, 9, arm=arm)
        for number, key in enumerate(keys.tolist())
    ]


def watch_of(
    source: InProcessKeys | ParquetKeys, ghosts: LiveGhosts, begin: float = 0.0, asked_from: int = 0
) -> KeyWatch:
    """asked_from: as KeyWatch's, from FIRST on."""
    return KeyWatch(source, ghosts, SECONDS, at(begin), lambda: HERE, 2.0, ALONE, FIRST + asked_from)


def new_ghosts() -> LiveGhosts:
    return LiveGhosts(rules_of(problem()), [HERE])


def source_of(every: Sequence[AccessRecord]) -> InProcessKeys:
    keys = InProcessKeys(SECRET)
    for one in every:
        keys.add(one)
    return keys


def assert_same(one: KeysSeen, other: KeysSeen) -> None:
    np.testing.assert_array_equal(one.traffic, other.traffic)
    np.testing.assert_array_equal([one.reference_usd, *one.ghost_usd], [other.reference_usd, *other.ghost_usd])
    assert one.ghosts is not None
    assert other.ghosts is not None
    np.testing.assert_array_equal(one.ghosts.usd, other.ghosts.usd)


def test_looking_between_ticks_changes_nothing_but_what_is_left_to_do() -> None:
    every = records(6)
    patient, eager = new_ghosts(), new_ghosts()
    waiting, looking = watch_of(source_of(every), patient), watch_of(source_of(every), eager)
    for index in range(6):
        for tenth in range(1, 10):
            looking.look(at(index + tenth / 10.0))
        for watch in (waiting, looking):
            found = watch.keys(state(index), at(index + 1) + 0.3)
            assert watch.problem is None
            assert found.reference_usd.keys() == {Arm.CONTROL}
        assert_same(patient.seen(HERE), eager.seen(HERE))
        assert patient.last is not None
        assert patient.last.traffic[0] == 20.0
        assert (patient.last.began_seconds, patient.last.ended_seconds) == (at(index), at(index + 1))


def test_asked_again_it_says_the_same_and_of_another_interval_nothing() -> None:
    watch = watch_of(source_of(records(3)), new_ghosts())
    first = watch.keys(state(0), at(1))
    assert_same(watch.keys(state(0), at(1) + 2.0).keys, first.keys)
    for index, now, known in ((0, at(1), True), (-5, at(1), False), (1, at(1) + 5.0, False), (0, at(2), False)):
        found = watch.keys(state(index), now)
        assert np.isnan(found.keys.reference_usd) == (not known)
        assert bool(found.reference_usd) == known


def test_a_watch_begins_with_a_whole_interval() -> None:
    watch = watch_of(source_of(records(3)), new_ghosts(), begin=0.4)
    watch.look(at(0.9))
    assert np.isnan(watch.keys(state(0), at(1)).keys.traffic).all()
    assert watch.keys(state(1), at(2)).keys.traffic[0] == 20.0


def test_intervals_in_which_no_tick_came_are_made_up_for() -> None:
    every = records(5)
    patient, absent = new_ghosts(), new_ghosts()
    watch = watch_of(source_of(every), patient)
    for index in range(5):
        watch.keys(state(index), at(index + 1))
    late = watch_of(source_of(every), absent)
    late.keys(state(0), at(1))
    late.keys(state(4), at(5))
    assert_same(patient.seen(HERE), absent.seen(HERE))


def test_without_ticks_intervals_are_closed_a_whole_one_later() -> None:
    """As in a daemon that stands by: when it takes over, little is left to do, and what it says is the same."""
    every = records(30)
    patient, standing_by = new_ghosts(), new_ghosts()
    watch = watch_of(source_of(every), patient)
    for index in range(30):
        watch.keys(state(index), at(index + 1))
    other = watch_of(source_of(every), standing_by)
    for tenth in range(1, 299):
        other.look(at(tenth / 10.0))
        done = 0 if other.last is None else round((other.last.ended_seconds - at(0)) / SECONDS)
        assert done == max(tenth // 10 - 1, 0)
    other.keys(state(29), at(30))
    assert_same(patient.seen(HERE), standing_by.seen(HERE))


def test_drafts_are_followed_beside() -> None:
    watch = watch_of(source_of(records(3)), new_ghosts())
    watch.drafts = {"same": SETTINGS}
    usd = [watch.keys(state(index), at(index + 1)).reference_usd[Arm.CONTROL] for index in range(3)]
    assert watch.last is not None
    assert watch.last.drafts["same"].usd == usd[-1]


def test_arms_cost_what_their_own_requests_would_have() -> None:
    """All requests are the treatment arm's, which has nine tenths of the room: the control arm pays rent only."""
    control = replace(SETTINGS, warmup_ratio=0.0)
    plan = Plan(Split("salt", 0.9), control, KNOBS.default())
    watch = watch_of(source_of(records(2, "treatment")), new_ghosts())
    usd = watch.keys(state(0, plan), at(1)).reference_usd
    assert usd[Arm.CONTROL] == pytest.approx(0.1 * 2_000.0 / 2**30 * SECONDS / 3_600.0 * 4_000.0)
    assert usd[Arm.TREATMENT] > 10 * usd[Arm.CONTROL]


def test_another_policy_is_looked_from_with_the_next_interval() -> None:
    place = [HERE]
    other = Viewpoint(KNOBS, KnobSettings(1_500.0, 15.0, 0.5))
    watch = KeyWatch(source_of(records(4)), new_ghosts(), SECONDS, at(0), lambda: place[0], settle_seconds=2.0)
    assert np.isfinite(watch.keys(state(0), at(1)).keys.reference_usd)
    watch.look(at(1.9) + 2.0)
    place[0] = other
    assert np.isnan(watch.keys(state(1), at(2)).keys.reference_usd)
    assert np.isfinite(watch.keys(state(2), at(3)).keys.reference_usd)


def test_a_source_that_is_away_leaves_the_interval_open(tmp_path: Path) -> None:
    """The folder comes when the first interval is over and closed in vain; then nothing is missing."""
    folder = tmp_path / "log"
    ghosts = new_ghosts()
    watch = watch_of(ParquetKeys(folder, at(0), 30.0), ghosts)
    watch.look(at(9.5))
    assert watch.problem is not None
    assert "No such file" in watch.problem
    watch.keys(state(9), at(10))
    assert watch.problem is not None
    assert ghosts.last is None
    write(folder, records(2))
    watch.keys(state(10), at(11))
    assert watch.problem is None
    assert ghosts.last is not None
    assert ghosts.last.began_seconds == at(1)
    assert ghosts.last.traffic[0] == 20.0


def write(folder: Path, every: Sequence[AccessRecord]) -> None:
    log = ParquetAccessLog(folder, secret=SECRET)
    log.write(every, at(0))
    log.close()


def test_a_late_source_tells_the_grid_of_intervals_before_and_no_more(tmp_path: Path) -> None:
    """Files are complete after 30 s, and a minute is allowed for: interval 0 is known when interval 9 is over."""
    write(tmp_path, records(5))
    watch = watch_of(ParquetKeys(tmp_path, at(0), 30.0), new_ghosts())
    for index in range(12):
        found = watch.keys(state(index), at(index + 1))
        assert np.isnan(found.keys.traffic).all()
        assert np.isnan(found.keys.reference_usd)
        known = 0 if found.keys.ghosts is None else found.keys.ghosts.usd.shape[1]
        assert known == max(index - 8, 0)


def test_ghosts_that_were_primed_go_on_as_if_they_had_been_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fourteen intervals of a folder, the first of which is let go, beside a watch that was there from the second on.
    What the next tick asks for is left to it."""
    every = records(15)
    write(tmp_path, every)
    always, primed = new_ghosts(), new_ghosts()
    watch = watch_of(source_of(every), always, begin=1.0)
    told = {index: watch.keys(state(index), at(index + 1)) for index in range(1, 15)}
    monkeypatch.setattr(parquet_files, "AHEAD_SECONDS", 0.0)  # the folder has been complete for long
    other, now = watch_of(ParquetKeys(tmp_path, at(-40), 0.0), primed, -40.0, 14), at(15)
    assert other.prime(now)
    assert not other.prime(now)
    assert primed.last is not None
    assert primed.last.ended_seconds == at(14)
    found = other.keys(state(14), now)
    assert_same(found.keys, told[14].keys)
    assert found.reference_usd == told[14].reference_usd
    assert found.keys.ghosts is not None
    assert found.keys.ghosts.usd.shape[1] == 14


def test_a_past_without_a_request_is_none() -> None:
    watch = watch_of(source_of([]), new_ghosts(), begin=-30.0)
    assert not watch.prime(at(0))
    assert watch.last is None
    assert watch.keys(state(0), at(1)).keys.traffic[0] == 0.0


def test_where_the_source_is_away_the_past_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "AHEAD_SECONDS", 0.0)
    watch = watch_of(ParquetKeys(tmp_path / "log", at(-9), 0.0), new_ghosts(), begin=-9.0)
    assert not watch.prime(at(0))
    assert watch.problem is not None
    write(tmp_path / "log", records(1))
    assert watch.keys(state(0), at(1)).keys.traffic[0] == 20.0


def test_a_tick_closes_no_more_than_a_few_intervals() -> None:
    """Which may be left where a source was away for long; looks between ticks see to the rest."""
    watch = watch_of(source_of(records(60)), new_ghosts())
    assert np.isnan(watch.keys(state(49), at(50)).keys.traffic).all()
    for _ in range(4):
        watch.look(at(50) + 1.0)
    assert watch.keys(state(49), at(50) + 1.0).keys.traffic[0] == 20.0


def test_what_was_lost_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    keys = InProcessKeys(SECRET, most_waiting=15)
    for one in records(1):
        keys.add(one)
    watch_of(keys, new_ghosts()).keys(state(0), at(1))
    assert caplog.messages == ["5 requests were not seen: more than 15 waited."]
