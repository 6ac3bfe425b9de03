"""The page at /, what is asked from it, and its files."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import URL

from api.access.callers import Caller
from api.asking import ROLES, Asked, ask, objection
from api.errors import Problem
from api.report.page import TEMPLATES
from api.routes.common import caller_of, require, service_of
from api.routes.decisions import place_of_decision
from api.web.forms import check_token, form_of
from api.web.overview import overview
from api.web.rendering import STATIC, page
from api.web.settings_table import settings_rows
from api.wording import MEANINGS, WISHES
from caches.errors import InputError
from tuner.api_sections import ApiConfig
from tuner.records import Wish, WishKind

ROUTES = APIRouter()
FILES = {
    "report.css": (TEMPLATES / "style.css", "text/css"),
    "live.css": (STATIC / "live.css", "text/css"),
    "icon.svg": (STATIC / "icon.svg", "image/svg+xml"),
    "live.js": (STATIC / "live.js", "text/javascript"),
}
LONGEST_REASON = 500
CHALLENGER = "challenger"
WAITS = "No daemon is at work now: this waits until one is."
WAITS_FOR_KILL = f"{WAITS} The command `setpoint kill` does it without one."


@ROUTES.get("/healthz")
def health() -> Response:
    return JSONResponse({"status": "ok"})


@ROUTES.get("/static/{name}")
def static(name: str) -> Response:
    if name not in FILES:
        raise Problem(404, f"There is no file {name[:100]!r}.")
    path, kind = FILES[name]
    return FileResponse(path, media_type=kind, headers={"cache-control": "no-cache"})


@ROUTES.get("/")
def index(
    request: Request,
    cache: Annotated[str | None, Query(max_length=200)] = None,
    older: Annotated[str | None, Query(max_length=256)] = None,
    wish: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> Response:
    service, caller = service_of(request), caller_of(request)
    known = service.caches()
    if not known:
        return page("nothing.html.j2", caller=caller, need_keys=_need_keys(request))
    access, config = request.app.state.access, _config(request)
    shown = cache if cache is not None else known[0]
    before = None if older is None else place_of_decision(older)
    found = overview(service, shown, caller, config.whatif, before, access.clock())
    said = None if wish is None else service.find_wish(shown, wish)
    return page(
        "index.html.j2",
        caller=caller,
        view=found,
        said=_said(said),
        is_older=older is not None,
        need_keys=_need_keys(request),
    )


@ROUTES.get("/wish")
def confirm(request: Request, cache: Annotated[str, Query(max_length=200)], kind: WishKind) -> Response:
    """What is asked for, once more in words, before it is."""
    service, caller = service_of(request), caller_of(request)
    require(caller, ROLES[kind])
    status = service.status(cache)
    state = status.state
    why_not = objection(state, kind)
    if why_not is not None:
        raise Problem(409, why_not)
    versions = service.policies() if kind is WishKind.START else ()
    return page(
        "confirm.html.j2",
        caller=caller,
        need_keys=_need_keys(request),
        cache=cache,
        kind=kind.value,
        words=WISHES[kind],
        meaning=MEANINGS[kind],
        waits=None if status.active else WAITS_FOR_KILL if kind is WishKind.KILL else WAITS,
        is_kill=kind is WishKind.KILL,
        is_start=kind is WishKind.START,
        versions=[(one.version, ", ".join((*one.aliases, one.kind or "of unknown kind"))) for one in versions],
        settings=settings_rows(state, service.limits(cache)) if kind is WishKind.KILL else None,
        key=secrets.token_urlsafe(16),
        longest=LONGEST_REASON,
    )


@ROUTES.post("/wish")
async def wish(request: Request) -> Response:
    caller: Caller = request.state.caller
    form = await form_of(request)
    check_token(form, caller)
    made = await run_in_threadpool(ask, request, _asked(request, form))
    place = URL("/").include_query_params(cache=made.cache, wish=made.id)
    return RedirectResponse(str(place), 303)


def _asked(request: Request, form: Mapping[str, str]) -> Asked:
    """Raises Problem for a form that the page does not send."""
    try:
        kind = WishKind(form.get("kind", ""))
    except ValueError as error:
        raise Problem(422, "kind: expected one that the page offers") from error
    arguments: dict[str, object] = {}
    if kind is WishKind.START:
        arguments = {CHALLENGER: _version(request, form.get(CHALLENGER, "")), "design": {}}
    reason, key = form.get("reason", "").strip()[:LONGEST_REASON], form.get("key") or None
    return Asked(form.get("cache", ""), kind, reason, arguments, key)


def _version(request: Request, text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise InputError(f"challenger: got {text[:20]!r}, expected the number of a version")
    service_of(request).check_version(int(text))
    return int(text)


def _said(wish: Wish | None) -> str | None:
    """What became of a wish that the page has just sent."""
    if wish is None:
        return None
    if wish.done_index is None:
        return f"Asked for: {WISHES[wish.kind]} (wish {wish.id}). The daemon acts on it at its next tick."
    return f"{WISHES[wish.kind]} (wish {wish.id}): {wish.answer or 'done.'}"


def _config(request: Request) -> ApiConfig:
    config: ApiConfig = request.app.state.config
    return config


def _need_keys(request: Request) -> bool:
    return bool(request.app.state.access.callers.need_keys)
