"""What a control loop sees beside the cache's own counters, read ahead: no tick waits for Prometheus or for keys."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from tuner.keys.watch import KeyWatch
from tuner.loop.closing import Looked
from tuner.loop.next_tick import wanted_in
from tuner.records import ControlState
from tuner.signals import Signal, SignalSource, missing


class ReadAhead:
    """Signals that a thread reads again and again; `now` says what was read last, older by the time since. wanted:
    names of the signals that are meant to be had; the others are left out. clock: Unix time, of whoever asks."""

    def __init__(
        self, source: SignalSource, wanted: frozenset[str], every_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._source, self._wanted, self._every, self._clock = source, wanted, every_seconds, clock
        self._last: tuple[float, Mapping[str, Signal]] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="signals", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def now(self, now_seconds: float) -> Mapping[str, Signal]:
        """Missing where the last reading is older than three of them take to come."""
        if self._last is None:
            return {name: missing(name, "nothing has been read yet") for name in self._wanted}
        at, found = self._last
        since = max(now_seconds - at, 0.0)
        if since > 3.0 * self._every:
            return {name: missing(name, f"nothing has been read for {since:.0f} s") for name in self._wanted}
        return {name: _older(found[name], since) for name in self._wanted}

    def _work(self) -> None:
        while not self._stopping.is_set():
            at = self._clock()
            self._last = (at, self._source.read(at))
            self._stopping.wait(self._every)


def _older(signal: Signal, seconds: float) -> Signal:
    return signal if signal.age_seconds is None else replace(signal, age_seconds=signal.age_seconds + seconds)


class LiveWatch:
    """Either may be missing: then nothing is known of it, and the policies are told so."""

    def __init__(self, signals: ReadAhead | None = None, keys: KeyWatch | None = None) -> None:
        self._signals, self._keys = signals, keys

    def signals(self, now_seconds: float) -> Mapping[str, Signal]:
        return {} if self._signals is None else self._signals.now(now_seconds)

    def keys(self, state: ControlState, now_seconds: float) -> Looked:
        """With ghosts of what each policy wanted in the interval, whether or not that was in force."""
        if self._keys is None:
            return Looked(now_seconds)
        self._keys.drafts = wanted_in(state)
        return self._keys.keys(state, now_seconds)

    def start(self) -> None:
        if self._signals is not None:
            self._signals.start()

    def stop(self) -> None:
        if self._signals is not None:
            self._signals.stop()

    def prime(self, now_seconds: float) -> bool:
        """Before the first tick: takes in some of the key stream's past. Whether there is more of it."""
        return self._keys is not None and self._keys.prime(now_seconds)

    def look(self, now_seconds: float) -> None:
        """Between two ticks: what has come of the key stream is taken in."""
        if self._keys is not None:
            self._keys.look(now_seconds)
