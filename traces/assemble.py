"""Chunks of raw columns to one checked Trace: ranges, order of time, dense keys, assumptions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from caches.errors import InputError
from traces.blocks import coarse_chains, coarsened
from traces.encode import Encoder, renumber
from traces.key_sample import KeySample, Tally, drawn
from traces.reader import Chunk, Format, ReadOptions
from traces.store import trace_sha256
from traces.streams import uncompressed_name
from traces.trace import FloatArray, Operation, Trace, TraceInfo

INT32_MAX = 2**31 - 1
# A first arrival in this range, in seconds, can only be Unix time (2001 to 2286); anything else is relative.
UNIX_SECONDS = (1e9, 1e10)


def read_format(path: Path, trace_format: Format, options: ReadOptions) -> Trace:
    """Reads a whole file with the given format.

    Arrival times are shifted so that the earliest is 0; where they are Unix times the origin is kept in
    `info.start_unix_seconds`. Raises BadRecord for the first record that is out of range or, unless
    `options.sort`, earlier than the one before; InputError for a file without records and for options that
    do not fit it.
    """
    if options.limit is not None and options.limit < 1:
        raise InputError(f"limit: got {options.limit}, expected at least 1")
    rate = options.requests_per_second
    if rate is not None and not 0 < rate < float("inf"):
        raise InputError(f"requests per second: got {rate}, expected a number above 0")
    if options.sessions_per_day is not None and not trace_format.untimed_sessions:
        raise InputError(f"{path}: holds no sessions without start times, so sessions per day cannot be set")
    if options.key_level is not None and trace_format.levels is None:
        raise InputError(f"{path}: has one key for each request, so no level of keys can be chosen")
    if options.coarsen < 1:
        raise InputError(f"coarsen: got {options.coarsen}, expected at least 1")
    assembly = _Assembly(path, options, _share(path, trace_format, options))
    for chunk in _limited(trace_format.read(path, options), options.limit):
        assembly.add(chunk)
    if assembly.rows == 0:
        raise InputError(f"{path}: got no records, expected at least one")
    return assembly.trace(trace_format.name)


def _share(path: Path, trace_format: Format, options: ReadOptions) -> float:
    """Of the keys, to be kept."""
    if options.at_most is None or trace_format.count is None:
        return 1.0
    if options.at_most < 1:
        raise InputError(f"at most: got {options.at_most} requests, expected at least 1")
    held = trace_format.count(path)
    share = options.at_most / (held if options.limit is None else min(held, options.limit)) if held else 1.0
    if share < 1 and options.sort:
        raise InputError(f"{path}: is too long to be sorted, expected {held:,} requests in order of time")
    return min(share, 1.0)


def _limited(chunks: Iterable[Chunk], limit: int | None) -> Iterable[Chunk]:
    left = limit
    for chunk in chunks:
        if left is not None and len(chunk) >= left:
            yield chunk.head(left)
            return
        if left is not None:
            left -= len(chunk)
        if len(chunk):
            yield chunk


class _Assembly:
    """Collects checked chunks; only dense columns are kept, and of them only a share of the keys."""

    def __init__(self, path: Path, options: ReadOptions, share: float) -> None:
        self.rows = 0
        self._share = share
        self._kept: Any = slice(None)  # rows of the chunk at hand
        self._requests, self._lookups = Tally(), Tally()
        self._path = path
        self._options = options
        self._keys = Encoder()
        self._key_type: Any = None
        self._namespaces: Encoder | None = None
        self._sessions: Encoder | None = None
        self._columns: dict[str, list[Any]] = {}
        self._assumptions: set[str] = set()
        self._origin: Any = None
        self._last: Any = None
        self._span_seconds = 0.0
        self._block_size_tokens: int | None = None

    def add(self, chunk: Chunk) -> None:
        self._key_type = self._key_type or chunk.keys.type
        if chunk.keys.type != self._key_type:
            expected = f"keys of one type, {self._key_type} as in the first records"
            raise chunk.bad(0, "key", chunk.keys[0].as_py(), expected)
        if self._share < 1:
            self._kept = drawn(chunk.keys, self._share, self._options.sample_seed)
        self._add_time(chunk)
        for name in ("size", "prompt_tokens", "output_tokens"):
            self._add_counts(chunk, name)
        if chunk.ttl_seconds is not None:
            ttl = chunk.ttl_seconds
            bad = ~np.isnan(ttl) & ~((ttl > 0) & np.isfinite(ttl))
            _refuse(chunk, bad, "ttl_seconds", ttl, "a finite number above 0")
            self._keep("ttl_seconds", ttl.astype(np.float32))
        if chunk.operation is not None:
            self._keep("operation", chunk.operation)
        self._add_blocks(chunk)
        if chunk.session is not None:
            self._sessions = self._sessions or Encoder()
            self._sessions.add(self._chosen(chunk.session))
        if chunk.namespace is not None:
            self._namespaces = self._namespaces or Encoder()
            self._namespaces.add(self._chosen(chunk.namespace))
        self._keys.add(self._chosen(chunk.keys))
        self._assumptions.update(chunk.assumptions)
        self.rows += len(chunk)

    def trace(self, format_name: str) -> Trace:
        if not any(map(len, self._columns["time"])):
            raise InputError(f"{self._path}: none of the keys was drawn, expected some (hold more requests)")
        key, num_keys, namespace, names = self._encoded_keys()
        arrival, start = self._arrival_seconds()
        columns = {name: np.concatenate(parts) for name, parts in self._columns.items() if name != "time"}
        if "size" not in columns:
            columns["size"] = np.ones(len(key), dtype=np.int32)
            self._assume("The source has no sizes: every response counts as 1, so a capacity is a number of entries.")
        offsets = None
        if "block_counts" in columns:
            offsets = np.concatenate([[0], np.cumsum(columns["block_counts"])]).astype(np.int64)
        trace = Trace(
            info=TraceInfo(
                name=Path(uncompressed_name(self._path)).stem,
                source=f"{self._path.name} ({format_name})",
                assumptions=tuple(sorted(self._assumptions)),
                start_unix_seconds=start,
                block_size_tokens=self._block_size_tokens,
                namespaces=names,
            ),
            arrival_seconds=arrival,
            key=key,
            size_bytes=columns["size"],
            num_keys=num_keys,
            namespace=namespace,
            prompt_tokens=columns.get("prompt_tokens"),
            output_tokens=columns.get("output_tokens"),
            ttl_seconds=_unless(columns.get("ttl_seconds"), np.isnan),
            operation=_unless(columns.get("operation"), lambda column: column == Operation.READ),
            session=None if self._sessions is None else self._sessions.finish()[0],
            block_offsets=offsets,
            block_hashes=columns.get("block_hashes"),
            sample=self._sample(),
        )
        trace = _in_order(trace) if self._options.sort else trace
        return dataclasses.replace(trace, sha256=trace_sha256(trace))

    def _sample(self) -> KeySample | None:
        if self._share == 1:
            return None
        return KeySample(self._share, self._requests, self._lookups, self._span_seconds)

    def _keep(self, name: str, column: NDArray[Any]) -> None:
        """column: of a whole chunk."""
        self._columns.setdefault(name, []).append(column[self._kept])

    def _chosen(self, column: Any) -> Any:
        return column if self._share == 1 else column.filter(pa.array(self._kept))

    def _assume(self, sentence: str) -> None:
        self._assumptions.add(sentence)

    def _add_time(self, chunk: Chunk) -> None:
        time, rate = chunk.time, self._options.requests_per_second
        if time is None:
            if rate is None:
                raise InputError(f"{self._path}: has no arrival times, expected a number of requests per second")
            self._keep_time(chunk, np.arange(self.rows, self.rows + len(chunk)) / rate)
            return
        if rate is not None:
            raise InputError(f"{self._path}: has arrival times, so requests per second cannot be set")
        _refuse(chunk, ~np.isfinite(time), "time", time, "a finite time")
        if self._origin is None:
            self._origin = self._last = time[0]
        if not self._options.sort:
            _refuse_step_back(chunk, time, self._last)
        self._last = time[-1]
        elapsed = time - self._origin
        self._keep_time(chunk, elapsed / 1e9 if time.dtype == np.int64 else elapsed)

    def _keep_time(self, chunk: Chunk, elapsed: FloatArray) -> None:
        """elapsed: seconds since the first request."""
        self._span_seconds = float(elapsed[-1])
        self._keep("time", elapsed)
        if self._share < 1:
            self._requests.add(elapsed)
            self._lookups.add(elapsed if chunk.operation is None else elapsed[chunk.operation == Operation.READ])

    def _add_counts(self, chunk: Chunk, name: str) -> None:
        column = getattr(chunk, name)
        if column is not None:
            bad = (column < 0) | (column > INT32_MAX)
            _refuse(chunk, bad, name, column, f"an integer from 0 to {INT32_MAX}")
            self._keep(name, column.astype(np.int32))

    def _add_blocks(self, chunk: Chunk) -> None:
        factor, blocks = self._options.coarsen, chunk.blocks
        if blocks is None:
            if factor > 1:
                raise InputError(f"{self._path}: has no prompt blocks, so they cannot be coarsened")
            return
        offsets, hashes = blocks.offsets, blocks.hashes
        if factor > 1:
            offsets, hashes = coarse_chains(offsets, hashes, factor)
            self._assume(coarsened(blocks.block_size_tokens, factor))
        self._block_size_tokens = blocks.block_size_tokens * factor
        self._keep("block_counts", np.diff(offsets))
        self._keep("block_hashes", hashes[offsets[0] : offsets[-1]])

    def _arrival_seconds(self) -> tuple[FloatArray, float | None]:
        rate = self._options.requests_per_second
        if rate is not None:
            self._assume(f"The source has no arrival times: requests are spaced evenly, {rate:g} per second.")
            return np.concatenate(self._columns["time"]), None
        elapsed: FloatArray = np.concatenate(self._columns["time"])
        earliest = float(elapsed.min()) if self._share == 1 else 0.0
        origin = float(self._origin) / (1e9 if self._origin.dtype == np.int64 else 1.0) + earliest
        low, high = UNIX_SECONDS
        return elapsed - earliest, origin if low <= origin < high else None

    def _encoded_keys(self) -> tuple[NDArray[np.int32], int, NDArray[np.int32] | None, tuple[str, ...]]:
        """Equal keys of different namespaces are different entries."""
        key, distinct = self._keys.finish()
        if self._namespaces is None:
            return key, len(distinct), None, ("default",)
        namespace, distinct_names = self._namespaces.finish()
        names = tuple(distinct_names.to_pylist())
        if names == ("default",):
            return key, len(distinct), None, names
        key, num_keys = renumber((namespace.astype(np.int64) << 32) | key)
        return key, num_keys, namespace, names


def _refuse(chunk: Chunk, bad: NDArray[np.bool_], name: str, column: NDArray[Any], expected: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise chunk.bad(row, name, column[row].item(), expected)


def _refuse_step_back(chunk: Chunk, time: NDArray[Any], last: Any) -> None:
    before = np.concatenate([[last], time[:-1]])
    if (time < before).any():
        row = int(np.argmax(time < before))
        shown, limit = (
            (value.astype("datetime64[ns]") if time.dtype == np.int64 else value.item())
            for value in (time[row], before[row])
        )
        expected = f"at least {limit}, the time of the record above (or the sort option)"
        raise chunk.bad(row, "time", str(shown) if time.dtype == np.int64 else shown, expected)


def _unless(column: Any, empty: Any) -> Any:
    """The column, or None where every row of it is empty."""
    return None if column is None or bool(np.all(empty(column))) else column


def _in_order(trace: Trace) -> Trace:
    """The requests by arrival time, ties in the order of the file, keys numbered anew."""
    order = np.argsort(trace.arrival_seconds, kind="stable")
    names = (
        "arrival_seconds",
        "size_bytes",
        "namespace",
        "prompt_tokens",
        "output_tokens",
        "ttl_seconds",
        "operation",
    )
    moved = {name: getattr(trace, name)[order] for name in names if getattr(trace, name) is not None}
    moved["key"], _ = renumber(trace.key[order])
    if trace.session is not None:
        moved["session"], _ = renumber(trace.session[order])
    if trace.block_offsets is not None and trace.block_hashes is not None:
        counts = np.diff(trace.block_offsets)[order]
        moved["block_offsets"] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        shift = np.repeat(trace.block_offsets[:-1][order] - moved["block_offsets"][:-1], counts)
        moved["block_hashes"] = trace.block_hashes[np.arange(len(shift)) + shift]
    return dataclasses.replace(trace, **moved)
