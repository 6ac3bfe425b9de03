"""What every trace format promises; a test module subclasses ReaderContract and gives `sample`."""

from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from api.cli.trace import convert
from caches.errors import BadRecord, InputError
from tests.traces.trace_samples import Sample
from traces.catalog import detect_format, read_trace
from traces.store import STORED_COLUMNS, open_trace
from traces.trace import Trace


def assert_same_trace(left: Trace, right: Trace) -> None:
    """Equal in every column and in everything else; file names in `info` do not count."""
    for name in STORED_COLUMNS:
        one, other = getattr(left, name), getattr(right, name)
        assert (one is None) == (other is None), name
        if one is not None:
            assert one.dtype == other.dtype, name
            np.testing.assert_array_equal(one, other, err_msg=name)
    assert left.num_keys == right.num_keys
    assert left.sha256 == right.sha256
    assert dataclasses.replace(left.info, name="", source="") == dataclasses.replace(right.info, name="", source="")


class ReaderContract:
    """One file of each format, read in every way that must not change the result."""

    @pytest.fixture
    def path(self, sample: Sample, tmp_path: Path) -> Path:
        path = tmp_path / sample.name
        path.write_bytes(sample.content)
        return path

    @staticmethod
    def _read(path: Path, sample: Sample, **changes: Any) -> Trace:
        return read_trace(path, sample.format_name, dataclasses.replace(sample.options, **changes))

    def test_reads_every_request(self, sample: Sample, path: Path) -> None:
        trace = self._read(path, sample)
        assert len(trace) == sample.requests
        assert trace.arrival_seconds[0] == 0.0
        assert (np.diff(trace.arrival_seconds) >= 0).all()

    def test_keys_are_numbered_by_first_appearance(self, sample: Sample, path: Path) -> None:
        trace = self._read(path, sample)
        seen: dict[int, None] = {}
        for key in trace.key.tolist():
            seen.setdefault(key)
        assert list(seen) == list(range(trace.num_keys))

    def test_column_types(self, sample: Sample, path: Path) -> None:
        trace = self._read(path, sample)
        types = {name: getattr(trace, name).dtype for name in STORED_COLUMNS if getattr(trace, name) is not None}
        expected = {
            "arrival_seconds": np.float64,
            "ttl_seconds": np.float32,
            "operation": np.uint8,
            "block_offsets": np.int64,
            "block_hashes": np.int64,
        }
        assert types == {name: np.dtype(expected.get(name, np.int32)) for name in types}

    def test_is_detected(self, sample: Sample, path: Path) -> None:
        assert detect_format(path, sample.options).name == sample.format_name

    @pytest.mark.parametrize("chunk_bytes", [1, 30, 100, 777])
    def test_chunk_size_does_not_matter(self, sample: Sample, path: Path, chunk_bytes: int) -> None:
        assert_same_trace(self._read(path, sample, chunk_bytes=chunk_bytes), self._read(path, sample))

    def test_compressed_equals_plain(self, sample: Sample, path: Path) -> None:
        if not sample.compressible:
            pytest.skip("the format has its own compression")
        packed = {".gz": gzip.compress(sample.content), ".zst": zstandard.compress(sample.content)}
        for suffix, content in packed.items():
            other = path.with_name(path.name + suffix)
            other.write_bytes(content)
            assert_same_trace(self._read(other, sample), self._read(path, sample))
            assert detect_format(other, sample.options).name == sample.format_name

    def test_no_newline_at_the_end_and_blank_lines_do_not_matter(self, sample: Sample, path: Path) -> None:
        if b"\n" not in sample.content or path.suffix in {".parquet", ".bin"}:
            pytest.skip("the format has no lines")
        other = path.with_name("other_" + path.name)
        other.write_bytes(sample.content.rstrip(b"\n"))
        assert_same_trace(self._read(other, sample), self._read(path, sample))
        other.write_bytes(sample.content.rstrip(b"\n") + b"\n\n\n")
        assert_same_trace(self._read(other, sample), self._read(path, sample))

    @pytest.mark.parametrize("suffix", [".gz", ".zst"])
    def test_truncated_stream_names_the_file(self, sample: Sample, path: Path, suffix: str) -> None:
        if not sample.compressible:
            pytest.skip("the format has its own compression")
        pack = gzip.compress if suffix == ".gz" else zstandard.compress
        other = path.with_name(path.name + suffix)
        other.write_bytes(pack(sample.content)[:-9])
        with pytest.raises(InputError, match=r"cut short after [\d,]+ bytes") as caught:
            self._read(other, sample)
        assert str(caught.value).startswith(str(other))

    def test_empty_file_is_an_error(self, sample: Sample, path: Path) -> None:
        path.write_bytes(b"")
        with pytest.raises(InputError) as caught:
            self._read(path, sample)
        assert str(path) in str(caught.value)

    def test_missing_file_is_an_error(self, sample: Sample, path: Path) -> None:
        path.unlink()
        with pytest.raises(InputError, match="no such file"):
            self._read(path, sample)

    @pytest.mark.parametrize("chunk_bytes", [1, 2**20])
    def test_a_step_back_in_time_names_the_record(self, sample: Sample, path: Path, chunk_bytes: int) -> None:
        if sample.step_back is None:
            pytest.skip("the format has no times")
        path.write_bytes(sample.step_back(sample.content))
        with pytest.raises(BadRecord, match=r"expected at least .* the time of the record above") as caught:
            self._read(path, sample, chunk_bytes=chunk_bytes)
        assert str(caught.value).startswith(f"{path}, {sample.step_back_place}: got ")

    def test_sort_accepts_a_step_back(self, sample: Sample, path: Path) -> None:
        if sample.step_back is None:
            pytest.skip("the format has no times")
        path.write_bytes(sample.step_back(sample.content))
        trace = self._read(path, sample, sort=True)
        assert len(trace) == sample.requests
        assert trace.arrival_seconds[0] == 0.0
        assert (np.diff(trace.arrival_seconds) >= 0).all()
        assert trace.key[0] == 0

    def test_limit_is_the_head(self, sample: Sample, path: Path) -> None:
        whole = self._read(path, sample)
        for chunk_bytes in (1, 2**20):
            head = self._read(path, sample, limit=2, chunk_bytes=chunk_bytes)
            np.testing.assert_array_equal(head.arrival_seconds, whole.arrival_seconds[:2])
            np.testing.assert_array_equal(head.key, whole.key[:2])
            np.testing.assert_array_equal(head.size_bytes, whole.size_bytes[:2])
            assert head.num_keys == len(set(whole.key[:2].tolist()))
            if head.block_offsets is not None:
                assert head.block_hashes is not None
                assert head.block_offsets[-1] == len(head.block_hashes)

    def test_progress_ends_at_the_total(self, sample: Sample, path: Path) -> None:
        calls: list[tuple[int, int]] = []
        self._read(path, sample, progress=lambda done, total: calls.append((done, total)), chunk_bytes=50)
        assert calls == sorted(calls)
        assert {total for _, total in calls} == {len(sample.content)}
        assert calls[-1][0] == len(sample.content)

    def test_convert_leaves_all_or_nothing(self, sample: Sample, path: Path, tmp_path: Path) -> None:
        columns = [f"{role}={name}" for role, name in sample.options.columns.items()]

        def run(out: str) -> None:
            convert(
                path,
                tmp_path / out,
                column=columns,
                time_unit=sample.options.time_unit,
                requests_per_second=sample.options.requests_per_second,
                sessions_per_day=sample.options.sessions_per_day,
                as_json=True,
            )

        run("good.trace")
        assert_same_trace(open_trace(tmp_path / "good.trace"), self._read(path, sample))
        path.write_bytes(sample.content[:-3] + b"\xff\xfe\xff,,")
        with pytest.raises(InputError):
            run("bad.trace")
        assert {entry.name for entry in tmp_path.iterdir()} == {"good.trace", sample.name}
