"""The tuning daemon: a clock around the control loop. It decides nothing itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from caches.clocks import Clocks
from caches.target import Arm
from tuner.control import ControlLoop, Did, Ticked
from tuner.ledger import LedgerUnavailable
from tuner.loop.policies import RegistryPolicies
from tuner.loop.watching import LiveWatch
from tuner.records import ControlState

log = logging.getLogger("setpoint.tuner")


@dataclass(frozen=True)
class Pace:
    """poll_seconds: between two ticks. refresh_seconds: between two looks at the registry. keep_seconds: how long the
    ledger keeps what no experiment needs."""

    poll_seconds: float
    refresh_seconds: float
    keep_seconds: float


class Daemon:
    """told: called with what each tick came to, and how long it took, s; for metrics."""

    def __init__(
        self,
        loop: ControlLoop,
        policies: RegistryPolicies,
        watch: LiveWatch,
        pace: Pace,
        clocks: Clocks,
        told: Callable[[Ticked, float], None] = lambda _ticked, _seconds: None,
    ) -> None:
        self._loop, self._policies, self._watch, self._pace = loop, policies, watch, pace
        self._clocks, self._told = clocks, told
        self._stopping, self._said = threading.Event(), ""

    def run(self) -> None:
        """Until `stop`. Policies are fetched by a thread of their own: no tick waits for the registry."""
        refresher = threading.Thread(target=self._refresh, name="policies", daemon=True)
        self._policies.refresh()  # once before the first tick, so that it knows who is there
        refresher.start()
        try:
            while not self._stopping.is_set() and self._watch.prime(self._clocks.unix()):
                pass
            while not self._stopping.is_set():
                self._tick()
                self._watch.look(self._clocks.unix())
                self._clocks.rest(self._stopping, self._pace.poll_seconds)
        finally:
            self._stopping.set()
            self._give_back()

    def stop(self) -> None:
        """May be called by a signal handler and by other threads. The lease is given back, settings stay."""
        self._stopping.set()

    def _tick(self) -> None:
        began = self._clocks.ticks()
        try:
            ticked = self._loop.tick(self._clocks.unix())
            self._told(ticked, self._clocks.ticks() - began)
            if ticked.did is Did.DECIDED:
                self._loop.forget(self._clocks.unix() - self._pace.keep_seconds)
        except LedgerUnavailable as error:
            self._say(logging.ERROR, f"The ledger cannot be used, so nothing is decided and settings stay: {error}")
            return
        self._say(*_line(ticked))

    def _refresh(self) -> None:
        while not self._stopping.wait(self._pace.refresh_seconds):
            self._policies.refresh()
            for place, problem in self._policies.problems().items():
                log.warning("%s: %s", place, problem)

    def _give_back(self) -> None:
        try:
            self._loop.stop()
        except LedgerUnavailable as error:
            log.warning("The lease could not be given back; it runs out by itself: %s", error)

    def _say(self, level: int, line: str) -> None:
        """Nothing twice in a row."""
        if line and line != self._said:
            log.log(level, "%s", line)
        self._said = line or self._said


def _line(ticked: Ticked) -> tuple[int, str]:
    if ticked.did is Did.STANDBY:
        return logging.INFO, f"In standby. {ticked.problem or 'Another daemon is the active one.'}"
    if ticked.did is Did.UNREACHED:
        return logging.WARNING, f"The cache cannot be reached; it is tried again: {ticked.problem}"
    if ticked.did is Did.NOTHING or ticked.state is None:
        return logging.DEBUG, ""
    return logging.INFO, describe(ticked.state)


def describe(state: ControlState) -> str:
    """Where a loop stands, in a line."""
    arms = [
        f"{arm} {split:.3g} of the keys: {settings.cache_size:,.0f} bytes, TTL {settings.ttl_seconds:,.4g} s, "
        f"warm-up {settings.warmup_ratio:.3g}"
        for arm in Arm
        if (split := state.plan.split.share(arm)) and (settings := state.plan.settings(arm))
    ]
    held = f" {state.paused or state.latched}" if state.paused or state.latched else ""
    return f"Interval {state.index}, {state.phase.value.replace('_', ' ')}; {'; '.join(arms)}.{held}"
