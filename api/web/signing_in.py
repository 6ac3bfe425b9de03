"""A browser gets in by a key, which it does not keep: it gets a cookie that only stands for it here."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from api.access.callers import COOKIE, Caller, address_of
from api.access.gate import Access
from api.errors import Problem
from api.web.forms import check_token, form_of
from api.web.rendering import page

ROUTES = APIRouter()
WRONG = "This key is none of this server's."


@ROUTES.get("/login")
def login_form(request: Request) -> Response:
    if not _access(request).callers.need_keys:
        return RedirectResponse("/", 303)
    return page("login.html.j2", wrong=None, caller=None)


@ROUTES.post("/login")
async def login(request: Request) -> Response:
    access, address = _access(request), address_of(request)
    access.check_failures(address)
    key = (await form_of(request)).get("key", "").strip()
    caller = access.callers.by_key(key)
    if caller is None:
        access.failures.take(address)
        return page("login.html.j2", 401, wrong=WRONG, caller=None)
    access.audit.note("login", caller.name, address)
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        COOKIE,
        access.sessions.begin(key),
        max_age=int(access.config.session_seconds),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@ROUTES.post("/logout")
async def logout(request: Request) -> Response:
    caller: Caller = request.state.caller
    form = await form_of(request)
    check_token(form, caller)
    access = _access(request)
    if not access.callers.need_keys:
        raise Problem(409, "This server has no keys, so there is nothing to log out of.")
    access.sessions.end(request.cookies.get(COOKIE, ""))
    access.audit.note("logout", caller.name, address_of(request))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return answer


def _access(request: Request) -> Access:
    access: Access = request.app.state.access
    return access
