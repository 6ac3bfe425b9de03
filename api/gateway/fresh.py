"""Freshness as a part of the gateway's application: what watches requests, epochs, feedback, and the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.routing import Route

from api.gateway.auditing import Auditing
from api.gateway.feedback import Feedback
from api.gateway.flushing import Flushing
from api.gateway.freshening import Freshening
from api.gateway.freshness_report import told
from api.gateway.service import GatewayService


class FreshnessAtWork:
    """From the application's start to its end. freshening: None where lifetimes are fixed and nothing is looked for, so
    that requests pay nothing for it."""

    def __init__(self, service: GatewayService) -> None:
        settings, parts = service.settings, service.freshness
        self.auditing = Auditing(service.audit, settings)
        self.flushing = Flushing(service, self.auditing)
        self.freshening: Freshening | None = None
        if parts is not None:
            self.freshening = Freshening(
                parts, service.stack, service.clock, settings.deadline_seconds, self.flushing.flush_drifted
            )
        self.feedback = Feedback(
            settings, service.stack, self.freshening, self.auditing, service.checker, service.clocks.ticks
        )

    def told(self) -> dict[str, Any]:
        """For /v1/cache/stats and the metrics."""
        return told(self.freshening, self.flushing.keeping, self.feedback.judged.items())

    def routes(self) -> list[Route]:
        return [Route("/v1/cache/feedback", self.feedback.take, methods=["POST"])]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.flushing.running():
            try:
                yield
            finally:
                self.auditing.close()
