"""What the benchmark of techniques is made of: its time, its truth, its judgement and its arithmetic."""

from __future__ import annotations

import asyncio
import time

import pytest

pytest.importorskip("fow_cache", reason="the texts come with the extra bench")

from benchmarks.technique_catalog import NOTHING, Technique, _own, together
from benchmarks.technique_runs import Outcome, merged, run
from benchmarks.technique_tables import Difference, pays, picked
from benchmarks.technique_time import in_leaping_time
from benchmarks.technique_traffic import Ask, Traffic, Troubles, Truth, body_of, sent, streaming
from benchmarks.technique_wordings import meanings, pairs

ONE_SECOND = 76  # tokens of an answer that takes about so long, with 300 of a prompt


def outcome(usd: float) -> Outcome:
    return Outcome(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, usd, 0.0, 0.0, 0.0)


def asked(due: list[float], *, streamed: bool = False, drop: int | None = None) -> list[Ask]:
    body = body_of("Where is it?", 0, 300, ONE_SECOND)
    whole = sent(streaming(body) if streamed else body)
    return [Ask(one, whole, 0, 1.0, is_streamed=streamed, pieces_before_drop=drop) for one in due]


def test_time_passes_while_something_waits_and_takes_none() -> None:
    async def work() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        found = await asyncio.to_thread(sum, [1, 2])
        await asyncio.gather(asyncio.sleep(3_600.0), asyncio.sleep(60.0))
        return loop.time(), found

    began = time.perf_counter()
    seconds, found = in_leaping_time(work())
    assert (seconds, found) == (3_600.0, 3)
    assert time.perf_counter() - began < 60.0


def test_a_version_counts_from_the_moment_of_its_change() -> None:
    truth = Truth([[1.0, 5.0], []])
    assert [truth.version(0, seconds) for seconds in (0.0, 1.0, 4.9, 5.0)] == [0, 1, 1, 2]
    assert truth.version(1, 9.0) == 0


def test_questions_of_a_pair_have_one_meaning_where_one_answer_is_right() -> None:
    known = meanings()
    same = [known[pair["a"]] == known[pair["b"]] for pair in pairs() if pair["same_answer"]]
    assert all(same)
    other = [known[pair["a"]] != known[pair["b"]] for pair in pairs() if not pair["same_answer"]]
    assert sum(other) >= 0.9 * len(other)


def test_tables_are_merged_and_lists_replaced() -> None:
    assert merged({"a": {"b": 1, "c": (1,)}}, {"a": {"c": (2,)}}) == {"a": {"b": 1, "c": (2,)}}
    assert _own({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 0}, "d": 3}) == {"a": {"c": 2}}


def test_an_interval_is_that_of_student() -> None:
    """Two pairs: 12.706 standard errors either way."""
    found = Difference.of([1.0, 3.0])
    assert (found.mean, found.low, found.high) == pytest.approx((2.0, 2.0 - 12.706, 2.0 + 12.706), abs=1e-3)
    assert not found.is_above
    assert Difference.of([0.0, 0.0]).shown == "0"


def test_what_pays_is_cheaper_somewhere_and_dearer_nowhere() -> None:
    cheap, dear, same = [outcome(1.0)] * 2, [outcome(3.0)] * 2, [outcome(2.0)] * 2
    runs = {
        "one": {"all off": same, "a": cheap, "b": cheap, "c": same},
        "other": {"all off": same, "a": same, "b": dear, "c": same},
    }
    assert [pays(runs, name) for name in "abc"] == [True, False, False]
    every = [Technique(name, "some", merged(NOTHING, {"streaming": {"enabled": True}})) for name in "abc"]
    chosen = picked(runs, every)
    assert [one.name for one in chosen] == ["a"]
    assert together(chosen).settings == merged(NOTHING, {"streaming": {"enabled": True}})


def test_equal_requests_hit_and_an_answer_is_stale_after_its_change() -> None:
    found = run(Traffic(asked([0.0, 10.0, 20.0]), Truth([[15.0]]), 2), NOTHING)
    assert (found.hit_ratio, found.stale, found.failed) == pytest.approx((2 / 3, 1 / 3, 0.0))
    assert found.calls == pytest.approx(1_000.0 / 3)
    again = run(Traffic(asked([0.0, 10.0, 20.0]), Truth([[15.0]]), 2), NOTHING)
    assert again.p99_seconds == found.p99_seconds


def test_a_backend_that_is_down_fails_requests_and_guards_answer_for_it() -> None:
    troubles = Troubles(down=[(50.0, 100.0)])
    settings = {"tiers": {"memory": {"ttl_seconds": 30.0}}}
    traffic = Traffic(asked([0.0, 60.0, 70.0, 200.0]), Truth([[]]), 2, settings, troubles)
    assert run(traffic, NOTHING).failed == pytest.approx(0.5)
    stale = merged(NOTHING, {"resilience": {"enabled": True, "stale_grace_seconds": 3_600.0}})
    guarded = run(traffic, stale)
    assert (guarded.failed, guarded.instead, guarded.stale) == pytest.approx((0.0, 0.5, 0.0))


def test_a_broken_stream_is_resumed_where_streams_are_kept() -> None:
    traffic = Traffic(asked([0.0], streamed=True, drop=2), Truth([[]]), 2)
    without, kept = run(traffic, NOTHING), run(traffic, merged(NOTHING, {"streaming": {"enabled": True}}))
    assert (without.failed, kept.failed) == (0.0, 0.0)
    assert (without.calls, kept.calls) == (2_000.0, 1_000.0)
