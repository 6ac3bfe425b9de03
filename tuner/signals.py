"""The seam of signals: what is measured of a cache and its backends, whoever measures it.

A signal is a value with an age, or missing with a sentence that says why and what to do. For want of a value it is
never zero. tests/contracts/signal_contract.py is what every source has to pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from caches.errors import InputError

ROUNDING = 1e-9  # by which a ratio of two rates may lie outside its range


@dataclass(frozen=True)
class Signal:
    """value: finite, in the unit of SIGNALS. age_seconds: since the oldest sample that it was made of. missing: why
    there is no value. Either value and age, or missing."""

    name: str
    value: float | None = None
    age_seconds: float | None = None
    missing: str | None = None

    def __post_init__(self) -> None:
        there = self.value is not None and self.age_seconds is not None and self.missing is None
        gone = self.value is None and self.age_seconds is None and bool(self.missing)
        if not (there or gone):
            raise InputError(f"signal {self.name}: got {self!r}, expected a value with its age, or why it is missing")


class SignalSource(Protocol):
    """Where signals come from."""

    def read(self, now_seconds: float) -> Mapping[str, Signal]:
        """Every signal of SIGNALS by its name, as of now (Unix time). Raises nothing, changes nothing that another read
        would see, and says how long it may take."""


@dataclass(frozen=True)
class SignalSpec:
    """low, high: what a value cannot lie below or above. max_age_seconds: an older one is missing."""

    name: str
    unit: str
    meaning: str
    low: float = 0.0
    high: float = math.inf
    max_age_seconds: float = 90.0


def _ratio(name: str, meaning: str, max_age_seconds: float = 90.0) -> SignalSpec:
    return SignalSpec(name, "share", meaning, high=1.0, max_age_seconds=max_age_seconds)


GPU_AGE_SECONDS = 150.0  # exporters of GPU counters look every 30 s, and are scraped after that

_SPECS = (
    SignalSpec("requests_per_second", "requests/s", "Requests that a cache could answer."),
    _ratio("hit_ratio", "Requests answered from the cache, of those."),
    _ratio("byte_hit_ratio", "Bytes of answers that came from the cache."),
    _ratio("token_hit_ratio", "Tokens that came from the cache: of prompts in a prefix cache, else of all."),
    _ratio("error_ratio", "Requests that got no answer for another reason than the client's."),
    *(
        SignalSpec(f"p{percent}_{what}_seconds", "s", f"P{percent} of the time to {told}.")
        for what, told in (("ttft", "the first token"), ("latency", "the end of the answer"))
        for percent in (50, 95, 99)
    ),
    SignalSpec("mean_wait_seconds", "s", "Mean time that requests wait for a slot of a backend."),
    SignalSpec("waiting_requests", "requests", "Requests that wait for a slot of a backend."),
    SignalSpec("running_requests", "requests", "Requests that backends work on."),
    SignalSpec("utilisation", "share", "Slots of backends in use, of those there are."),
    _ratio("kv_usage_ratio", "Memory for keys and values of sequences in use on the backends."),
    _ratio("vram_ratio", "Memory of the GPUs in use.", GPU_AGE_SECONDS),
    _ratio("gpu_busy_ratio", "Time that the GPUs work.", GPU_AGE_SECONDS),
    SignalSpec("used_bytes", "bytes", "Bytes that the cache holds."),
    _ratio("fill_ratio", "The same, of its capacity."),
    SignalSpec("entries", "entries", "Entries that the cache holds."),
    SignalSpec("evictions_per_second", "entries/s", "Entries removed for space."),
    SignalSpec("expirations_per_second", "entries/s", "Entries removed because of their age."),
    SignalSpec("prompt_tokens", "tokens/request", "Mean length of a prompt."),
    SignalSpec("output_tokens", "tokens/request", "Mean length of an answer."),
)
SIGNALS: Mapping[str, SignalSpec] = {spec.name: spec for spec in _SPECS}


def measured(spec: SignalSpec, value: float, age_seconds: float, max_age_seconds: float | None = None) -> Signal:
    """A signal of what a source came up with, which may be NaN, impossible or old. max_age_seconds: in place of the
    spec's."""
    limit = spec.max_age_seconds if max_age_seconds is None else max_age_seconds
    if math.isnan(value):
        return missing(spec.name, "not a number, as a ratio is when nothing happened: wait for traffic")
    if not spec.low - ROUNDING <= value <= spec.high + ROUNDING or math.isinf(value):
        return missing(spec.name, f"got {value:g}, expected {_range(spec)}: the query or what it reads is wrong")
    if not age_seconds <= limit:
        return missing(
            spec.name,
            f"the sample is {age_seconds:.0f} s old, expected at most {limit:g} s: see whether it is still taken, and "
            "whether clocks agree",
        )
    return Signal(spec.name, min(max(value, spec.low), spec.high), max(age_seconds, 0.0))


def missing(name: str, reason: str) -> Signal:
    return Signal(name, missing=reason)


def all_missing(reason: str) -> dict[str, Signal]:
    return {name: missing(name, reason) for name in SIGNALS}


class FirstOf:
    """Of each signal what the first source has that has it, in the order given. A read takes as long as all of them."""

    def __init__(self, sources: Sequence[SignalSource]) -> None:
        self._sources = tuple(sources)

    def read(self, now_seconds: float) -> Mapping[str, Signal]:
        readings = [source.read(now_seconds) for source in self._sources]
        return {name: self._first(name, [reading[name] for reading in readings]) for name in SIGNALS}

    def _first(self, name: str, found: Sequence[Signal]) -> Signal:
        for signal in found:
            if signal.value is not None:
                return signal
        reasons = dict.fromkeys(signal.missing for signal in found if signal.missing)
        return missing(name, "; ".join(filter(None, reasons)) or "no source of signals")


def _range(spec: SignalSpec) -> str:
    return f"a value in [{spec.low:g}, {spec.high:g}]" if math.isfinite(spec.high) else f"at least {spec.low:g}, finite"
