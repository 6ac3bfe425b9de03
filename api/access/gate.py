"""What every request passes before a route sees it: who asks, how often, how much, and from which page."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.access.audit import Audit, AuditUnavailable
from api.access.callers import Caller, Callers, address_of, check_origin
from api.access.rates import Rate
from api.access.sessions import Sessions
from api.errors import Problem, problem_response
from api.web.errors import error_page
from tuner.api_sections import ApiConfig

OPEN, FILES = frozenset({"/login", "/healthz"}), "/static/"  # for everybody: they tell nothing and change nothing
READING = frozenset({"GET", "HEAD", "OPTIONS"})
DENIED = frozenset({401, 403, 429})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with none, browsers do not say that a form is of this page either
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
A_YEAR = "max-age=31536000"


@dataclass
class Access:
    """Everything that decides who may. clock: Unix time. ticks: a clock that does not jump."""

    config: ApiConfig
    audit: Audit
    clock: Callable[[], float] = time.time
    ticks: Callable[[], float] = time.monotonic
    sessions: Sessions = field(init=False)
    callers: Callers = field(init=False)

    def __post_init__(self) -> None:
        config, ticks = self.config, self.ticks
        self.sessions = Sessions(config.session_seconds, ticks)
        self.callers = Callers(config, self.sessions, secrets.token_urlsafe(32))
        self.reads, self.writes = Rate(config.reads_per_minute, ticks), Rate(config.writes_per_minute, ticks)
        self.failures = Rate(config.failures_per_minute, ticks)
        self.told = Rate(6, ticks)  # lines of the audit on one caller's too many requests

    def check_failures(self, address: str) -> None:
        """Raises Problem where too many wrong keys came from there."""
        wait = self.failures.wait(address)
        if wait is not None:
            raise Problem(429, "Too many wrong keys came from this address.", {"retry-after": str(wait)})


class Gate:
    """Puts the caller into `request.state.caller`, or answers itself."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        answer = _Answer(send, request, self._access)
        try:
            self._admit(request)
            limited = _Limited(receive, self._access.config.largest_body_bytes)
            limited.check(request)
        except Problem as problem:
            await _shown(request, problem)(scope, receive, answer.send)
            return
        await self._app(scope, limited.receive, answer.send)

    def _admit(self, request: Request) -> None:
        access, path = self._access, request.url.path
        reading = request.method in READING
        if not reading:
            check_origin(request)
        if path in OPEN or path.startswith(FILES):
            return
        address = address_of(request)
        access.check_failures(address)
        try:
            caller = access.callers.caller(request)
        except Problem as problem:
            if problem.status == 401 and "authorization" in request.headers:
                access.failures.take(address)
            raise
        request.state.caller = caller
        rate = access.reads if reading else access.writes
        wait = rate.take(caller.name if access.callers.need_keys else address)
        if wait is not None:
            raise Problem(429, "Too many requests.", {"retry-after": str(wait)})


class _Limited:
    """A body that ends the request where it is longer than may be."""

    def __init__(self, receive: Receive, largest_bytes: int) -> None:
        self._receive, self._largest, self._seen = receive, largest_bytes, 0

    def check(self, request: Request) -> None:
        told = request.headers.get("content-length", "")
        if told.isdecimal() and int(told) > self._largest:
            raise Problem(413, self._refusal)

    async def receive(self) -> Message:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > self._largest:
            raise HTTPException(413, self._refusal)  # the framework lets no other exception pass here
        return message

    @property
    def _refusal(self) -> str:
        return f"A body may have {self._largest:,} bytes."


class _Answer:
    """Adds what every answer carries, and notes down what was denied."""

    def __init__(self, send: Send, request: Request, access: Access) -> None:
        self._send, self._request, self._access = send, request, access

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if self._access.config.tls_certificate is not None:
                headers.setdefault("strict-transport-security", A_YEAR)
            if message["status"] in DENIED:
                self._note(message["status"])
        await self._send(message)

    def _note(self, status: int) -> None:
        request, access = self._request, self._access
        caller, address = getattr(request.state, "caller", None), address_of(request)
        if status == 429 and access.told.take(address) is not None:
            return
        who = caller.name if isinstance(caller, Caller) else "unknown"
        try:
            access.audit.note("denied", who, address, status=status, method=request.method, path=request.url.path[:200])
        except AuditUnavailable:
            return  # it is denied all the same


def _shown(request: Request, problem: Problem) -> Response:
    """A browser without a session is sent to where it gets one."""
    wants_page = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/v1/")
    if not wants_page:
        return problem_response(problem)
    return RedirectResponse("/login", 303) if problem.status == 401 else error_page(problem)
