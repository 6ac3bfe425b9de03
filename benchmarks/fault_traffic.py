"""Steady traffic on a gateway, every answer counted; and a look at the settings it goes by, all along."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from caches.errors import InputError
from caches.knobs import KNOB_NAMES, KnobSettings, KnobSpace
from caches.target import CacheUnavailable, Standing
from tuner.live.gateway_cache import GatewayCache

PATH, KEYS, TIMEOUT_SECONDS = "/v1/chat/completions", 400, 60.0
SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class Asked:
    """sent, answered: Unix time. trouble: what came in place of an answer; None where one came."""

    sent: float
    answered: float
    trouble: str | None


@dataclass
class Worker:
    """A thread that does something again and again until it is stopped."""

    what: Callable[[], None]
    every_seconds: float
    _stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            self.what()
            due = max(due + self.every_seconds, time.monotonic())
            self._stopping.wait(due - time.monotonic())

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


class Traffic:
    """clients: connections that ask one after the other, so many times a second each. Keys are asked for by a law of
    powers, so that some of them are hits."""

    def __init__(self, url: str, clients: int = 4, per_second: float = 10.0) -> None:
        self._parts = urlsplit(url)
        self._told: list[list[Asked]] = [[] for _ in range(clients)]
        self._connections: dict[int, http.client.HTTPConnection] = {}
        self._random = [random.Random(number) for number in range(clients)]
        self._workers = [Worker(lambda n=number: self._ask(n), 1.0 / per_second) for number in range(clients)]  # type: ignore[misc]

    def all(self) -> list[Asked]:
        """So far, by when they were answered."""
        return sorted((one for told in self._told for one in [*told]), key=lambda one: one.answered)

    def failed(self, since: float = 0.0) -> list[str]:
        """Of requests that were sent from then on."""
        return [one.trouble for one in self.all() if one.trouble is not None and one.sent >= since]

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop()
        for connection in self._connections.values():
            connection.close()

    def _ask(self, number: int) -> None:
        key = min(int(self._random[number].paretovariate(0.7)), KEYS)
        ask = {"model": "small", "temperature": 0, "messages": [{"role": "user", "content": f"Question {key}?"}]}
        sent = time.time()
        try:
            trouble = self._answer(number, json.dumps(ask))
        except (OSError, http.client.HTTPException) as error:
            trouble = f"{type(error).__name__}: {error}"
            self._connections.pop(number).close()
        self._told[number].append(Asked(sent, time.time(), trouble))

    def _answer(self, number: int, body: str) -> str | None:
        there = self._connections.get(number)
        if there is None:
            host, port = self._parts.hostname or "", self._parts.port
            there = self._connections[number] = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        there.request("POST", PATH, body, {"Content-Type": "application/json"})
        answer = there.getresponse()
        text = answer.read()
        return None if answer.status == 200 else f"status {answer.status}: {text[:200].decode(errors='replace')}"


class Settings:
    """What a gateway goes by, looked at all along. outside: settings that the operator does not allow, in sentences.
    fell: fences that were lower than one before."""

    def __init__(self, url: str) -> None:
        self._cache = GatewayCache(url, timeout_seconds=TIMEOUT_SECONDS)
        self.space = self._cache.knob_space()
        self.looks, self.fence, self.seen = 0, 0, set[KnobSettings]()
        self.outside: list[str] = []
        self.fell: list[int] = []
        self._worker = Worker(self._look, SAMPLE_SECONDS)

    def standing(self) -> Standing:
        return self._cache.standing()

    def stop(self) -> None:
        self._worker.stop()
        self._cache.close()

    def _look(self) -> None:
        try:
            standing = self._cache.standing()
        except CacheUnavailable:  # of a gateway that a test has ended
            return
        self.looks += 1
        if standing.fence < self.fence:
            self.fell.append(standing.fence)
        self.fence = standing.fence
        for settings in (standing.plan.control, standing.plan.treatment, *standing.binding.values()):
            self.seen.add(settings)
            self.outside += outside(settings, self.space)


def outside(settings: KnobSettings, space: KnobSpace) -> list[str]:
    """The knobs that are out of the operator's range, in sentences."""
    told: list[str] = []
    for name in KNOB_NAMES:
        knob, value = getattr(space, name), getattr(settings, name)
        if not knob.low <= value <= knob.high:
            told.append(f"{name}: got {value:g}, expected a value in [{knob.low:g}, {knob.high:g}]")
    return told


def wait_until(is_so: Callable[[], Any], what: str, seconds: float = 60.0) -> float:
    """How long it took, s. InputError where it is not so in time."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > seconds:
            raise InputError(f"{what}: got nothing of the kind in {seconds:.0f} s, expected it by then")
        time.sleep(0.05)
    return time.monotonic() - began
