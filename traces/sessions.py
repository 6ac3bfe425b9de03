"""Recorded sessions of agents, put in order of time once their starts are known."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traces.blocks import prompt_key
from traces.modelled import SIZE_FROM_OUTPUT, size_from_output
from traces.per_key import Int64Array
from traces.reader import Blocks, Chunk, Location
from traces.trace import FloatArray

NUMBER_BITS = 32  # of a recorded block's id; above it stands whom the block belongs to
NAMES = {"time": "t", "prompt_tokens": "in", "output_tokens": "out", "size": "out", "session": "id"}
RECORDED_GAPS = "Times inside a session are as recorded: they do not react to how fast this cache lets it go on."
SHARED_PREFIX = (
    "The first tool_tokens + system_tokens tokens of a session's first prompt, in whole blocks, are taken as common to "
    "all sessions of equal values; all other blocks belong to one session."
)
ASSUMPTIONS = (SIZE_FROM_OUTPUT, RECORDED_GAPS, SHARED_PREFIX)


class Prefix(NamedTuple):
    """What sessions share: tools and system prompt of so many tokens each."""

    tool_tokens: int
    system_tokens: int


class Shared(NamedTuple):
    """Which recorded ids of a session are blocks of a shared prefix. number: ascending, without repeats. prefix: index
    into `prefixes`. place: position in the prompt. Shape (blocks,) each."""

    number: Int64Array
    prefix: Int64Array
    place: Int64Array
    prefixes: tuple[Prefix, ...]


@dataclass(frozen=True)
class Session:
    """One recording, its n requests in order of time.

    seconds: float64 (n,), from its start. prompt_tokens, output_tokens: int64 (n,). Request i's prompt is made of the
    runs run_offsets[i] to run_offsets[i + 1] of blocks, run r being the ids run_first[r], run_first[r] + 1, ...,
    run_count[r] of them, each below 2 ** NUMBER_BITS. Ids mean nothing outside the session.
    """

    place: Location
    block_size_tokens: int
    seconds: FloatArray
    prompt_tokens: Int64Array
    output_tokens: Int64Array
    run_offsets: Int64Array
    run_first: Int64Array
    run_count: Int64Array
    shared: Shared

    def __len__(self) -> int:
        return len(self.seconds)


class Start(NamedTuple):
    """A session begins; one recording may begin several times, as sessions of several users."""

    seconds: float
    session: Session


def expanded(first: Int64Array, count: Int64Array) -> Int64Array:
    """The ids of runs, one after the other."""
    before = np.cumsum(count) - count
    return np.repeat(first - before, count) + np.arange(int(count.sum()))


@dataclass
class Owners:
    """Whom blocks belong to: each start of a session and each shared prefix gets the next number."""

    count: int = 0
    prefixes: dict[Prefix, int] = field(default_factory=dict)

    def new(self) -> int:
        self.count += 1
        return self.count - 1

    def of(self, prefix: Prefix) -> int:
        if prefix not in self.prefixes:
            self.prefixes[prefix] = self.new()
        return self.prefixes[prefix]


def own_blocks(session: Session, owners: Owners) -> list[Int64Array]:
    """Each request's chain of block ids, new ones for all that is not shared."""
    number = expanded(session.run_first, session.run_count)
    ids = (owners.new() << NUMBER_BITS) | number
    shared = session.shared
    if len(shared.number):
        at = np.minimum(np.searchsorted(shared.number, number), len(shared.number) - 1)
        prefix_owner = np.array([owners.of(prefix) for prefix in shared.prefixes], np.int64)
        common = (prefix_owner[shared.prefix] << NUMBER_BITS) | shared.place
        ids = np.where(shared.number[at] == number, common[at], ids)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(session.run_count)])[session.run_offsets]
    return [ids[begin:end] for begin, end in itertools.pairwise(ends)]


class _Request(NamedTuple):
    """Ordered by time, then by session, then within it."""

    seconds: float
    number: int
    row: int


@dataclass
class _Running:
    """left: requests that are still to come."""

    session: Session
    chains: list[Int64Array]
    left: int


def in_order(starts: Iterable[Start], stop_seconds: float = float("inf")) -> Iterator[Chunk]:
    """The requests of all sessions before `stop_seconds`, merged by time. `starts` are in order of time themselves.

    Only sessions that are going on are held in memory.
    """
    owners, running, waiting = Owners(), dict[int, _Running](), list[_Request]()
    for number, (start, session) in enumerate(starts):
        yield from _chunks(waiting, running, start)
        times = start + session.seconds
        left = int(np.searchsorted(times, stop_seconds))
        running[number] = _Running(session, own_blocks(session, owners), left)
        for row, seconds in enumerate(times[:left].tolist()):
            heapq.heappush(waiting, _Request(seconds, number, row))
    yield from _chunks(waiting, running, float("inf"))


def _chunks(waiting: list[_Request], running: dict[int, _Running], until: float) -> Iterator[Chunk]:
    """Takes the requests before `until` from `waiting`, and the sessions that have none left from `running`."""
    due = []
    while waiting and waiting[0].seconds < until:
        due.append(heapq.heappop(waiting))
    if due:
        yield _chunk(due, running)
    for request in due:
        running[request.number].left -= 1
        if not running[request.number].left:
            del running[request.number]


def _chunk(due: list[_Request], running: dict[int, _Running]) -> Chunk:
    sessions = [running[request.number].session for request in due]
    chains = [running[request.number].chains[request.row] for request in due]

    def column(name: str) -> NDArray[np.int64]:
        pairs = zip(sessions, due, strict=True)
        return np.array([getattr(session, name)[request.row] for session, request in pairs], np.int64)

    prompt, output = column("prompt_tokens"), column("output_tokens")
    keys = [prompt_key(chain, tokens) for chain, tokens in zip(chains, prompt, strict=True)]
    return Chunk(
        keys=pa.array(keys, pa.binary()),
        locate=lambda row: sessions[row].place,
        time=np.array([request.seconds for request in due]),
        size=size_from_output(output),
        prompt_tokens=prompt,
        output_tokens=output,
        session=pa.array([request.number for request in due], pa.int64()),
        blocks=Blocks(
            np.cumsum([0, *map(len, chains)], dtype=np.int64),
            np.concatenate(chains),
            sessions[0].block_size_tokens,
        ),
        names=NAMES,
        assumptions=ASSUMPTIONS,
    )
