"""Converted traces on disk."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import orjson
import pytest

from caches.errors import InputError
from tests.contracts.reader_contract import assert_same_trace
from traces.store import is_converted, open_trace, save_trace, trace_sha256
from traces.trace import Trace, TraceInfo


@pytest.fixture
def full() -> Trace:
    """Every column present; the second prompt has no blocks."""
    return Trace(
        info=TraceInfo("full", "by hand", "Apache-2.0", True, ("Modelled.",), 1.7e9, 16, ("a", "b")),
        arrival_seconds=np.array([0.0, 0.5, 0.5]),
        key=np.array([0, 1, 0], dtype=np.int32),
        size_bytes=np.array([10, 20, 10], dtype=np.int32),
        num_keys=2,
        namespace=np.array([0, 1, 0], dtype=np.int32),
        prompt_tokens=np.array([5, 6, 5], dtype=np.int32),
        output_tokens=np.array([2, 4, 2], dtype=np.int32),
        ttl_seconds=np.array([np.nan, 60, np.nan], dtype=np.float32),
        operation=np.array([0, 1, 2], dtype=np.uint8),
        session=np.array([0, 1, 1], dtype=np.int32),
        block_offsets=np.array([0, 2, 2, 4]),
        block_hashes=np.array([7, 8, 7, 8]),
    )


@pytest.fixture
def small() -> Trace:
    """Only the columns that every trace has."""
    return Trace(
        info=TraceInfo("small", "by hand"),
        arrival_seconds=np.array([0.0, 1.0]),
        key=np.array([0, 0], dtype=np.int32),
        size_bytes=np.array([1, 1], dtype=np.int32),
        num_keys=1,
    )


def test_comes_back_as_it_was(full: Trace, small: Trace, tmp_path: Path) -> None:
    for trace in (full, small):
        folder = tmp_path / f"{trace.info.name}.trace"
        digest = save_trace(trace, folder)
        back = open_trace(folder)
        assert_same_trace(back, dataclasses.replace(trace, sha256=digest))
        assert back.info == trace.info
        assert digest == trace_sha256(trace)
    assert {path.name for path in (tmp_path / "small.trace").iterdir()} == {
        "trace.json",
        "arrival_seconds.npy",
        "key.npy",
        "size_bytes.npy",
    }


def test_no_blocks_at_all(small: Trace, tmp_path: Path) -> None:
    trace = dataclasses.replace(
        small, block_offsets=np.zeros(3, dtype=np.int64), block_hashes=np.empty(0, dtype=np.int64)
    )
    save_trace(trace, tmp_path / "x.trace")
    assert open_trace(tmp_path / "x.trace").block_hashes is not None


def test_columns_are_mapped_and_read_only(full: Trace, tmp_path: Path) -> None:
    save_trace(full, tmp_path / "x.trace")
    trace = open_trace(tmp_path / "x.trace")
    assert type(trace.key) is np.ndarray
    assert isinstance(trace.key.base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        trace.key[0] = 5


def test_digest_is_of_the_traffic_only(full: Trace) -> None:
    renamed = dataclasses.replace(full, info=TraceInfo("other", "elsewhere"))
    assert trace_sha256(renamed) == trace_sha256(full)
    for name in ("arrival_seconds", "key", "size_bytes", "ttl_seconds", "block_hashes"):
        column = getattr(full, name).copy()
        column[1] += 1
        if not np.isnan(column[1]):
            assert trace_sha256(dataclasses.replace(full, **{name: column})) != trace_sha256(full), name
    assert trace_sha256(dataclasses.replace(full, operation=None)) != trace_sha256(full)


def test_refuses_to_overwrite(small: Trace, full: Trace, tmp_path: Path) -> None:
    folder = tmp_path / "x.trace"
    save_trace(small, folder)
    with pytest.raises(InputError, match="exists already"):
        save_trace(full, folder)
    assert open_trace(folder).info == small.info
    save_trace(full, folder, overwrite=True)
    assert open_trace(folder).info == full.info
    assert [path.name for path in tmp_path.iterdir()] == ["x.trace"]


def test_never_overwrites_a_folder_that_is_no_trace(small: Trace, tmp_path: Path) -> None:
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="not a converted trace"):
        save_trace(small, folder, overwrite=True)
    assert (folder / "thesis.txt").exists()


def test_parent_folder_must_exist(small: Trace, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected it to exist"):
        save_trace(small, tmp_path / "no" / "x.trace")


def test_failed_write_leaves_nothing(small: Trace, tmp_path: Path) -> None:
    # An object column cannot be written without pickle, so the write fails half-way.
    broken = dataclasses.replace(small, operation=np.array([{}, {}], dtype=object))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Object arrays"):
        save_trace(broken, tmp_path / "x.trace")
    assert list(tmp_path.iterdir()) == []


def test_not_a_trace(tmp_path: Path) -> None:
    assert not is_converted(tmp_path)
    with pytest.raises(InputError, match=r"trace\.json: got no such file"):
        open_trace(tmp_path)


def test_missing_or_damaged_column_is_named(full: Trace, tmp_path: Path) -> None:
    folder = tmp_path / "x.trace"
    save_trace(full, folder)
    (folder / "key.npy").unlink()
    with pytest.raises(InputError, match=r"key\.npy: got no such file, expected a column of 3 rows"):
        open_trace(folder)
    np.save(folder / "key.npy", np.array([0, 1], dtype=np.int32))
    with pytest.raises(InputError, match=r"key\.npy: got shape \(2,\) of <i4, expected \(3,\) of <i4"):
        open_trace(folder)
    for content in (b"", b"\x93NUMPY\x01", b"not numpy at all, but long enough to have a header"):
        (folder / "key.npy").write_bytes(content)
        with pytest.raises(InputError, match=r"key\.npy: got a damaged file"):
            open_trace(folder)


def test_truncated_column_is_named(full: Trace, tmp_path: Path) -> None:
    folder = tmp_path / "x.trace"
    save_trace(full, folder)
    path = folder / "arrival_seconds.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"arrival_seconds\.npy: got a damaged file"):
        open_trace(folder)


def test_bad_manifests_are_named(full: Trace, tmp_path: Path) -> None:
    folder = tmp_path / "x.trace"
    save_trace(full, folder)
    path = folder / "trace.json"
    good = orjson.loads(path.read_bytes())

    def refused(content: bytes, message: str) -> None:
        path.write_bytes(content)
        with pytest.raises(InputError, match=message) as caught:
            open_trace(folder)
        assert str(caught.value).startswith(str(path))

    refused(b'{"version": 1', "damaged JSON")
    refused(b"[]", "version: got None, expected 1")
    refused(orjson.dumps({**good, "version": 2}), "version: got 2, expected 1; convert the trace again")
    refused(orjson.dumps({**good, "num_keys": "many"}), "num_keys: got 'many'")
    refused(orjson.dumps({**good, "extra": 1}), "extra")
    without = {name: column for name, column in good["columns"].items() if name != "size_bytes"}
    refused(orjson.dumps({**good, "columns": without}), "columns: got no size_bytes")
    strange = {**good["columns"], "../etc/passwd": good["columns"]["key"]}
    refused(orjson.dumps({**good, "columns": strange}), "columns: got '../etc/passwd'")
