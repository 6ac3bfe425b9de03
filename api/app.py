"""The REST interface and the page on a ledger as one web application."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from api.access.audit import Audit
from api.access.gate import Access, Gate
from api.conditional import NotModified, not_modified
from api.errors import Problem, problem_of, problem_response
from api.events import Revisions
from api.openapi import described
from api.routes import caches, decisions, events, experiments, intervals, policies, reports, wishes
from api.web import pages, signing_in
from api.web.errors import error_page
from caches.errors import SetpointError
from tuner.api_sections import ApiConfig
from tuner.service import TunerService

REST = (caches, intervals, decisions, wishes, experiments, reports, policies, events)
PEOPLE = (pages, signing_in)
FOR_PROGRAMS = ("/v1/", "/openapi.json", "/healthz")  # all else is for people


def create_app(service: TunerService, config: ApiConfig, access: Access | None = None) -> FastAPI:
    """It needs its lifespan, which ends streams and closes the audit log. access: by default one with the real clocks.

    Raises InputError for an audit log that cannot be written.
    """
    access = access or Access(config, Audit(config.audit_log, time.time))
    revisions = Revisions(service.revision, config.poll_seconds, config.heartbeat_seconds, config.most_streams)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await revisions.close()
        access.audit.close()

    app = FastAPI(
        title="Setpoint",
        version=version("setpoint"),
        docs_url=None,  # they would load from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.service, app.state.access, app.state.config, app.state.revisions = service, access, config, revisions
    app.state.groups = [*(("/v1", group.ROUTES) for group in REST), *(("", group.ROUTES) for group in PEOPLE)]
    for prefix, routes in app.state.groups:
        app.include_router(routes, prefix=prefix, include_in_schema=bool(prefix))
    for kind in (Problem, SetpointError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _handled)
    app.add_exception_handler(NotModified, not_modified)
    app.add_middleware(Gate, access=access)
    described(app)
    return app


async def _handled(request: Request, error: Exception) -> Response:
    problem = problem_of(request, error)
    if request.url.path.startswith(FOR_PROGRAMS):
        return problem_response(problem)
    return error_page(problem) if problem.status != 401 else RedirectResponse("/login", 303)
