"""A rehearsal from its beginning to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents.registry import Registry
from api.app import create_app
from api.emulator.app import create_emulator
from api.emulator.settings import EmulatorSettings
from api.gateway.app import create_gateway
from api.gateway.building import built
from api.rehearsal.clock import ReplayClock, WaitingLoop
from api.rehearsal.keys import KeysDestination
from api.rehearsal.servers import running
from api.rehearsal.settings import KEY_VARIABLE, daemon_config, gateway_config
from api.rehearsal.story import Story
from api.rehearsal.traffic import Questions, Sent, replay
from api.report.experiment import experiment_page, reckoning
from api.report.page import Page, render
from caches.errors import SetpointError
from caches.files import written_whole
from envs.interval import Timeline, timeline_of
from envs.world import Problem
from traces.access.log import AccessLog
from tuner.config import TunerConfig
from tuner.control import Did, Ticked
from tuner.keys.in_process import InProcessKeys
from tuner.ledger import Ledger
from tuner.ledgers.sql import open_ledger
from tuner.problem import split_of
from tuner.records import ControlState
from tuner.service import TunerService
from tuner.starting import started

LEDGER, REPORT = "ledger.db", "report.html"
WEEKS_SECONDS = 2_900 * 604_800.0  # Unix time at which a trace begins: a whole number of weeks, in 2025
STREAM_INTERVAL = 10_000  # tokens: a chunk with the first and one with the rest, which is quick to pass on
LOG_SECONDS = 0.02  # of the wall, between two looks of the access log
AFTERWARDS = 2  # intervals that are still shown when it is decided

Tell = Callable[[str], None]
Ticks = asyncio.Queue[ControlState | None]  # None: it has ended


@dataclass(frozen=True)
class Rehearsal:
    """config: with a trace, see `for_bundle` and `daemon_config`. problem: under the first of its policies. registry:
    the one that it names, with a challenger. folder: for the ledger and the report; what an earlier one left there is
    replaced. speed: how many times as fast as recorded. most_intervals: until it is over in any case. stays: whether
    servers and traffic go on then, until somebody stops them."""

    config: TunerConfig
    problem: Problem
    registry: Registry
    folder: Path
    speed: float
    most_intervals: int
    stays: bool


@dataclass(frozen=True)
class Ending:
    """state: of the cache. page, report: of the experiment and where it lies; None where there was none."""

    state: ControlState
    page: Page | None
    report: Path | None
    sent: Sent


async def rehearse(wanted: Rehearsal, tell: Tell, over: Callable[[Ending], None]) -> None:
    """Held-out traffic, from its beginning, in the time of the event loop, a WaitingLoop. over: is called once, when it
    is decided or time is up."""
    problem, config = wanted.problem, wanted.config
    timeline = timeline_of(problem.trace.arrival_seconds, problem.interval_seconds)
    test = timeline.split(split_of(config).train, split_of(config).validation)[2]
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WaitingLoop)
    clock = ReplayClock(WEEKS_SECONDS + timeline.begin(test.start), wanted.speed, loop.time, loop.works)
    keys, sent = InProcessKeys(), Sent()
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(_backend(wanted))
        gateway = await stack.enter_async_context(_gateway(wanted, clock, keys, backend))
        told = daemon_config(config, gateway, wanted.folder / LEDGER)
        ledger = _new_ledger(wanted.folder, told.control.ledger)
        stack.callback(ledger.close)
        service = TunerService(ledger, wanted.registry, clock.unix)
        page = await stack.enter_async_context(running(create_app(service, config.api), lifespan=True))
        tell(f"Page: {page}/   Gateway: {gateway}/v1   Emulated backend: {backend}/v1")
        ticks = await stack.enter_async_context(_daemon(told, clock, keys))
        due, questions = _due(wanted, timeline, test.start, clock), Questions(problem.trace, problem.profile.name)
        await stack.enter_async_context(_beside(replay(questions, due, clock, gateway, sent)))
        story = Story(ledger)
        state = await _decided(ticks, story, tell, wanted.most_intervals)
        over(_ending(wanted.folder, service, story, state, sent))
        while wanted.stays:
            await _next(ticks, story, tell)


def _due(wanted: Rehearsal, timeline: Timeline, first: int, clock: ReplayClock) -> dict[int, float]:
    """The rows from an interval of the trace on, from the next interval of the daemon on: its ghosts begin empty with
    one, as the cache then does."""
    seconds, rows = wanted.problem.interval_seconds, range(int(timeline.edges[first]), len(wanted.problem.trace))
    begins = (clock.unix() // seconds + 1.0) * seconds - timeline.begin(first)
    arrivals = wanted.problem.trace.arrival_seconds[rows.start :]
    return dict(zip(rows, (arrivals + begins).tolist(), strict=True))


def _new_ledger(folder: Path, url: str) -> Ledger:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{LEDGER}*"):
        old.unlink()
    return open_ledger(url, folder)


@asynccontextmanager
async def _backend(wanted: Rehearsal) -> AsyncIterator[str]:
    settings = EmulatorSettings(profile=wanted.problem.profile, speed=wanted.speed, stream_interval=STREAM_INTERVAL)
    app = create_emulator(settings, asyncio.get_running_loop().time)
    async with running(app, lifespan=False) as url:
        yield url


@asynccontextmanager
async def _gateway(wanted: Rehearsal, clock: ReplayClock, keys: InProcessKeys, backend: str) -> AsyncIterator[str]:
    config = gateway_config(wanted.problem, backend, wanted.speed, wanted.config.cache.policies)
    made = built(config, "rehearsal", {KEY_VARIABLE: "rehearsal"}, clock.clocks)
    log = AccessLog(KeysDestination(keys), every_seconds=LOG_SECONDS, clock=clock.unix)
    async with running(create_gateway(replace(made.service, access_log=log)), lifespan=True) as url:
        yield url


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task  # raises what ended it before


@asynccontextmanager
async def _daemon(config: TunerConfig, clock: ReplayClock, keys: InProcessKeys) -> AsyncIterator[Ticks]:
    """A daemon in a thread of its own. Yields the states that it comes to."""
    ticks: Ticks = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def told(ticked: Ticked, _seconds: float) -> None:
        if ticked.did is Did.DECIDED and ticked.state is not None:
            loop.call_soon_threadsafe(ticks.put_nowait, ticked.state)

    made = await asyncio.to_thread(started, config, Path.cwd(), {}, told, clock.clocks, keys)

    def run() -> None:
        with clock.at_work():
            made.daemon.run()

    running_daemon = asyncio.create_task(asyncio.to_thread(run))
    running_daemon.add_done_callback(lambda _task: ticks.put_nowait(None))
    try:
        yield ticks
    finally:
        made.daemon.stop()
        try:
            await running_daemon  # raises what ended it
        finally:
            made.close()


async def _decided(ticks: Ticks, story: Story, tell: Tell, most_intervals: int) -> ControlState:
    """The state some intervals after it was decided, or when time is up."""
    left = AFTERWARDS
    for _ in range(most_intervals):
        state = await _next(ticks, story, tell)
        left -= story.is_over(state)
        if left == 0:
            return state
    tell(f"Not decided within {most_intervals} intervals.")
    return state


async def _next(ticks: Ticks, story: Story, tell: Tell) -> ControlState:
    found = await ticks.get()
    if found is None:
        raise SetpointError("the daemon ended by itself")
    for line in story.lines(found):
        tell(line)
    return found


def _ending(folder: Path, service: TunerService, story: Story, state: ControlState, sent: Sent) -> Ending:
    if story.experiment is None:
        return Ending(state, None, None, sent)
    page = experiment_page(reckoning(service.account(story.experiment)))
    with written_whole(folder / REPORT) as path:
        path.write_text(render(page), encoding="utf-8")
    return Ending(state, page, folder / REPORT, sent)
