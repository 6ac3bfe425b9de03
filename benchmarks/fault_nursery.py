"""A process that forks tuning daemons which begin at once: what takes seconds to import and to compile, it has done.

Each daemon is what `setpoint tune` starts, but for its clock, which whoever asked for it can set. Lines of JSON on
stdin: first the settings of a daemon, to be warmed up with; then one for each daemon, with its settings, its folder, a
pipe for what it says and a file for how wrong its clock is. Answers each with its process id on stdout.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.registry import Registry
from caches.clocks import Clocks
from tuner.config import TunerConfig
from tuner.control import Did, Ticked
from tuner.keys.ghosts import LiveGhosts
from tuner.keys.view import Viewpoint
from tuner.starting import ghost_rules, started

AHEAD = struct.Struct("d")  # what is in the file of a clock: seconds that it is ahead


class Teller:
    """What a daemon says of itself, as lines of JSON [Unix time, what, number]: "up" when it is made, "tick" when one
    begins that closes an interval, and what each tick came to where that is new; number: of the interval."""

    def __init__(self, said: Path, clock: Path, interval_seconds: float) -> None:
        self._said, self._clock = said.open("a", encoding="utf-8", buffering=1), clock.open("rb", buffering=0)
        self._seconds, self._index, self._did, self._is_ticking = interval_seconds, -1, Did.STANDBY, False

    def unix(self) -> float:
        return time.time() + float(AHEAD.unpack(os.pread(self._clock.fileno(), AHEAD.size, 0))[0])

    def ticks(self) -> float:
        """Asked when a tick begins, and again when it is over."""
        self._is_ticking = not self._is_ticking
        index = int(self.unix() // self._seconds)
        if self._is_ticking and index > self._index and self._did is not Did.STANDBY:
            self._index = index
            self.say("tick", index)
        return time.monotonic()

    def told(self, ticked: Ticked, _seconds: float) -> None:
        if ticked.did is not self._did or ticked.did is Did.DECIDED:
            self._did = ticked.did
            if ticked.did is Did.DECIDED and ticked.state is not None:
                self._index = max(self._index, ticked.state.index)
            self.say(ticked.did.value, -1 if ticked.state is None else ticked.state.index)

    def say(self, what: str, number: int) -> None:
        self._said.write(json.dumps([time.time(), what, number]) + "\n")


def run(asked: Mapping[str, Any]) -> None:
    """A daemon, until SIGTERM."""
    folder = Path(asked["folder"])
    with (folder / "daemon.log").open("ab", buffering=0) as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    config = TunerConfig.model_validate(asked["settings"])
    teller = Teller(Path(asked["said"]), Path(asked["clock"]), config.control_seconds)
    made = started(config, folder, {}, teller.told, Clocks(teller.unix, teller.ticks))
    signal.signal(signal.SIGTERM, lambda _number, _frame: made.daemon.stop())
    teller.say("up", -1)
    try:
        made.daemon.run()
    finally:
        made.close()


def warm_up(config: TunerConfig, folder: Path) -> None:
    """All that a daemon uses is used once: a copy of the registry, since no connection may be in two processes, and
    ghost caches."""
    place = folder / "warm"
    place.mkdir()
    shutil.copy(folder / "mlflow.db", place / "mlflow.db")
    told = config.tracking
    registry = Registry(f"sqlite:///{place / 'mlflow.db'}", told.experiment, told.model)
    knobs = registry.load("champion").knob_space
    LiveGhosts(ghost_rules(config), [Viewpoint(knobs, knobs.default())])


def main() -> None:
    """Argument: the folder of the registry."""
    warm_up(TunerConfig.model_validate_json(sys.stdin.readline()), Path(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to wait for those that were killed
    print("ready", flush=True)
    for line in sys.stdin:
        process = os.fork()
        if not process:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                run(json.loads(line))
            finally:  # whatever came: it never goes on as the nursery
                error = sys.exc_info()[1]
                if error is not None:
                    traceback.print_exception(error)
                os._exit(0)
        print(process, flush=True)


if __name__ == "__main__":
    main()
