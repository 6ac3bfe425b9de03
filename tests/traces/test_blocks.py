"""Coarser blocks and what an endless cache finds again, against brute force over prompts as lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from tests.traces.tiny import tiny_trace
from traces.blocks import block_reuse, coarsen, token_hit_ratio
from traces.trace import Trace, TraceInfo
from traces.workload import Quantiles, analyse, distribution

PROMPTS = st.lists(st.lists(st.integers(0, 2), max_size=9), min_size=1, max_size=12)


def blocks_trace(prompts: Sequence[Sequence[int]], seconds: Sequence[float] | None = None, size: int = 4) -> Trace:
    """One request for each prompt, all its blocks full."""
    return tiny_trace(
        list(range(len(prompts))),
        range(len(prompts)) if seconds is None else seconds,
        info=TraceInfo("tiny", "written by hand", block_size_tokens=size),
        prompt_tokens=np.array([size * len(prompt) for prompt in prompts], np.int32),
        block_offsets=np.cumsum([0, *map(len, prompts)], dtype=np.int64),
        block_hashes=np.array([block for prompt in prompts for block in prompt], np.int64),
    )


def in_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Blocks of the longest common beginning."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def longest_runs(prompts: Sequence[Sequence[int]]) -> list[int]:
    return [max((in_common(prompt, old) for old in prompts[:i]), default=0) for i, prompt in enumerate(prompts)]


def chains(trace: Trace) -> list[list[int]]:
    assert trace.block_offsets is not None
    assert trace.block_hashes is not None
    bounds = zip(trace.block_offsets[:-1], trace.block_offsets[1:], strict=True)
    return [trace.block_hashes[begin:end].tolist() for begin, end in bounds]


@settings(deadline=None)  # the first call compiles
@given(PROMPTS)
def test_leading_runs_are_the_longest_common_beginnings(prompts: list[list[int]]) -> None:
    reuse = block_reuse(blocks_trace(prompts))
    assert reuse is not None
    assert reuse.leading_run.tolist() == longest_runs(prompts)
    assert reuse.different == len({tuple(p[: i + 1]) for p in prompts for i in range(len(p))})


@settings(deadline=None)  # the first call compiles
@given(PROMPTS, st.integers(1, 5))
def test_coarser_runs_are_the_finer_ones_rounded_down(prompts: list[list[int]], factor: int) -> None:
    coarse = coarsen(blocks_trace(prompts), factor)
    made = chains(coarse)
    assert [len(chain) for chain in made] == [len(prompt) // factor for prompt in prompts]
    for i, prompt in enumerate(prompts):
        for j in range(i):
            assert in_common(made[i], made[j]) == in_common(prompt, prompts[j]) // factor
    reuse = block_reuse(coarse)
    assert reuse is not None
    assert reuse.leading_run.tolist() == [run // factor for run in longest_runs(prompts)]


@settings(deadline=None)  # the first call compiles
@given(PROMPTS, st.lists(st.floats(0, 100), min_size=12, max_size=12))
def test_gaps_are_times_since_a_block_was_last_used(prompts: list[list[int]], pauses: list[float]) -> None:
    seconds = np.cumsum(pauses)[: len(prompts)].tolist()
    last: dict[tuple[int, ...], float] = {}
    expected = []
    for prompt, now in zip(prompts, seconds, strict=True):
        for i in range(len(prompt)):
            beginning = tuple(prompt[: i + 1])
            if beginning in last:
                expected.append(now - last[beginning])
            last[beginning] = now
    reuse = block_reuse(blocks_trace(prompts, seconds))
    assert reuse is not None
    assert np.repeat(reuse.gap_seconds, reuse.blocks).tolist() == expected


def test_a_coarse_block_is_its_whole_beginning() -> None:
    """Two groups of equal blocks after different beginnings are different; a rest that fills no group is dropped."""
    coarse = coarsen(blocks_trace([[1, 2, 3, 4, 5], [9, 2, 3, 4], [1, 2, 3, 4]]), 2)
    first, second, third = chains(coarse)
    assert first == third
    assert len(first) == 2
    assert not set(first) & set(second)
    assert coarse.info.block_size_tokens == 8
    assert coarse.info.assumptions == (
        "Prompt blocks of 4 tokens are joined by 2, into 8; what is left of a prompt beyond whole blocks is "
        "never reused.",
    )
    assert (coarse.block_hashes if coarse.block_hashes is not None else np.array([-1])).min() >= 0


def test_many_chains_keep_their_places() -> None:
    """More chains than the table begins with, all asked for twice."""
    prompts = [[i, i + 1, 7] for i in range(3_000)] * 2
    reuse = block_reuse(blocks_trace(prompts))
    assert reuse is not None
    assert reuse.different == 9_000
    assert reuse.leading_run.tolist() == [0] * 3_000 + [3] * 3_000
    assert set(reuse.gap_seconds) == {3_000.0}


def test_token_hit_ratio_counts_a_partial_last_block_by_its_tokens() -> None:
    # Prompts of 4, 4 and 10 tokens; the last block of the third holds 2. Hits: none, 4 and 8; then 10 of 10.
    trace = blocks_trace([[1], [1], [1, 2, 3], [1, 2, 3]])
    tokens = np.array([4, 4, 10, 10], np.int32)
    partial = tiny_trace(
        [0, 1, 2, 3],
        range(4),
        info=trace.info,
        prompt_tokens=tokens,
        block_offsets=trace.block_offsets,
        block_hashes=trace.block_hashes,
    )
    reuse = block_reuse(partial)
    assert reuse is not None
    assert token_hit_ratio(partial, reuse) == (0 + 4 + 4 + 10) / 28
    assert token_hit_ratio(trace, reuse) == (0 + 4 + 4 + 12) / 32


def test_a_trace_without_blocks_has_no_reuse_and_cannot_be_coarsened() -> None:
    trace = tiny_trace([0, 1], [0, 1])
    assert block_reuse(trace) is None
    assert analyse(trace).blocks is None
    with pytest.raises(InputError, match="has no prompt blocks"):
        coarsen(trace, 2)
    with pytest.raises(InputError, match="coarsen: got 0, expected at least 1"):
        coarsen(blocks_trace([[1]]), 0)


def test_the_report_tells_blocks_and_sessions() -> None:
    trace = blocks_trace([[1, 2], [1, 2], [5], [1, 2, 3]], [0, 10, 20, 50])
    session = np.array([0, 0, 1, 0], np.int32)
    blocks = analyse(
        tiny_trace(
            [0, 0, 1, 2],
            [0, 10, 20, 50],
            info=trace.info,
            prompt_tokens=trace.prompt_tokens,
            block_offsets=trace.block_offsets,
            block_hashes=trace.block_hashes,
            session=session,
        )
    ).blocks
    assert blocks is not None
    assert (blocks.references, blocks.different, blocks.block_size_tokens, blocks.sessions) == (8, 4, 4, 2)
    assert blocks.token_hit_ratio == (2 + 2) / 8
    assert blocks.reuse_seconds is not None
    assert blocks.reuse_seconds.quantiles == Quantiles(p50=10, p90=40, p99=40, max=40)  # 10, 10, 40, 40
    assert blocks.session_gap_seconds is not None
    assert blocks.session_gap_seconds.quantiles == Quantiles(p50=10, p90=40, p99=40, max=40)
    assert blocks.per_prompt is not None
    assert blocks.per_prompt.quantiles.p50 == 2


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=30))
def test_values_with_counts_are_as_written_out(pairs: list[tuple[int, int]]) -> None:
    values, times = (np.array(column) for column in zip(*pairs, strict=True))
    short, long = distribution(values, times), distribution(np.repeat(values, times))
    assert short is not None
    assert long is not None
    assert short.quantiles == long.quantiles
    assert np.array_equal(short.cdf.x, long.cdf.x)
    assert np.array_equal(short.cdf.y, long.cdf.y)
