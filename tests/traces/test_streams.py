"""Blocks of whole lines from plain and compressed files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from caches.errors import BadRecord, InputError
from traces import streams
from traces.streams import first_line, read_blocks, read_bytes, record_starts


@given(
    lines=st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line), max_size=12),
    chunk_bytes=st.integers(1, 40),
    newline_at_end=st.booleans(),
)
def test_blocks_join_to_the_file_and_end_at_newlines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], chunk_bytes: int, newline_at_end: bool
) -> None:
    content = b"\n".join(lines) + (b"\n" if newline_at_end else b"")
    path = tmp_path_factory.mktemp("blocks") / "file"
    path.write_bytes(content)
    blocks = list(read_blocks(path, chunk_bytes, None))
    assert b"".join(block.data for block in blocks) == content
    assert all(block.data.endswith(b"\n") for block in blocks[:-1])
    before = 0
    for block in blocks:
        assert block.first_line == 1 + content[:before].count(b"\n")
        before += len(block.data)


def test_quoted_newlines_stay_inside_a_record(tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_bytes(b'a,"1\n2"\nb,"say ""no""\n"\nc,3\n')
    blocks = list(read_blocks(path, 5, None, quoted=True))
    assert [block.data for block in blocks] == [b'a,"1\n2"\n', b'b,"say ""no""\n"\n', b"c,3\n"]
    assert [block.first_line for block in blocks] == [1, 3, 5]


def test_record_starts_skip_blank_lines() -> None:
    data = b'one\r\n\r\n"two\nlines",2\n  \nthree'
    assert list(record_starts(data, quoted=True)) == [(0, b"one"), (2, b'"two\nlines",2'), (5, b"three")]


def test_several_members_are_one_stream(tmp_path: Path) -> None:
    for suffix, pack in ((".gz", gzip.compress), (".zst", zstandard.compress)):
        path = tmp_path / f"file{suffix}"
        path.write_bytes(pack(b"one\ntw") + pack(b"o\n"))
        assert b"".join(read_bytes(path, 4, None)) == b"one\ntwo\n"


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_damaged_stream_says_where(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_bytes(b"this was never compressed")
    with pytest.raises(InputError, match=rf"{suffix} stream is damaged after 0 bytes"):
        list(read_bytes(path, 100, None))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_what_lies_before_the_cut_gets_through(tmp_path: Path, suffix: str) -> None:
    content = np.random.default_rng(5).bytes(1_000_000)
    packed = gzip.compress(content) if suffix == ".gz" else zstandard.compress(content)
    path = tmp_path / f"file{suffix}"
    path.write_bytes(packed[:500_000])
    seen = b""
    with pytest.raises(InputError) as caught:  # noqa: PT012
        for data in read_bytes(path, 10**7, None):
            seen += data
    assert f"cut short after {len(seen):,} bytes" in str(caught.value)
    # At most one read of 64 KiB and one compressed block of up to 128 KiB are lost.
    assert 300_000 < len(seen) <= 500_000
    assert content.startswith(seen)


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        list(read_bytes(tmp_path, 100, None))
    assert str(tmp_path) in str(caught.value)


def test_endless_line_stops_at_the_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A cap of 1000 bytes stands for the real one; the file would go on for 5,000,000.
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "line.jsonl.gz"
    path.write_bytes(gzip.compress(b"ok\nok\n" + b"x" * 5_000_000))
    blocks = read_blocks(path, 400, None)
    assert next(blocks).data == b"ok\nok\n"
    with pytest.raises(BadRecord, match=r"line 3, length: got 1194, expected a line of at most 1000 bytes"):
        list(blocks)


def test_first_line_without_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbfa,b\r\n1,2\n")
    assert first_line(path) == b"a,b"
    path.write_bytes(b"x" * 100_000 + b"\ny\n")
    assert first_line(path) == b"x" * 100_000
    path.write_bytes(b"")
    assert first_line(path) == b""
