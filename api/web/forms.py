"""Forms of the page: small, urlencoded, and with the token that only a page of this server has."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import parse_qsl

from fastapi import Request

from api.access.callers import Caller
from api.errors import Problem

KIND = "application/x-www-form-urlencoded"
MOST_FIELDS = 20


async def form_of(request: Request) -> Mapping[str, str]:
    """Each field once. Raises Problem for what is no form."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != KIND:
        raise Problem(415, f"The body has to be {KIND}.")
    try:
        pairs = parse_qsl(
            (await request.body()).decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
        )
    except ValueError as error:
        raise Problem(400, "The form cannot be read.") from error
    return dict(pairs)


def check_token(form: Mapping[str, str], caller: Caller) -> None:
    """Raises Problem for a form that is not of a page of this caller's."""
    sent = form.get("token", "")
    if caller.token is None or not hmac.compare_digest(sent.encode(), caller.token.encode()):
        raise Problem(403, "The form is too old, or not of this page: go back, reload it and send it again.")
