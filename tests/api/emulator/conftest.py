"""Real servers on free ports of the loopback, in threads of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn

from api.cli.emulate import listen
from api.emulator.app import create_emulator
from api.emulator.settings import EmulatorSettings
from envs.serving import ServingProfile, load_profile

FAST = 1000.0  # times real time: the longest answer takes 4 ms


@contextmanager
def emulator(
    profile: ServingProfile | None = None, *, speed: float = FAST, seed: int = 0, fail_ratio: float = 0.0
) -> Iterator[str]:
    """The address of an emulator that serves until the end of the block."""
    settings = EmulatorSettings(
        profile=profile or load_profile("qwen2.5-7b-a100"), speed=speed, seed=seed, fail_ratio=fail_ratio
    )
    config = uvicorn.Config(create_emulator(settings), log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            deadline = time.monotonic() + 10
            while not server.started and time.monotonic() < deadline:
                time.sleep(0.005)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)


@pytest.fixture(scope="session")
def fast() -> Iterator[str]:
    """An emulator that answers at once."""
    with emulator() as address:
        yield address
