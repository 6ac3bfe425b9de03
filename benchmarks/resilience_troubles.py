"""What goes wrong in the benchmark of resilience, to a gateway with and without guards."""

from __future__ import annotations

import itertools
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import redis

from benchmarks.harness import say
from benchmarks.http_load import Load, at_rate, each_once, saturate
from benchmarks.resilience_world import GUARDED, PLAIN, SLOTS, World, question, world

CONNECTIONS, MOST_PASSES = 256, 30
ENOUGH = 0.95
INSTEAD = ("stale", "fallback", "template")
SMALL_MEMORY = "[tiers.memory]\ncache_size = 65_536\n"
SHORT_LIVES = "[tiers.memory]\nttl_seconds = 1.0\n"
STALE = "[resilience]\nenabled = true\nstale_grace_seconds = 3_600.0\n"
PATIENT = "patience_seconds = 1.0\n"
SMALLER = PATIENT + 'fallback_model = "smaller"\nfallback_upstream = "FALLBACK"\n'
RATE = "[resilience.token_rate]\ntokens_per_second = 4_000.0\nburst_tokens = 4_000.0\n"
SLOW = "[resilience.latency]\nwhole_p95_seconds = 0.4\n"
QUICK_TO_SEE = "[resilience.failures]\nfailures = 3\nfirst_seconds = 0.5\nlongest_seconds = 1.0\n"


@dataclass(frozen=True)
class Outcome:
    """Of one run. failed, instead: shares of the requests. calls: of the backend, for 1,000 requests."""

    failed: float
    p99_seconds: float
    calls: float
    instead: float


@dataclass(frozen=True)
class Trouble:
    """keys: questions that are asked, at random. begins: after so many seconds of the run; as a context it lasts until
    four fifths of it are over. wrong: share of the requests that the backend refuses whenever it is asked."""

    name: str
    what: str
    tiers: str
    guards: str
    keys: int
    per_second: float
    begins: Callable[[World], Callable[[], object]]
    wrong: float = 0.0


def flushed(here: World) -> Callable[[], object]:
    with redis.Redis(port=here.redis_port) as client:
        client.flushall()
    return lambda: None


def crowded(here: World) -> Callable[[], object]:
    """Somebody else asks the same backend for long answers, 64 at a time."""
    asks, over = [question(f"somebody else's {number}", max_tokens=200) for number in range(5_000)], threading.Event()
    crowd = threading.Thread(target=_crowd, args=(here.upstream_port, asks, over))
    crowd.start()

    def end() -> None:
        over.set()
        crowd.join()

    return end


def killed(here: World) -> Callable[[], object]:
    here.upstream.kill()
    return here.upstream.start


def hung(here: World) -> Callable[[], object]:
    held = here.upstream.held()
    held.__enter__()
    return lambda: held.__exit__(None, None, None)


def nothing(_here: World) -> Callable[[], object]:
    return lambda: None


def _crowd(port: int, asks: Sequence[bytes], over: threading.Event) -> None:
    while not over.is_set():
        saturate(port, itertools.cycle(asks), 64, 0.5)


OUTAGES = STALE + SMALLER + SLOW + QUICK_TO_SEE
TROUBLES = (
    Trouble(
        "flush",
        "Redis is flushed; memory holds about twenty answers",
        "REDIS" + SMALL_MEMORY,
        STALE + PATIENT + RATE,
        1_500,
        150.0,
        flushed,
    ),
    Trouble(
        "absent keys",
        "half of the requests are wrong as they stand",
        "",
        STALE + "negative_seconds = 30.0\n",
        100,
        200.0,
        nothing,
        0.5,
    ),
    Trouble("slow", "somebody else keeps the backend busy", SHORT_LIVES, OUTAGES, 150, 60.0, crowded),
    Trouble("killed", "the backend is killed, and started again", SHORT_LIVES, OUTAGES, 150, 60.0, killed),
    Trouble("hangs", "the backend is held, with its connections open", SHORT_LIVES, OUTAGES, 150, 60.0, hung),
)
Outcomes = dict[str, dict[str, list[Outcome]]]  # by trouble, then by whether there are guards


def tried(rounds: int, seconds: float, keys: int) -> Outcomes:
    """With and without guards, in turn. keys: at most."""
    found: Outcomes = {trouble.name: {PLAIN: [], GUARDED: []} for trouble in TROUBLES}
    for (tiers, guards), troubles in itertools.groupby(TROUBLES, lambda one: (one.tiers, one.guards)):
        with tempfile.TemporaryDirectory() as folder, world(Path(folder), tiers, guards) as here:
            for trouble, number, name in itertools.product(tuple(troubles), range(rounds), (PLAIN, GUARDED)):
                say(f"{trouble.name}, round {number + 1} of {rounds}, {name}")
                found[trouble.name][name].append(_run(trouble, here, name, number, seconds, min(trouble.keys, keys)))
                time.sleep(2.0)  # for a backend to have done what nobody waits for any more
    return found


def _run(trouble: Trouble, here: World, name: str, number: int, seconds: float, keys: int) -> Outcome:
    gateway, chance = here.gateways[name], random.Random(number)
    asks = [question(f"{trouble.name} {name} {number} {key}?") for key in range(keys)]
    wrong = [question(f"{trouble.name} {name} {number} {key}?", top_p=2.0) for key in range(20)]
    _warm(gateway.port, asks)
    before = gateway.sent()

    def drawn() -> Iterator[bytes]:
        while True:
            yield chance.choice(wrong if chance.random() < trouble.wrong else asks)

    with _beside(trouble, here, seconds):
        load = at_rate(gateway.port, drawn(), trouble.per_second, CONNECTIONS, seconds, count_failures=True)
    return _outcome(load, gateway.sent() - before)


def _warm(port: int, asks: Sequence[bytes]) -> None:
    """Until nearly all are answered by cache or backend; a guard lets no more through than the backend can do."""
    for _ in range(MOST_PASSES):
        load = each_once(port, asks, SLOTS, count_failures=True)
        instead = sum(load.outcomes[what] for what in INSTEAD)
        if load.statuses["200"] - instead >= ENOUGH * len(asks):
            return
    raise RuntimeError(f"after {MOST_PASSES} passes: {load.statuses}, {load.outcomes}")


@contextmanager
def _beside(trouble: Trouble, here: World, seconds: float) -> Iterator[None]:
    """The trouble, from a fifth of the run to four fifths."""
    ends: list[Callable[[], object]] = []

    def work() -> None:
        time.sleep(0.2 * seconds)
        ends.append(trouble.begins(here))
        time.sleep(0.6 * seconds)
        ends.pop()()

    working = threading.Thread(target=work)
    working.start()
    try:
        yield
    finally:
        working.join()
        for end in ends:
            end()


def _outcome(load: Load, calls: int) -> Outcome:
    number = sum(load.statuses.values())
    instead = sum(load.outcomes[what] for what in INSTEAD)
    p99 = float(np.quantile(load.latencies_seconds, 0.99))
    return Outcome(load.failed / number, p99, 1_000.0 * calls / number, instead / number)
