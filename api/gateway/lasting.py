"""Work that goes on from the start of a gateway to its end, in steps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

LOG = logging.getLogger("setpoint.gateway")
AFTER_ERROR_SECONDS = 1.0


async def lasting(step: Callable[[], Awaitable[float]], first_seconds: float = 0.0) -> None:
    """Until cancelled. Each step says how long until the next. An error in one is a bug, which must not end all after
    it."""
    pause = first_seconds
    while True:
        await asyncio.sleep(pause)
        try:
            pause = await step()
        except Exception:
            LOG.exception("a step of work beside the requests failed; the next one comes")
            pause = AFTER_ERROR_SECONDS
