"""Recorded agent sessions: exact chains from a tiny file, and drawn starts against what they should follow."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from caches.errors import BadRecord, InputError
from tests.traces.test_blocks import chains
from traces.blocks import block_reuse, coarsen, token_hit_ratio
from traces.catalog import read_trace
from traces.reader import ReadOptions
from traces.servegen import ArrivalRates
from traces.session_arrivals import Made, SessionStarts, compose_sessions
from traces.trace import Trace

SAMPLE = Path(__file__).parent / "samples" / "agent_sessions.jsonl"
EACH_MINUTE = ReadOptions(sessions_per_day=1440)
BIT = 1 << 32


def own(owner: int, *numbers: int) -> list[int]:
    return [owner * BIT + number for number in numbers]


@pytest.fixture
def sample() -> Trace:
    """Sessions a, b and c start at 0, 60 and 120 s. The sub-agent of a came back at 100 s after 40 s."""
    return read_trace(SAMPLE, None, EACH_MINUTE)


def test_requests_of_all_sessions_are_in_order_of_time(sample: Trace) -> None:
    assert sample.arrival_seconds.tolist() == [0, 10, 60, 60, 65.5, 75, 120, 120]
    assert sample.session is not None
    assert sample.session.tolist() == [0, 0, 0, 1, 1, 0, 0, 2]
    assert sample.prompt_tokens is not None
    assert sample.prompt_tokens.tolist() == [22, 30, 9, 25, 3, 13, 30, 24]
    assert sample.output_tokens is not None
    assert sample.output_tokens.tolist() == [7, 2, 1, 4, 1, 3, 0, 4]
    assert sample.info.block_size_tokens == 4


def test_chains_share_tools_and_system_prompt_and_nothing_else(sample: Trace) -> None:
    """(8 + 5) // 4 = 3 blocks are shared by a and b, (4 + 2) // 4 = 1 by sub-agents. Owners: a 0, the prefix (8, 5) 1,
    (4, 2) 2, b 3, c 4, (9, 4) 5. The last request of a leaves its prefix at the third block, which is its own then."""
    shared = own(1, 0, 1, 2)
    assert chains(sample) == [
        [*shared, *own(0, 4, 5)],
        [*shared, *own(0, 4, 5, 7, 8)],
        [*own(2, 0), *own(0, 21)],
        [*shared, *own(3, 4, 5, 6)],
        [],
        [*own(2, 0), *own(0, 21, 22)],
        [*shared[:2], *own(0, 30, 31, 32, 33, 34)],
        [*own(5, 0, 1, 2), *own(4, 4, 5, 6)],
    ]


def test_what_was_assumed_or_left_out_is_said(sample: Trace) -> None:
    text = " ".join(sample.info.assumptions)
    assert "1 of 9 recorded requests are left out" in text
    assert "spaced evenly, 1440 a day" in text
    assert "common to all sessions of equal values" in text


def test_equal_prompts_have_equal_keys(tmp_path: Path) -> None:
    request = {"t": 0, "in": 8, "out": 1, "h": [[1, 2]]}
    path = written(tmp_path, session(request, {**request, "t": 1}, {**request, "t": 2, "in": 9}))
    assert read_trace(path, None, EACH_MINUTE).key.tolist() == [0, 0, 1]


def test_coarse_reading_is_reading_and_coarsening(sample: Trace) -> None:
    coarse = read_trace(SAMPLE, None, ReadOptions(sessions_per_day=1440, coarsen=2))
    assert chains(coarse) == chains(coarsen(sample, 2))
    assert coarse.info.block_size_tokens == 8
    assert coarse.key.tolist() == sample.key.tolist()


def test_sessions_without_a_rate_are_refused() -> None:
    with pytest.raises(InputError, match="has no start times of sessions, expected a number of sessions per day"):
        read_trace(SAMPLE)
    with pytest.raises(InputError, match="sessions per day: got 0"):
        read_trace(SAMPLE, None, ReadOptions(sessions_per_day=0))
    with pytest.raises(InputError, match="holds no sessions without start times"):
        read_trace(SAMPLE.with_name("mooncake.jsonl"), None, EACH_MINUTE)


def session(*requests: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "x", "block_size": 4, "tool_tokens": 4, "system_tokens": 0, "requests": list(requests), **fields}


def subagent(*requests: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"t": 50, "type": "subagent", "requests": list(requests), **fields}


def written(folder: Path, *sessions: dict[str, Any]) -> Path:
    path = folder / "sessions.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in sessions))
    return path


GOOD = {"t": 0, "in": 8, "out": 1, "h": [[1, 2]]}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (session(GOOD, {**GOOD, "h": [[1, 3]]}), r"requests\.1\.h: got \[\[1, 3\]\], expected at most 2 blocks"),
        (session({**GOOD, "h": [[1, 0]]}), r"requests\.0\.h: got .* expected a list of \[first id, count\]"),
        (session({**GOOD, "h": [[2**32 - 1, 2]]}), r"requests\.0\.h: got"),
        (session({**GOOD, "t": -1}), r"requests\.0\.t: got -1, expected a number from 0 on"),
        (session({**GOOD, "in": 8.5}), r"requests\.0\.in: got 8\.5, expected an integer"),
        (session({**GOOD, "out": -1}), r"requests\.0\.out: got -1"),
        (session(GOOD, block_size=0), r"block_size: got 0, expected at least 1"),
        (session(GOOD, block_size=8), r"block_size: got 8, expected 4, as in the sessions above"),
        (session(GOOD, tool_tokens="many"), r"tool_tokens: got 'many', expected an integer"),
        (session(GOOD, requests={}), r"requests: got \{\}, expected a list of objects"),
        (session(*[[]]), r"requests\.0: got .* expected an object"),  # type: ignore[arg-type]
        (
            session(
                {"t": 5, "type": "subagent", "duration_ms": 1, "requests": [{**GOOD, "in": None}, {**GOOD, "h": 1}]}
            ),
            r"requests\.0\.requests\.1\.h: got 1",
        ),
    ],
)
def test_a_bad_field_is_named_with_its_line(bad: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = written(tmp_path, session(GOOD), bad)
    with pytest.raises(BadRecord, match=message) as caught:
        read_trace(path, None, EACH_MINUTE)
    assert str(caught.value).startswith(f"{path}, line 2, ")


def test_requests_of_a_sub_agent_without_a_time_are_left_out(tmp_path: Path) -> None:
    agent = subagent(GOOD, GOOD)
    empty = session(agent)
    trace = read_trace(written(tmp_path, session(GOOD, agent), empty), None, EACH_MINUTE)
    assert len(trace) == 1
    assert any(sentence.startswith("4 of 5 recorded requests") for sentence in trace.info.assumptions)


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Five recordings of equal tools, each of three requests 100 s apart; prompts of 10 i + 8 tokens and more."""

    def recording(i: int) -> dict[str, Any]:
        return session(*({"t": 100 * k, "in": 40 * i + 8 + 4 * k, "out": 1, "h": [[1, 2 + k]]} for k in range(3)))

    return written(tmp_path, *map(recording, range(5)))


def test_the_same_seed_gives_the_same_trace(recordings: Path) -> None:
    starts = SessionStarts(days=2, per_day=20)
    one, same, other = (compose_sessions(recordings, starts, seed) for seed in (3, 3, 4))
    assert one.sha256 == same.sha256
    assert one.info == same.info
    assert one.sha256 != other.sha256


def test_every_recording_comes_once_before_one_comes_again(recordings: Path) -> None:
    trace = compose_sessions(recordings, SessionStarts(days=1, per_day=40), seed=1)
    assert trace.session is not None
    assert trace.prompt_tokens is not None
    first = np.unique(trace.session, return_index=True)[1]
    which = (trace.prompt_tokens[np.sort(first)] - 8) // 40
    rounds = which[: len(which) // 5 * 5].reshape(-1, 5)
    assert len(rounds) >= 5
    assert all(sorted(one) == [0, 1, 2, 3, 4] for one in rounds.tolist())
    assert len({tuple(one) for one in rounds.tolist()}) > 1


def test_a_recording_used_again_is_another_user(recordings: Path) -> None:
    """All share the first block, of the tools; any other block is in one session only, where it is reused."""
    trace = compose_sessions(recordings, SessionStarts(days=1, per_day=40), seed=1)
    assert trace.session is not None
    users: dict[int, set[int]] = {}
    for number, chain in zip(trace.session.tolist(), chains(trace), strict=True):
        for block in chain:
            users.setdefault(block, set()).add(number)
    shared = {block for block, sessions in users.items() if len(sessions) > 1}
    assert shared == {chain[0] for chain in chains(trace)}
    assert len(shared) == 1


def test_gaps_are_as_recorded_and_the_end_is_cut(recordings: Path) -> None:
    trace = compose_sessions(recordings, SessionStarts(days=0.02, per_day=5_000), seed=1)
    assert trace.session is not None
    assert trace.span_seconds < 0.02 * 86400
    turns = Counter(trace.session.tolist())
    assert set(turns.values()) == {1, 2, 3}
    for number in turns:
        gaps = np.diff(trace.arrival_seconds[trace.session == number])
        assert gaps == pytest.approx(100, abs=1e-6)


def starts_of(trace: Trace) -> Any:
    assert trace.session is not None
    return trace.arrival_seconds[np.sort(np.unique(trace.session, return_index=True)[1])]


def test_a_constant_rate_is_poisson(recordings: Path) -> None:
    trace = compose_sessions(recordings, SessionStarts(days=3, per_day=1_000), seed=2)
    starts = starts_of(trace)
    assert abs(len(starts) - 3_000) < 4 * 3_000**0.5
    assert kstest(np.diff(starts), "expon", args=(0, 86.4)).pvalue > 0.01


def test_starts_follow_the_rates(recordings: Path) -> None:
    """Four windows of ten minutes with rates 1, 3, 0 and 2 from the second on: 1/6, 3/6 and 2/6 of all starts."""
    rates = ArrivalRates("r.csv", np.array([0, 1, 2, 4]), np.zeros(4, np.int64), np.array([9.0, 1.0, 3.0, 2.0]))
    ten_minutes = 600 / 86400
    starts = SessionStarts(4 * ten_minutes, 1_200 / (4 * ten_minutes), rates, ten_minutes)
    counts = np.histogram(starts_of(compose_sessions(recordings, starts, seed=2)), 600 * np.arange(5))[0]
    assert counts[2] == 0
    total = counts.sum()
    assert abs(total - 1_200) < 4 * 1_200**0.5
    assert chisquare(counts[[0, 1, 3]], total * np.array([1, 3, 2]) / 6).pvalue > 0.01


def test_the_origin_of_a_composed_trace_is_said(recordings: Path) -> None:
    rates = ArrivalRates("r.csv", np.arange(144), np.zeros(144, np.int64), np.ones(144))
    starts = SessionStarts(days=1, rates=rates)
    info = compose_sessions(recordings, starts, 1, Made("agents", "Apache-2.0", coarsen=2)).info
    assert info.name == "agents"
    assert info.composed
    assert info.licence == "rates Apache-2.0; sessions Apache-2.0"
    assert info.source.endswith("rate of their starts: ServeGen, r.csv")
    assert info.block_size_tokens == 8
    assert any("(seed 1), Poisson, at a mean rate of" in sentence for sentence in info.assumptions)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"days": 0}, "days: got 0, expected a number above 0"),
        ({"days": float("nan")}, "days: got nan"),
        ({"per_day": -1}, "per_day: got -1"),
        ({"per_day": 1e-9}, "per_day: got 1e-09, with which no session starts"),
        ({"start_day": 1}, "start_day: got 1, expected it together with rates"),
        ({"rates": ArrivalRates("r.csv", np.array([0]), np.array([0]), np.array([1.0]))}, r"days: got 1, expected"),
        ({"seed": -1}, "seed: got -1"),
    ],
)
def test_impossible_starts_are_refused(change: dict[str, Any], message: str, recordings: Path) -> None:
    with pytest.raises(InputError, match=message):
        compose_sessions(recordings, SessionStarts(**{"days": 1, **_without_seed(change)}), change.get("seed", 0))


def _without_seed(change: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in change.items() if name != "seed"}


@pytest.mark.slow
def test_the_recorded_sessions_have_their_published_numbers(shared_traces: Path) -> None:
    """What blocks of 64 tokens hit, and what is left of it with blocks of 16 and 32 times as many tokens."""
    path = shared_traces / "llm" / "claude_code_sessions.part1.jsonl.gz"
    trace = read_trace(path, None, ReadOptions(sessions_per_day=100))
    assert trace.session is not None
    assert trace.block_hashes is not None
    assert (len(trace), int(trace.session.max()) + 1, len(trace.block_hashes)) == (23_220, 375, 44_613_363)
    for factor, expected in ((1, 0.9612), (4, 0.9604), (8, 0.9594), (16, 0.9573), (32, 0.9532)):
        coarse = coarsen(trace, factor)
        reuse = block_reuse(coarse)
        assert reuse is not None
        assert token_hit_ratio(coarse, reuse) == pytest.approx(expected, abs=1e-4)
