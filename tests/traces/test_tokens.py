"""Token counts for traces without any."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from caches.errors import InputError
from tests.traces.trace_samples import FOLDER
from traces.catalog import read_trace
from traces.tokens import assume_tokens, sized_by_tokens


def test_fills_both_columns_and_says_so() -> None:
    bare = read_trace(FOLDER / "twitter_short.csv")
    trace = assume_tokens(bare)
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    assert trace.prompt_tokens.tolist() == [1020] * 8
    # Sizes 290, 503, 54, 53, 54, 231, 54, 53 by 4 bytes, halves to even: 72.5 -> 72, 13.5 -> 14.
    assert trace.output_tokens.tolist() == [72, 126, 14, 13, 14, 58, 14, 13]
    assert trace.output_tokens.dtype == trace.prompt_tokens.dtype == np.int32
    assert len(trace.info.assumptions) == 2
    assert trace.sha256 == bare.sha256


def test_an_empty_answer_has_one_token() -> None:
    bare = read_trace(FOLDER / "twitter_short.csv")
    empty = dataclasses.replace(bare, size_bytes=np.zeros(8, dtype=np.int32))
    output = assume_tokens(empty).output_tokens
    assert output is not None
    assert output.tolist() == [1] * 8


def test_recorded_counts_stay() -> None:
    recorded = read_trace(FOLDER / "mooncake.jsonl")
    assert assume_tokens(recorded) is recorded
    half = assume_tokens(dataclasses.replace(recorded, prompt_tokens=None), prompt_tokens=7)
    assert half.output_tokens is recorded.output_tokens
    assert half.prompt_tokens is not None
    assert half.prompt_tokens.tolist() == [7] * 6
    assert len(half.info.assumptions) == len(recorded.info.assumptions) + 1


def test_refuses_impossible_counts() -> None:
    bare = read_trace(FOLDER / "twitter_short.csv")
    with pytest.raises(InputError, match="prompt tokens: got 0"):
        assume_tokens(bare, prompt_tokens=0)
    with pytest.raises(InputError, match="bytes per token: got 0"):
        assume_tokens(bare, bytes_per_token=0)


def test_default_is_the_median_of_the_azure_trace(shared_traces: Path) -> None:
    counts = read_trace(shared_traces / "llm" / "azure_llm_2023_conv.csv.gz").prompt_tokens
    assert counts is not None
    assert np.median(counts) == 1020


def test_sizes_follow_from_tokens_where_that_is_asked_for() -> None:
    bare = read_trace(FOLDER / "twitter_short.csv")
    with pytest.raises(InputError, match="got no output tokens"):
        sized_by_tokens(bare, 330, 4.0)
    trace = assume_tokens(bare)
    assert trace.output_tokens is not None
    made = sized_by_tokens(trace, 330, 2.5)
    assert made.size_bytes.tolist() == [round(330 + 2.5 * tokens) for tokens in trace.output_tokens.tolist()]
    assert made.size_bytes.dtype == np.int32
    assert made.info.assumptions[-1] == "Sizes are modelled as 330 bytes and 2.5 for each output token."
    assert made.sha256 == trace.sha256  # the recorded traffic is the same
