"""The clocks of whatever runs live, so that a test or a replay can bring its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clocks:
    """unix: Unix time, of decisions and lifetimes. ticks: one that is never set, for durations, s. rest: waits for an
    event for so many seconds of the wall at most, and says whether it came."""

    unix: Callable[[], float] = time.time
    ticks: Callable[[], float] = time.monotonic
    rest: Callable[[threading.Event, float], bool] = threading.Event.wait
