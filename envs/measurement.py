"""Measured runs made ready to be predicted: what was sent, which part is used to fit and which part is held back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from envs.deployment import Sent
from traces.request_logs import EngineLimits, MeasuredRun

Array = NDArray[Any]
EVERY_SECOND, NONE = "every-second", "none"
SHORTEST_PART = 10  # requests; a P99 of fewer says nothing


@dataclass(frozen=True)
class Part:
    """Requests whose measured times are compared: `rows` of the stream with number `stream`. held: not used to fit."""

    name: str
    stream: int
    rows: Array
    ttft: Array
    latency: Array
    held: bool


@dataclass(frozen=True)
class Measurement:
    """streams: what one deployment received without a pause of its caches, runs one after the other."""

    streams: tuple[Sent, ...]
    parts: tuple[Part, ...]
    limits: EngineLimits
    split: str

    @property
    def has_sessions(self) -> bool:
        return any(bool((sent.session >= 0).any()) for sent in self.streams)


def measurement_of(runs: Sequence[MeasuredRun], hold_back: str = EVERY_SECOND) -> Measurement:
    """hold_back: `every-second` run in the given order, or the later half of the requests where there is one run only;
    `none`; or names of runs, separated by commas.

    Runs of one setup that do not overlap in time are one stream: caches stay warm from one to the next. Runs that
    overlap are taken to be of deployments of their own, each starting cold. Raises InputError for runs of several
    setups or engines, an unknown name, and where nothing is left to fit.
    """
    if not runs:
        raise InputError("measured runs: got none, expected at least one")
    setups = sorted({run.setup for run in runs})
    if len(setups) > 1:
        raise InputError(f"setup: got runs of {', '.join(setups)}, expected one of them: a profile is of one engine")
    if len({run.limits for run in runs}) > 1:
        raise InputError("measured runs: got engines with different limits, expected runs of one engine")
    short = next((run for run in runs if len(run) < SHORTEST_PART), None)
    if short is not None:
        raise InputError(
            f"{short.source}, run {short.name}: got {len(short)} requests, expected at least {SHORTEST_PART}"
        )
    held, split = _held(runs, hold_back)
    streams: list[Sent] = []
    parts: list[tuple[int, Part]] = []
    for group in _streams(runs):
        streams.append(_sent([runs[i] for i in group]))
        first = 0
        for i in group:
            rows = np.arange(first, first + len(runs[i]))
            first += len(runs[i])
            parts += [(i, part) for part in _parts(runs[i], len(streams) - 1, rows, held[i])]
    ordered = tuple(part for _, part in sorted(parts, key=lambda pair: pair[0]))
    if all(part.held for part in ordered):
        raise InputError(f"hold back: got {hold_back!r}, expected at least one run to fit from")
    return Measurement(tuple(streams), ordered, runs[0].limits, split)


def _held(runs: Sequence[MeasuredRun], hold_back: str) -> tuple[list[bool | None], str]:
    """Of each run whether it is held back, None for one of which the later half is; and the sentence that says so."""
    if hold_back == NONE:
        return [False] * len(runs), "in sample: no request was held back, so the errors say how well the model can fit"
    if hold_back == EVERY_SECOND:
        if len(runs) == 1:
            return [None], "one run: fitted on the first half of its requests, judged on the second half"
        return [i % 2 == 1 for i in range(len(runs))], "every second run was held back"
    names = [name.strip() for name in hold_back.split(",")]
    unknown = [name for name in names if name not in {run.name for run in runs}]
    if unknown:
        known = ", ".join(run.name for run in runs)
        raise InputError(f"hold back: got the run {unknown[0]!r}, expected {EVERY_SECOND}, {NONE} or some of {known}")
    return [run.name in names for run in runs], f"held back: {', '.join(names)}"


def _streams(runs: Sequence[MeasuredRun]) -> list[list[int]]:
    """Indices of the runs of each stream. A run ends with its last answer."""
    order = sorted(range(len(runs)), key=lambda i: (float(runs[i].arrival[0]), i))
    ends = [float((run.arrival + run.latency).max()) for run in runs]
    apart = all(ends[a] <= runs[b].arrival[0] for a, b in pairwise(order))
    return [order] if apart else [[i] for i in order]


def _sent(runs: Sequence[MeasuredRun]) -> Sent:
    numbers: dict[str, int] = {}
    session = [
        np.full(len(run), -1)
        if run.session is None
        else np.array([numbers.setdefault(str(name), len(numbers)) for name in run.session])
        for run in runs
    ]
    arrival = np.concatenate([run.arrival for run in runs])
    return Sent(
        arrival - arrival[0],
        np.concatenate([run.prompt for run in runs]),
        np.concatenate([run.output for run in runs]),
        np.concatenate(session).astype(np.int64),
    )


def _parts(run: MeasuredRun, stream: int, rows: Array, held: bool | None) -> list[Part]:
    if held is not None:
        return [Part(run.name, stream, rows, run.ttft, run.latency, held)]
    half = len(run) // 2
    return [
        Part(f"{run.name}, first half", stream, rows[:half], run.ttft[:half], run.latency[:half], False),
        Part(f"{run.name}, second half", stream, rows[half:], run.ttft[half:], run.latency[half:], True),
    ]
