"""A training in the background, asked for by the control loop after a change of regime. What it registers enters as a
challenger like any other: nothing of it acts before it has gone the way of a rollout.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tuner.loop.regime_now import RETRAIN
from tuner.records import ControlState

log = logging.getLogger("setpoint.tuner")
NICE = 10  # the machine may serve traffic


class Retraining:
    """One at a time, and once for each change of regime. output: file that its words are added to."""

    def __init__(self, command: Sequence[str], output: Path) -> None:
        self._command, self._output = list(command), output
        self._asked: object = None
        self._process: subprocess.Popen[bytes] | None = None

    def see_to(self, state: ControlState) -> None:
        """Starts what is asked for, and says how it ended. Never waits."""
        if self._process is not None and (code := self._process.poll()) is not None:
            level = logging.INFO if code == 0 else logging.ERROR
            log.log(level, "The training in the background ended with code %d; see %s.", code, self._output)
            self._process = None
        asked = state.memory.get(RETRAIN)
        if asked is None or asked == self._asked or self._process is not None:
            return
        self._asked = asked
        self._output.parent.mkdir(parents=True, exist_ok=True)
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                ["nice", "-n", str(NICE), *self._command], stdout=output, stderr=output, start_new_session=True
            )
        log.info("Traffic has changed: a training on the access log runs in the background.")

    def stop(self) -> None:
        """Ends it; a training that is called again goes on where it was."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None
