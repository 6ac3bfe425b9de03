"""Ending tasks for certain: before Python 3.12 `asyncio.wait_for`, and so a Redis client, swallows a cancellation that
comes when its call has just been answered."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_SECONDS = 0.05


async def cancelled(*tasks: asyncio.Future[Any]) -> None:
    """When all of them have ended. They are cancelled as often as that takes."""
    left = [task for task in tasks if not task.done()]
    while left:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=AGAIN_SECONDS)
        left = [task for task in left if not task.done()]


def heed_cancellation() -> None:
    """Raises CancelledError where this task was cancelled and has not noticed. Before what is costly."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
