"""Recorded sessions of coding agents (kv-cache-tester): one session a line, with the blocks of every prompt.

A session has `block_size` (tokens), `tool_tokens`, `system_tokens` and `requests`. A request has `t` (seconds from the
session's start), `in` and `out` (tokens) and `h`, runs [first id, count] of block ids in prompt order; whole blocks
only. An entry of type `subagent` has `requests` of its own, whose block ids are the session's and whose `t` count from
the sub-agent's start; the entry's `t` is when it came back, `duration_ms` after that start. Other fields are not read.

Sessions have no start times. Reading the file as a trace spaces them evenly (`ReadOptions.sessions_per_day`);
traces/session_arrivals.py draws them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from caches.errors import BadRecord, InputError
from traces.json_rows import JsonRow, json_rows
from traces.reader import Chunk, Format, Head, Location, ReadOptions
from traces.sessions import NUMBER_BITS, Prefix, Session, Shared, Start, expanded, in_order

Run = tuple[int, int]
NEEDED = ("t", "in", "out", "h")


def read(path: Path, options: ReadOptions) -> Iterator[Chunk]:
    """Session i of the file starts i days / sessions_per_day after the first."""
    rate = options.sessions_per_day
    if rate is None:
        raise InputError(f"{path}: has no start times of sessions, expected a number of sessions per day to space them")
    if not 0 < rate < math.inf:
        raise InputError(f"sessions per day: got {rate}, expected a number above 0")
    recordings = Recordings(path, options)
    starts = (Start(number * 86400 / rate, session) for number, session in enumerate(recordings.sessions()))
    evenly = f"The source has no start times of sessions: they are spaced evenly, {rate:g} a day."
    last: Chunk | None = None
    for chunk in in_order(starts):
        if last is not None:
            yield last
        last = _assuming(chunk, evenly)
    if last is not None:
        yield _assuming(last, *recordings.left_out_sentences())


def _assuming(chunk: Chunk, *sentences: str) -> Chunk:
    return replace(chunk, assumptions=(*chunk.assumptions, *sentences))


@dataclass
class Recordings:
    """The sessions of a file, and how many of their requests were left out so far because they lack a time, a number of
    tokens or their blocks. A session without any request is left out too."""

    path: Path
    options: ReadOptions = field(default_factory=ReadOptions)
    requests: int = 0
    left_out: int = 0

    def sessions(self) -> Iterator[Session]:
        """Raises BadRecord with line and field for anything else that is wrong."""
        block_size: int | None = None
        for rows in json_rows(self.path, self.options):
            for row in rows:
                block_size = _block_size(row, block_size)
                session = self._session(row, block_size)
                if len(session):
                    yield session

    def left_out_sentences(self) -> tuple[str, ...]:
        if not self.left_out:
            return ()
        return (
            f"{self.left_out:,} of {self.requests:,} recorded requests are left out: they have no time, no number of "
            "tokens or no blocks.",
        )

    def _session(self, row: JsonRow, block_size: int) -> Session:
        found = _Found(block_size)
        self._collect(_Entry(row.path, row.line, row.record, row.fields), 0.0, found)
        order = np.argsort(found.seconds, kind="stable")
        runs = [found.runs[i] for i in order]
        flat = np.array([run for request in runs for run in request], np.int64).reshape(-1, 2)
        return Session(
            place=Location(row.path, row.line, row.record),
            block_size_tokens=block_size,
            seconds=np.array(found.seconds, np.float64)[order],
            prompt_tokens=np.array(found.prompt_tokens, np.int64)[order],
            output_tokens=np.array(found.output_tokens, np.int64)[order],
            run_offsets=np.cumsum([0, *map(len, runs)], dtype=np.int64),
            run_first=flat[:, 0].copy(),
            run_count=flat[:, 1].copy(),
            shared=found.shared(),
        )

    def _collect(self, agent: _Entry, start: float | None, found: _Found) -> None:
        """The requests of a session or a sub-agent that started at that time, None where it is not known."""
        prefix = _prefix(agent)
        for entry in agent.entries("requests"):
            if entry.get("type") == "subagent":
                self._collect(entry, _start_of(entry, start), found)
                continue
            self.requests += 1
            if start is None or any(entry.get(name) is None for name in NEEDED):
                self.left_out += 1
                continue
            tokens = entry.count("in")
            runs = _runs(entry, tokens, found.block_size)
            found.add(start + entry.seconds_from("t"), tokens, entry.count("out"), runs)
            if prefix is not None:
                found.claim(prefix, runs)
                prefix = None


@dataclass
class _Found:
    """What a line has given so far; requests in the order of the file."""

    block_size: int
    seconds: list[float] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)
    runs: list[list[Run]] = field(default_factory=list)
    claims: list[tuple[Prefix, Any]] = field(default_factory=list)

    def add(self, seconds: float, prompt_tokens: int, output_tokens: int, runs: list[Run]) -> None:
        self.seconds.append(seconds)
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)
        self.runs.append(runs)

    def claim(self, prefix: Prefix, runs: list[Run]) -> None:
        """The first blocks of an agent's first prompt are its shared prefix."""
        blocks = (prefix.tool_tokens + prefix.system_tokens) // self.block_size
        flat = np.array(runs, np.int64).reshape(-1, 2)
        self.claims.append((prefix, expanded(flat[:, 0], flat[:, 1])[:blocks]))

    def shared(self) -> Shared:
        """A block that two agents of a session have claimed belongs to the prefix of the first."""
        prefixes = tuple(dict.fromkeys(prefix for prefix, _ in self.claims))
        if not prefixes:
            none = np.empty(0, np.int64)
            return Shared(none, none, none, ())
        number, first = np.unique(np.concatenate([ids for _, ids in self.claims]), return_index=True)
        prefix = np.concatenate([np.full(len(ids), prefixes.index(prefix)) for prefix, ids in self.claims])
        place = np.concatenate([np.arange(len(ids)) for _, ids in self.claims])
        return Shared(number, prefix[first], place[first], prefixes)


@dataclass(frozen=True)
class _Entry(JsonRow):
    """A session, a sub-agent or a request; `within` is where it stands in its line, such as requests.3."""

    within: str = ""

    def entries(self, name: str) -> Iterator[_Entry]:
        value = self.get(name)
        if not isinstance(value, list):
            raise self.bad(name, "a list of objects")
        for index, fields in enumerate(value):
            if not isinstance(fields, dict):
                raise self.bad(f"{name}.{index}", "an object")
            yield _Entry(self.path, self.line, self.record, fields, f"{self._name(name)}.{index}")

    def count(self, name: str) -> int:
        value = self.integer(name)
        if value < 0:
            raise self.bad(name, "a number from 0 on")
        return value

    def seconds_from(self, name: str) -> float:
        value = self.number(name)
        if not 0 <= value < math.inf:
            raise self.bad(name, "a number from 0 on")
        return value

    def bad(self, name: str, expected: str) -> BadRecord:
        return BadRecord(self.path, self.line, self._name(name), self.get(name), expected)

    def _name(self, name: str) -> str:
        return f"{self.within}.{name}" if self.within else name


def _start_of(subagent: _Entry, parent_start: float | None) -> float | None:
    """Not before its parent's, whatever the rounding of the two times."""
    if parent_start is None or subagent.get("t") is None or subagent.get("duration_ms") is None:
        return None
    back = subagent.seconds_from("t")
    return parent_start + max(back - subagent.seconds_from("duration_ms") / 1000, 0.0)


def _prefix(agent: _Entry) -> Prefix | None:
    """None where the numbers are absent: then nothing is shared."""
    if agent.get("tool_tokens") is None or agent.get("system_tokens") is None:
        return None
    return Prefix(agent.count("tool_tokens"), agent.count("system_tokens"))


def _block_size(row: JsonRow, before: int | None) -> int:
    size = row.integer("block_size")
    if size < 1:
        raise row.bad("block_size", "at least 1")
    if before is not None and size != before:
        raise row.bad("block_size", f"{before}, as in the sessions above")
    return size


def _runs(request: _Entry, prompt_tokens: int, block_size: int) -> list[Run]:
    value: Any = request.get("h")
    if not isinstance(value, list) or not all(_is_run(item) for item in value):
        raise request.bad("h", f"a list of [first id, count], ids from 0 to below 2^{NUMBER_BITS}")
    runs: Sequence[Sequence[int]] = value
    most = -(-prompt_tokens // block_size)
    if sum(count for _, count in runs) > most:
        raise request.bad("h", f"at most {most} blocks, as many as the {prompt_tokens} tokens fill")
    return [(first, count) for first, count in runs]


def _is_run(item: Any) -> bool:
    return (
        isinstance(item, list)
        and len(item) == 2
        and all(type(number) is int for number in item)
        and item[0] >= 0
        and item[1] >= 1
        and item[0] + item[1] <= 2**NUMBER_BITS
    )


def _recognises(head: Head) -> bool:
    try:
        fields = orjson.loads(head.line)
    except orjson.JSONDecodeError:
        return False
    return isinstance(fields, dict) and {"id", "block_size", "requests"} <= fields.keys()


FORMAT = Format(
    "agent_sessions",
    "recorded agent sessions, JSON lines with runs of blocks",
    read,
    _recognises,
    untimed_sessions=True,
)
