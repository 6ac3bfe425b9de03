"""Formats by name, by detection, and the one way from a path to a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from caches.errors import InputError
from tests.contracts.reader_contract import assert_same_trace
from tests.traces.trace_samples import FOLDER
from traces.catalog import FORMATS, detect_format, find_format, load_trace, read_trace
from traces.reader import ReadOptions
from traces.store import save_trace


def test_unknown_format_names_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        find_format("twiter")
    message = str(caught.value)
    assert message.startswith("trace format: got 'twiter', expected one of access_log, agent_sessions, azure,")
    assert message.endswith("; did you mean twitter?")
    assert find_format("azure") is FORMATS["azure"]


def test_a_mapping_means_a_general_format() -> None:
    mapped = ReadOptions(columns={"key": "key"})
    assert detect_format(FOLDER / "twitter_short.csv", mapped).name == "csv"
    assert detect_format(FOLDER / "mooncake.jsonl", mapped).name == "jsonl"


def test_no_guess_where_nothing_is_sure(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_text('10.0.0.1 - - "GET / HTTP/1.1" 200\n')
    with pytest.raises(InputError, match=r"access\.log: got no format that can be told from it"):
        detect_format(path, ReadOptions())


def test_load_opens_either_kind(tmp_path: Path) -> None:
    raw = FOLDER / "azure.csv"
    folder = tmp_path / "azure.trace"
    save_trace(read_trace(raw), folder)
    assert_same_trace(load_trace(folder), load_trace(raw))
    assert load_trace(str(folder)).info.source == "azure.csv (azure)"
    assert load_trace(raw).info.name == "azure"
