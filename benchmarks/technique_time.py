"""Time that leaps: an event loop in which nothing ever waits, and the clocks of a gateway that runs in it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any, TypeVar
from unittest import mock

from caches.clocks import Clocks
from caches.semantic.embedder import Embedder
from caches.semantic.embedder_catalog import make_embedder
from caches.streams.memory_log import MemoryStreamLog
from caches.streams.streams import Streams

BEGINS_SECONDS = 20_000 * 86_400.0  # Unix time at which a run begins
T = TypeVar("T")


class LeapingSelector(selectors.SelectSelector):
    """Has no sockets to wait for: instead of waiting for the next timer it says that its time has come."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing is due, so a run in leaping time would never end")
        self.passed_seconds += max(timeout, 0.0)
        return []


class LeapingLoop(asyncio.SelectorEventLoop):
    """Work takes no time here, and waiting takes no work. What would go to a thread is done at once, so that two runs
    of the same traffic come to the same."""

    def __init__(self) -> None:
        self._leaping = LeapingSelector()
        super().__init__(self._leaping)

    def time(self) -> float:
        return self._leaping.passed_seconds

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # Any loop's
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # whoever awaits it handles it
            done.set_exception(error)
        return done


def in_leaping_time(work: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, in a loop of its own."""
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        return runner.run(work)


@cache
def embedder_once(*named: Any) -> Embedder:
    """Reading the weights takes longer than many requests."""
    return make_embedder(*named)


@contextmanager
def clocks_of(loop: asyncio.AbstractEventLoop) -> Iterator[Clocks]:
    """For a gateway that is built and runs inside. What asks for the time by itself, and not by the clocks that it was
    given, is told the loop's as well."""
    ticks = loop.time
    streams = "api.gateway.building_streams"
    with ExitStack() as patches:
        for name, value in (
            ("time.monotonic", ticks),
            ("api.gateway.building_semantic.make_embedder", embedder_once),
            (f"{streams}.Streams", partial(Streams, ticks=ticks)),
            (f"{streams}.MemoryStreamLog", partial(MemoryStreamLog, ticks=ticks)),
        ):
            patches.enter_context(mock.patch(name, value))
        yield Clocks(lambda: BEGINS_SECONDS + ticks(), ticks)
