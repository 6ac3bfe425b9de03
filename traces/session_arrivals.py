"""Days of agent traffic from recorded sessions: which recording starts when is drawn, all else is as recorded.

Session starts are Poisson, at a constant rate or along the arrival rates of another service. Recordings come in random
order, each one once before any comes again; one that comes again is another user's session, whose blocks are its own
but for the shared prefix of tools and system prompt.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np

from caches.errors import InputError
from traces.assemble import read_format
from traces.compose import Span, arrival_times, windows_of
from traces.formats.agent_sessions import FORMAT, Recordings
from traces.per_key import Int64Array
from traces.reader import Chunk, ReadOptions
from traces.servegen import ArrivalRates
from traces.sessions import Session, Start, in_order
from traces.store import trace_sha256
from traces.trace import FloatArray, Trace, TraceInfo


class _Stream(IntEnum):
    """What is drawn, each from random numbers of its own. The numbers are part of what a seed means."""

    STARTS = 111
    RECORDINGS = 112


@dataclass(frozen=True)
class SessionStarts:
    """`days` of session starts, on average `per_day` a day, so that about every recording comes once if that is None.

    rates: their shape over the days from `start_day` on; None for a constant rate.
    """

    days: float
    per_day: float | None = None
    rates: ArrivalRates | None = None
    start_day: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.days < math.inf:
            raise InputError(f"days: got {self.days!r}, expected a number above 0")
        if self.per_day is not None and not 0 < self.per_day < math.inf:
            raise InputError(f"per_day: got {self.per_day!r}, expected a number above 0")
        if self.rates is None and self.start_day != 0:
            raise InputError(f"start_day: got {self.start_day!r}, expected it together with rates")


@dataclass(frozen=True)
class Made:
    """name: of the trace. licence: of the recordings. coarsen: see `ReadOptions`."""

    name: str = "agent-sessions"
    licence: str | None = None
    coarsen: int = 1


def compose_sessions(path: Path, starts: SessionStarts, seed: int, made: Made = Made()) -> Trace:
    """The recorded sessions of `path` (traces/formats/agent_sessions.py) with drawn starts.

    Sessions start within the days and are cut at their end. Times count from the beginning of the days. The same file,
    starts and seed give the same trace. Raises InputError for a negative seed, for days that the rates do not have and
    where no request falls into them, BadRecord for a bad file.
    """
    if seed < 0:
        raise InputError(f"seed: got {seed}, expected a whole number from 0 on")
    recordings = Recordings(path)
    sessions = list(recordings.sessions())
    if not sessions:
        raise InputError(f"{path}: got no sessions, expected at least one")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_Stream.STARTS,)))
    seconds = _start_seconds(starts, len(sessions), rng)
    order = _recording_order(len(sessions), len(seconds), seed)

    begin = (Start(at, sessions[which]) for at, which in zip(seconds.tolist(), order, strict=True))
    chunks = in_order(begin, starts.days * 86400)
    first = next(chunks, None)
    if first is None or first.time is None:
        raise InputError(f"{path}: got no request in {starts.days:g} days, expected at least one")

    def read(_: Path, __: ReadOptions) -> Iterator[Chunk]:
        return itertools.chain([first], chunks)

    trace = read_format(path, dataclasses.replace(FORMAT, read=read), ReadOptions(coarsen=made.coarsen))
    assert first.time is not None
    trace = dataclasses.replace(trace, arrival_seconds=trace.arrival_seconds + float(first.time[0]))
    left_out = recordings.left_out_sentences()
    info = _info(trace.info, starts, made, (*_drawn(starts, sessions, seconds, seed), *left_out))
    return dataclasses.replace(trace, info=info, sha256=trace_sha256(trace))


def _start_seconds(starts: SessionStarts, recorded: int, rng: np.random.Generator) -> FloatArray:
    """Ascending, from the beginning of the first day."""
    per_day = recorded / starts.days if starts.per_day is None else starts.per_day
    count = int(rng.poisson(per_day * starts.days))
    if not count:
        raise InputError(
            f"per_day: got {per_day:g}, with which no session starts, expected more for {starts.days:g} days"
        )
    if starts.rates is None:
        return np.sort(rng.random(count)) * starts.days * 86400
    begin, end = windows_of(starts.rates, Span(starts.days, starts.start_day))
    expected = starts.rates.expected_requests(begin, end)
    if expected.sum() <= 0:
        raise InputError(f"{starts.rates.name}: got no traffic in these days, expected some")
    return arrival_times(expected, count, rng)


def _recording_order(recorded: int, count: int, seed: int) -> Int64Array:
    """Permutations of all recordings, one after the other."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_Stream.RECORDINGS,)))
    rounds = -(-count // recorded)
    return np.concatenate([rng.permutation(recorded) for _ in range(rounds)])[:count]


def _drawn(starts: SessionStarts, sessions: list[Session], seconds: FloatArray, seed: int) -> tuple[str, ...]:
    times = -(-len(seconds) // len(sessions))
    again = f"each is used at most {times} times; one used again is another user's, with blocks of its own."
    if times == 1:
        again = f"{len(seconds):,} are used, each once."
    rate = f"at a constant rate of {len(seconds) / starts.days:,.4g} a day"
    if starts.rates is not None:
        stop = starts.start_day + starts.days
        rate = f"{rate.replace('a constant', 'a mean')}, in the shape of all requests' rates in {starts.rates.name}, "
        rate += f"days {starts.start_day:g} to {stop:g}"
    return (
        f"The source has no start times of sessions: {len(seconds):,} starts over {starts.days:g} days are drawn "
        f"(seed {seed}), Poisson, {rate}. Sessions are cut at the end of the days; none is under way at their start.",
        f"Of {len(sessions):,} recorded sessions {again}",
    )


def _info(info: TraceInfo, starts: SessionStarts, made: Made, drawn: tuple[str, ...]) -> TraceInfo:
    source, licence = f"sessions: {info.source}", made.licence
    if starts.rates is not None:
        source += f"; rate of their starts: ServeGen, {starts.rates.name}"
        licence = f"rates Apache-2.0; sessions {licence or 'not stated'}"
    return dataclasses.replace(
        info,
        name=made.name,
        source=source,
        licence=licence,
        composed=True,
        assumptions=tuple(sorted({*info.assumptions, *drawn})),
    )
