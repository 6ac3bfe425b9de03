"""Bytes of trace files: plain, .gz and .zst alike, read in blocks that end where a record ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from caches.errors import BadRecord, InputError

MAX_LINE_BYTES = 64 * 2**20
PART_BYTES = 65_536
CODECS = {".gz": "gzip", ".zst": "zstd"}

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and the bytes there are, both as they lie on disk (compressed)."""


@dataclass(frozen=True)
class Block:
    """Whole lines of a file. `first_line` is the number of the first one, from 1."""

    data: bytes
    first_line: int


def uncompressed_name(path: Path) -> str:
    """The file's name without .gz or .zst."""
    return path.stem if path.suffix in CODECS else path.name


def read_bytes(path: Path, chunk_bytes: int, progress: Progress | None) -> Iterator[bytes]:
    """The file's content, decompressed, about `chunk_bytes` at a time.

    Raises InputError for a file that is missing, unreadable, damaged or cut short, after what came before the
    damage.
    """
    done, parts = 0, list[bytes]()
    try:
        with pa.OSFile(str(path)) as raw:
            total = raw.size()
            stream = _decompressed(raw, path) if total else raw
            # A read that fails loses all it has read, so read little at a time: what is whole gets through.
            while part := stream.read(min(chunk_bytes, PART_BYTES)):
                done += len(part)
                parts.append(part)
                if progress is not None:
                    progress(raw.tell(), total)
                if sum(map(len, parts)) >= chunk_bytes:
                    yield b"".join(parts)
                    parts = []
    except OSError as error:
        yield from filter(None, [b"".join(parts)])
        raise InputError(_explain(path, error, done)) from error
    yield from filter(None, [b"".join(parts)])


def read_blocks(path: Path, chunk_bytes: int, progress: Progress | None, *, quoted: bool = False) -> Iterator[Block]:
    """The file in blocks of whole lines, about `chunk_bytes` each; the last line may lack its newline.

    quoted: a newline inside double quotes does not end a line (CSV). Lines are numbered as an editor does.
    Raises InputError as `read_bytes` does and for a line longer than MAX_LINE_BYTES, which is never held
    in memory.
    """
    line, rest = 1, b""
    for data in read_bytes(path, chunk_bytes, progress):
        rest += data
        end = _last_record_end(rest) if quoted else rest.rfind(b"\n") + 1
        if end:
            block, rest = Block(rest[:end], line), rest[end:]
            line += block.data.count(b"\n")
            yield block
        if len(rest) > MAX_LINE_BYTES:
            raise BadRecord(path, line, "length", len(rest), f"a line of at most {MAX_LINE_BYTES} bytes")
    if rest:
        yield Block(rest, line)


def first_line(path: Path, limit: int = 8 * 2**20) -> bytes:
    """The file up to its first newline, about `limit` bytes at most; empty for an empty file."""
    start = b""
    for data in read_bytes(path, 65_536, None):
        start += data
        if b"\n" in data or len(start) >= limit:
            break
    return start.split(b"\n", 1)[0].removeprefix(b"\xef\xbb\xbf").rstrip(b"\r")


def record_starts(data: bytes, *, quoted: bool) -> Iterator[tuple[int, bytes]]:
    """(lines before it, text) of every record of a block that is not blank."""
    start = lines = 0
    ends = _record_ends(data) if quoted else _positions(data, "\n")
    for end in [*(int(end) + 1 for end in ends), len(data)]:
        text = data[start:end]
        if text.strip():
            yield lines, text.rstrip(b"\r\n")
        start = end
        lines += text.count(b"\n")


def _decompressed(raw: Any, path: Path) -> Any:
    codec = CODECS.get(path.suffix)
    return raw if codec is None else pa.CompressedInputStream(raw, codec)


def _explain(path: Path, error: OSError, done: int) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path}: got no such file, expected a trace"
    if error.errno is not None:
        return f"{path}: cannot be read: {error.strerror or error}"
    where = f"after {done:,} bytes of decompressed content"
    if "Truncated" in str(error):
        return f"{path}: the {path.suffix} stream is cut short {where}, expected its end marker"
    return f"{path}: the {path.suffix} stream is damaged {where} ({error})"


def _positions(data: bytes, character: str) -> Any:
    return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord(character))


def _record_ends(data: bytes) -> Any:
    """Positions of the newlines outside quotes: those with an even number of quotes before them."""
    newlines = _positions(data, "\n")
    quotes_before = np.searchsorted(_positions(data, '"'), newlines)
    return newlines[quotes_before % 2 == 0]


def _last_record_end(data: bytes) -> int:
    if b'"' not in data:
        return data.rfind(b"\n") + 1
    ends = _record_ends(data)
    return int(ends[-1]) + 1 if len(ends) else 0
