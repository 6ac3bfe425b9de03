"""What can fail around a tuning daemon, each as a block of time, and what came of it: whether requests were served,
what the ledger said, and how long it took until all was well again."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from operator import attrgetter

import redis

from benchmarks.fault_daemons import Child
from benchmarks.fault_servers import Server
from benchmarks.fault_traffic import wait_until
from benchmarks.fault_world import CACHE, World
from tuner.ledger import DecisionFilter, Ledger
from tuner.records import Decision, Verdict

SMALL_FILE_BYTES = 4_096  # that no file of a daemon may be larger than, where its disk is to be full
JUMP = 4  # intervals
LEAST_INTERVALS, LONGEST_SECONDS = 3, 300.0

Begin = Callable[[World, Child], AbstractContextManager[None]]
REDIS: Callable[[World], Server] = attrgetter("redis")
PROMETHEUS: Callable[[World], Server] = attrgetter("prometheus")


def killed(server_of: Callable[[World], Server]) -> Begin:
    @contextmanager
    def begin(world: World, _daemon: Child) -> Iterator[None]:
        server_of(world).kill()
        try:
            yield
        finally:
            server_of(world).start()

    return begin


def held(server_of: Callable[[World], Server]) -> Begin:
    return lambda world, _daemon: server_of(world).held()


def clock_off(intervals: int) -> Begin:
    @contextmanager
    def begin(world: World, daemon: Child) -> Iterator[None]:
        daemon.set_clock(intervals * world.interval_seconds)
        try:
            yield
        finally:
            daemon.set_clock(0.0)

    return begin


@contextmanager
def redis_flushed(world: World, _daemon: Child) -> Iterator[None]:
    with redis.Redis(port=world.redis_port) as client:
        client.flushall()
    yield


@contextmanager
def redis_full(world: World, _daemon: Child) -> Iterator[None]:
    """It can be read, and takes nothing more."""
    with redis.Redis(port=world.redis_port) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            client.config_set("maxmemory", 0)


@contextmanager
def registry_gone(world: World, _daemon: Child) -> Iterator[None]:
    place = world.folder / "mlflow.db"
    away = place.rename(place.with_name("away.db"))
    try:
        yield
    finally:
        away.rename(place)


@contextmanager
def disk_full(_world: World, daemon: Child) -> Iterator[None]:
    """No file of the daemon's process can grow (RLIMIT_FSIZE), which needs no rights; what it logs is lost as well."""
    _, most = resource.prlimit(daemon.process, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.process, resource.RLIMIT_FSIZE, (SMALL_FILE_BYTES, most))
    try:
        yield
    finally:
        resource.prlimit(daemon.process, resource.RLIMIT_FSIZE, (most, most))


@dataclass(frozen=True)
class Trouble:
    """what: in words. begin: a block that lasts as long as it does. says: a part of what the ledger has to say of it;
    None where there is nothing to be said, or nowhere to say it. intervals: within which all is well again after it."""

    what: str
    begin: Begin
    says: str | None
    intervals: int


TROUBLES: Mapping[str, Trouble] = {
    "redis killed": Trouble("Redis killed", killed(REDIS), "Nothing is known of the keys", 15),
    "redis held": Trouble("Redis stopped (SIGSTOP)", held(REDIS), "Nothing is known of the keys", 15),
    "redis flushed": Trouble("Redis flushed", redis_flushed, None, 10),
    "redis full": Trouble("Redis full", redis_full, "Nothing is known of the keys", 10),
    "prometheus killed": Trouble("Prometheus killed", killed(PROMETHEUS), "signals are missing", 30),
    "prometheus held": Trouble("Prometheus stopped (SIGSTOP)", held(PROMETHEUS), "signals are missing", 15),
    "registry gone": Trouble("MLflow gone", registry_gone, "nothing registered yet", 15),
    "clock ahead": Trouble(f"clock {JUMP} intervals ahead", clock_off(JUMP), None, JUMP + 10),
    "clock back": Trouble(f"clock {JUMP} intervals back", clock_off(-JUMP), None, 10),
    "disk full": Trouble("ledger's disk full", disk_full, None, 10),
}


@dataclass(frozen=True)
class Suffered:
    """said: sentences of the ledger that were new. asked, failed: requests that were sent meanwhile and until all was
    well again. back_seconds: from the end of the trouble until an interval that began after it was decided and nothing
    was said against it."""

    said: tuple[str, ...]
    asked: int
    failed: tuple[str, ...]
    back_seconds: float


def suffer(world: World, ledger: Ledger, daemon: Child, trouble: Trouble) -> Suffered:
    """Lasts until the ledger says what there is to say, and for some intervals at least. InputError where it does not,
    or where all is not well again in time."""
    asked_at = time.time()
    wait_until(lambda: _is_well(world, ledger, asked_at), "a world that is well", LONGEST_SECONDS)
    began, before = time.time(), _sentences(ledger)
    with trouble.begin(world, daemon):
        time.sleep(LEAST_INTERVALS * world.interval_seconds)
        if trouble.says is not None:
            wait_until(
                lambda: any(str(trouble.says) in one for one in _sentences(ledger)),
                f"a sentence with {trouble.says!r}",
                LONGEST_SECONDS,
            )
    ended = time.time()
    wait_until(lambda: _is_well(world, ledger, ended), f"that all is well again after {trouble.what}", LONGEST_SECONDS)
    back = time.time() - ended
    asked = [one for one in world.traffic.all() if one.sent >= began]
    return Suffered(tuple(sorted(_sentences(ledger) - before)), len(asked), tuple(world.traffic.failed(began)), back)


def _is_well(world: World, ledger: Ledger, since: float) -> bool:
    """Whether an interval that began since then is over, its numbers are known, and what follows is allowed and
    applied, with nothing to be said against anything."""
    state, newest = ledger.state(CACHE), _newest(ledger)
    if state is None or not state.confirmed or not newest or newest[0].index != state.index:
        return False
    if state.index > time.time() // world.interval_seconds:  # a clock was ahead
        return False
    over = ledger.intervals(CACHE, state.index - 1, state.index - 1)
    known = bool(over) and all(one.window is not None and one.began_seconds >= since for one in over)
    now = [one for one in newest if one.index == state.index]
    return known and all(one.verdict is Verdict.ALLOW and not _complains(one) for one in now)


def _complains(decision: Decision) -> bool:
    told = [trouble.says for trouble in TROUBLES.values() if trouble.says is not None]
    return any(part in reason for reason in decision.reasons for part in told)


def _newest(ledger: Ledger) -> list[Decision]:
    return [*ledger.decisions(CACHE, DecisionFilter(limit=40))]


def _sentences(ledger: Ledger) -> set[str]:
    state = ledger.state(CACHE)
    last = 0 if state is None else state.index
    reasons = {one.reason for one in ledger.intervals(CACHE, last - 20, last) if one.reason is not None}
    return reasons.union(*(one.reasons for one in _newest(ledger)))
