"""Tuning daemons as processes of their own, to be killed; benchmarks/fault_nursery.py forks them."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
AHEAD = struct.Struct("d")
GONE_SECONDS, PIECE = 60.0, 2**16
ACTIVE = ("decided", "applied", "nothing", "unreached")  # what a tick comes to of who acts; "standby" of who waits


@dataclass(frozen=True)
class Said:
    """at: Unix time, of a clock that is right."""

    at: float
    what: str
    number: int


class Child:
    """A daemon. hears: the end of a pipe to read what it says. said: all that was heard of it so far."""

    def __init__(self, process: int, hears: int, clock: Path) -> None:
        self.process, self._hears, self._clock = process, hears, clock
        self.began, self.said = time.time(), list[Said]()
        self._half = b""

    def hear(self) -> list[Said]:
        """What is new. One that was killed may have left half a line."""
        while piece := self._piece():
            self._half += piece
        whole, _, self._half = self._half.rpartition(b"\n")
        found = [Said(*json.loads(line)) for line in whole.splitlines()]
        self.said += found
        return found

    def _piece(self) -> bytes:
        try:
            return os.read(self._hears, PIECE)
        except BlockingIOError:
            return b""

    @property
    def is_active(self) -> bool:
        """Whether its last tick was of one that acts."""
        outcomes = [one.what for one in self.said if one.what in (*ACTIVE, "standby")]
        return bool(outcomes) and outcomes[-1] in ACTIVE

    def set_clock(self, ahead_seconds: float) -> None:
        self._clock.write_bytes(AHEAD.pack(ahead_seconds))

    def kill(self) -> None:
        """With SIGKILL."""
        self._signal(signal.SIGKILL)
        self._wait()

    def end(self) -> None:
        """With SIGTERM: it gives its lease back."""
        self._signal(signal.SIGTERM)
        self._wait()

    def close(self) -> None:
        os.close(self._hears)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process, number)

    def _wait(self) -> None:
        deadline = time.monotonic() + GONE_SECONDS
        while Path(f"/proc/{self.process}").exists():
            if time.monotonic() > deadline:
                self._signal(signal.SIGKILL)
            time.sleep(0.002)
        self.hear()


class Nursery:
    """folder: of the daemons, with the registry's database. It takes seconds until it is ready: `warm_up` waits."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._children = folder, list[Child]()
        command = [sys.executable, "-m", "benchmarks.fault_nursery", str(folder)]
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with (folder / "nursery.log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                text=True,
                env=os.environ | one_thread,
            )

    def warm_up(self, settings: Mapping[str, Any]) -> None:
        """With settings of a daemon. RuntimeError, with its own words, where it ends instead."""
        self._tell(settings)
        self._answer("ready")

    def daemon(self, settings: Mapping[str, Any], ahead_seconds: float = 0.0) -> Child:
        """A new one, which has just begun."""
        number = len(self._children)
        said, clock = (self._folder / f"daemon-{number}.{what}" for what in ("said", "clock"))
        os.mkfifo(said)
        hears = os.open(said, os.O_RDONLY | os.O_NONBLOCK)
        clock.write_bytes(AHEAD.pack(ahead_seconds))
        asked = {"settings": settings, "folder": str(self._folder), "said": str(said), "clock": str(clock)}
        self._tell(asked)
        self._children.append(Child(int(self._answer()), hears, clock))
        return self._children[-1]

    def end(self) -> None:
        for child in self._children:
            child.kill()
            child.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def _tell(self, what: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def _answer(self, expected: str = "") -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line or (expected and line != expected):
            raise RuntimeError(
                f"the nursery ended: {(self._folder / 'nursery.log').read_text(encoding='utf-8')[-2000:]}"
            )
        return line
