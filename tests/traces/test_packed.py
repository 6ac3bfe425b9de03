"""A trace as one Parquet file, and the one that comes with Setpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.errors import InputError
from tests.traces.tiny import tiny_trace
from traces.catalog import check_output, load_trace, opens_at_once, read_trace, write_trace
from traces.packed import is_packed, open_packed, save_packed
from traces.shipped import located, shipped_traces
from traces.store import open_trace, save_trace, trace_sha256
from traces.trace import COLUMNS, Operation, Trace, TraceInfo

ROOT = Path(__file__).parents[2]
SHIPPED = "servegen-twitter-14d"


def sample(arrivals: list[float] | None = None) -> Trace:
    return tiny_trace(
        [0, 1, 0],
        arrivals or [0.0, 0.5, 2.25],
        [10, 2**31 - 1, 10],
        prompt_tokens=np.array([5, 6, 5], np.int32),
        output_tokens=np.array([0, 1, 0], np.int32),
        namespace=np.array([0, 1, 0], np.int32),
        ttl_seconds=np.array([np.nan, 1.5, np.nan], np.float32),
        session=np.array([0, 1, 1], np.int32),
        info=TraceInfo("tiny", "by hand", "CC0", composed=True, assumptions=("One.", "Two."), namespaces=("a", "b")),
    )


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    trace, file = sample(), tmp_path / "tiny.parquet"
    digest = save_packed(trace, file)
    back = open_packed(file)
    assert back.info == trace.info
    assert back.num_keys == 2
    assert back.sha256 == digest == trace_sha256(back) == trace_sha256(trace)
    for name in COLUMNS:
        one, other = getattr(trace, name), getattr(back, name)
        assert (one is None) == (other is None)
        assert one is None or (one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.parquet"]


@given(st.lists(st.floats(0.0, 1e8), min_size=3, max_size=3))
def test_times_are_kept_to_the_millisecond_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, times: list[float]
) -> None:
    trace, file = sample(sorted(times)), tmp_path_factory.mktemp("packed") / "x.parquet"
    digest = save_packed(trace, file)
    back = open_packed(file)
    assert np.abs(back.arrival_seconds - trace.arrival_seconds).max() <= 0.000501
    assert (np.diff(back.arrival_seconds) >= 0).all()
    assert save_packed(back, file, overwrite=True) == digest  # once rounded, always the same


def test_it_is_a_plain_table_too(tmp_path: Path) -> None:
    """Any tool reads the columns by their names, and so does our own reader of foreign files."""
    file = tmp_path / "tiny.parquet"
    save_packed(sample(), file)
    table = pq.read_table(file)
    assert table.column_names == [
        "time",
        "key",
        "size",
        "namespace",
        "prompt_tokens",
        "output_tokens",
        "ttl",
        "session",
    ]
    assert table["ttl"].null_count == 2
    copy = tmp_path / "foreign.parquet"
    pq.write_table(table.drop_columns(["namespace"]).replace_schema_metadata(None), copy)
    assert not opens_at_once(copy)
    assert read_trace(copy).arrival_seconds.tolist() == [0.0, 0.5, 2.25]


def test_the_name_of_the_output_decides(tmp_path: Path) -> None:
    trace = sample()
    assert write_trace(trace, tmp_path / "x.parquet") == write_trace(trace, tmp_path / "x.trace")
    assert is_packed(tmp_path / "x.parquet")
    assert open_trace(tmp_path / "x.trace").sha256 == load_trace(tmp_path / "x.parquet").sha256
    assert opens_at_once(tmp_path / "x.parquet")
    assert opens_at_once(tmp_path / "x.trace")


def test_it_refuses_to_overwrite_and_what_it_cannot_hold(tmp_path: Path) -> None:
    file, foreign = tmp_path / "x.parquet", tmp_path / "foreign.parquet"
    save_packed(sample(), file)
    foreign.write_bytes(b"something of the user's")
    with pytest.raises(InputError, match="exists already, expected a new name"):
        check_output(file, overwrite=False)
    with pytest.raises(InputError, match="exists already, expected one that Setpoint wrote"):
        check_output(foreign, overwrite=True)
    with pytest.raises(InputError, match="got no folder"):
        check_output(tmp_path / "none" / "x.parquet", overwrite=False)
    deletes = tiny_trace([0], [0.0], operation=np.array([Operation.DELETE], np.uint8))
    with pytest.raises(InputError, match="expected a folder"):
        save_packed(deletes, tmp_path / "y.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foreign.parquet", "x.parquet"]


def test_damage_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    save_packed(sample(), file)
    table = pq.read_table(file)
    changed = table.set_column(2, "size", [[10, 20, 10]]).cast(table.schema)
    pq.write_table(changed, file)
    with pytest.raises(InputError, match=r"x\.parquet: got columns with sha256"):
        load_trace(file)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"x\.parquet"):
        load_trace(file)


def test_the_shipped_trace_opens_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trace = load_trace(SHIPPED)
    assert (len(trace), trace.num_keys) == (700_000, 108_163)
    assert trace.info.composed
    assert trace.info.licence == "rates Apache-2.0; keys CC-BY-4.0"
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    assert trace.span_seconds > 13.9 * 86400
    assert set(np.unique(trace.key)) == set(range(trace.num_keys))


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_trace(sample(), tmp_path / SHIPPED)
    assert located(Path(SHIPPED)) == Path(SHIPPED)
    assert len(load_trace(SHIPPED)) == 3


def test_shipped_traces_are_small_and_described() -> None:
    page = (ROOT / "traces" / "data" / "README.md").read_text(encoding="utf-8")
    assert sum(file.stat().st_size for file in shipped_traces().values()) < 6_000_000
    assert [name for name in shipped_traces() if f"## {name}.parquet" not in page] == []
