"""What operators and clients had done to the cache, written down: who, from where, what, and what came of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import Request

from api.access.audit import Audit, AuditUnavailable
from api.gateway.access import asker_of
from api.gateway.settings import GatewaySettings
from api.http.errors import ApiError
from caches.tiers.selection import Selection


class NotRecorded(ApiError):
    """The audit log cannot be written, so nothing is done."""

    status = 503
    code = "audit_unavailable"


class Auditing:
    """audit: None for no log, where nothing is written."""

    def __init__(self, audit: Audit | None, settings: GatewaySettings) -> None:
        self._audit, self._settings = audit, settings

    def note(self, event: str, request: Request, told: dict[str, Any]) -> None:
        """Before what it tells of is done, as `event`, and after it with the counts. Raises NotRecorded."""
        if self._audit is None:
            return
        address = "" if request.client is None else request.client.host
        self._write(event, asker_of(request, self._settings), address, told)

    def note_own(self, event: str, selection: Selection, why: str) -> None:
        """What the gateway did by itself."""
        if self._audit is not None:
            self._write(event, "gateway", "", asdict(selection) | {"why": why})

    def close(self) -> None:
        if self._audit is not None:
            self._audit.close()

    def _write(self, event: str, who: str, address: str, told: dict[str, Any]) -> None:
        assert self._audit is not None
        try:
            self._audit.note(event, who, address, **told)
        except AuditUnavailable as error:
            raise NotRecorded("The audit log cannot be written, so nothing was done.") from error
