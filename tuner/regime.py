"""Changes of regime: traffic that is no longer what it was, and what is done then.

An interval's features are averaged over a block, an hour as a rule, and compared with the same hour of the day before,
in deviations of calm traffic. ADWIN (agents/drift.py) says when such changes differ from those before by more than
chance. All that the watch knows is a small JSON value: block means that a detector can be fed with anew. So a restart,
a crash or a daemon that takes over goes on as if nothing had been, nothing is pickled, and the ledger's rows, which
hold neither entropy nor tokens, need not be read back. The detector is fed anew when a block ends, so once an hour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from agents.drift import fires_at_last, mean_of_known
from caches.errors import InputError
from tuner.regime_section import RegimeConfig

FloatArray = NDArray[np.float64]
Row = tuple[float | None, ...]
LEAST_DEVIATION = 1e-3  # of a feature that did not change at all in calm traffic
DIGITS = 6


@dataclass(frozen=True)
class TrafficFeatures:
    """Of one interval, all of them independent of the settings in force; None for what is not known. hit_ratio: of the
    ghost cache at the reference. drift: divergence of keys from the interval before, in bits. Tokens: means."""

    requests_per_second: float | None = None
    hit_ratio: float | None = None
    entropy_bits: float | None = None
    drift: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None


FEATURES = tuple(field.name for field in fields(TrafficFeatures))
LOGARITHMIC = ("requests_per_second", "prompt_tokens", "output_tokens")  # what counts is how many times as much


class RegimeMemory(BaseModel):
    """block: intervals of the block that is not over. means: of blocks, oldest first. deviation: of changes in calm
    traffic; None until that is known. intervals_since: the last change of regime; None without any. changed: what
    changed then."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    block: tuple[Row, ...] = ()
    means: tuple[Row, ...] = ()
    deviation: tuple[float, ...] | None = None
    intervals_since: int | None = None
    changed: tuple[str, ...] = ()

    @staticmethod
    def read(memory: Mapping[str, Any] | None) -> RegimeMemory:
        """From JSON; None stands for none yet. InputError where it is not a memory of these features."""
        try:
            found = RegimeMemory.model_validate(memory or {})
        except ValidationError as error:
            raise InputError(f"regime memory: got {error.errors()[0]['msg'].lower()}, expected one of ours") from error
        rows = (*found.block, *found.means, *(() if found.deviation is None else (found.deviation,)))
        if any(len(row) != len(FEATURES) for row in rows):
            raise InputError(f"regime memory: got a row of another length, expected {len(FEATURES)} features")
        return found


@dataclass(frozen=True)
class Shift:
    """features: which changed. reason: a sentence."""

    features: tuple[str, ...]
    reason: str


class Response(StrEnum):
    """HOLD: settings stay. WHATIF: the what-if controller decides. RETRAIN_REQUESTED: as before, WHATIF or else HOLD,
    and a training on the traffic since then is asked for, once."""

    HOLD = "hold"
    WHATIF = "whatif"
    RETRAIN_REQUESTED = "retrain_requested"


class RegimeWatch:
    """interval_seconds: how long a control interval is. Keeps nothing itself."""

    def __init__(self, config: RegimeConfig, interval_seconds: float) -> None:
        self.config = config
        self.block = max(round(config.block_seconds / interval_seconds), 1)
        self.season = round(config.season_seconds / (self.block * interval_seconds))

    def update(
        self, features: TrafficFeatures, memory: Mapping[str, Any] | None
    ) -> tuple[dict[str, Any], Shift | None]:
        """The memory after one more interval, and the change of regime that it shows. memory: as returned for the
        interval before, None at first; InputError where it is not."""
        before = RegimeMemory.read(memory)
        since = None if before.intervals_since is None else before.intervals_since + 1
        block = (*before.block, _row(features))
        after = before.model_copy(update={"block": block, "intervals_since": since})
        if len(block) < self.block:
            return after.model_dump(mode="json"), None
        means = (*before.means, _written(mean_of_known(_table(block))))[-self.config.kept_blocks :]
        after = after.model_copy(update={"block": (), "means": means})
        return self._looked_at(after)

    def _looked_at(self, memory: RegimeMemory) -> tuple[dict[str, Any], Shift | None]:
        """When a block is over."""
        table = _table(memory.means)
        changes = table[self.season :] - table[: -self.season] if self.season else table
        if memory.deviation is None and len(changes) >= self.config.calm_blocks:
            memory = memory.model_copy(update={"deviation": _deviation(changes)})
        if memory.deviation is None or not len(changes):
            return memory.model_dump(mode="json"), None
        relative = changes / np.array(memory.deviation)
        fired = [name for i, name in enumerate(FEATURES) if fires_at_last(relative[:, i], self.config.delta)]
        if not fired:
            return memory.model_dump(mode="json"), None
        # what was before is no measure for what comes now: the watch begins anew, but knows how much traffic varies
        anew = RegimeMemory(deviation=memory.deviation, intervals_since=0, changed=tuple(fired))
        return anew.model_dump(mode="json"), Shift(tuple(fired), _sentence(fired))


def response(intervals_since_shift: int | None, whatif_available: bool, config: RegimeConfig) -> Response | None:
    """What is done so many intervals after a change of regime; None without any. whatif_available: whether there are
    ghost caches beside the traffic. It ends when a newer policy is promoted: then `settled`."""
    if intervals_since_shift is None:
        return None
    if intervals_since_shift >= config.retrain_intervals:
        return Response.RETRAIN_REQUESTED
    whatif = whatif_available and intervals_since_shift >= config.hold_intervals
    return Response.WHATIF if whatif else Response.HOLD


def intervals_since_shift(memory: Mapping[str, Any] | None) -> int | None:
    return RegimeMemory.read(memory).intervals_since


def settled(memory: Mapping[str, Any] | None) -> dict[str, Any]:
    """The memory once a policy for the new traffic is in place: no change is open."""
    found = RegimeMemory.read(memory)
    return found.model_copy(update={"intervals_since": None, "changed": ()}).model_dump(mode="json")


def _row(features: TrafficFeatures) -> Row:
    """What is not a finite number, or has no logarithm, is not known."""
    values: list[float] = []
    for name in FEATURES:
        value = getattr(features, name)
        value = math.nan if value is None else float(value)
        if name in LOGARITHMIC:
            value = math.log2(value) if value > 0.0 and math.isfinite(value) else math.nan
        values.append(value)
    return _written(np.array(values))


def _written(values: FloatArray) -> Row:
    return tuple(round(float(value), DIGITS) if np.isfinite(value) else None for value in values)


def _table(rows: tuple[Row, ...]) -> FloatArray:
    """Shape (rows, features), NaN for what is not known."""
    return np.array([[math.nan if value is None else value for value in row] for row in rows], np.float64)


def _deviation(changes: FloatArray) -> tuple[float, ...]:
    """Of each feature, shape (blocks, features) to as many numbers. A feature that was hardly known gets 1, the size
    of a doubling."""
    found = []
    for column in changes.T:
        values = column[np.isfinite(column)]
        found.append(max(float(values.std()), LEAST_DEVIATION) if len(values) > 1 else 1.0)
    return tuple(found)


def _sentence(fired: list[str]) -> str:
    names = " and ".join(name.replace("_", " ") for name in fired)
    return f"Traffic is no longer what it was: {names} changed by more than chance explains."
