"""Reads that are the same as before: an ETag from the ledger's revision, and 304 where the client has that already."""

from __future__ import annotations

import hashlib
import re
from importlib.metadata import version
from typing import Annotated

from fastapi import Depends, Header, Request, Response

VARY = "accept, authorization, cookie"
TAG = re.compile(r'(?:W/)?"([^"]*)"')
CACHING = "private, no-cache"  # kept by the client alone, and asked about each time


class NotModified(Exception):
    """The client has it."""

    def __init__(self, etag: str) -> None:
        super().__init__(etag)
        self.etag = etag


class Tagging:
    """Called with what an answer depends on besides the address and what is accepted, it sets the ETag.

    That is the ledger's revision as it was before reading, for one: what is read is then as new as its tag or newer,
    and a client at worst asks once too often. Raises NotModified.
    """

    def __init__(
        self,
        request: Request,
        response: Response,
        if_none_match: Annotated[
            str | None, Header(description="ETag of what you have; 304 where it is still the same.")
        ] = None,
    ) -> None:
        self._request, self._response, self._header = request, response, if_none_match or ""
        self.headers: dict[str, str] = {}  # for an answer that the framework does not make

    def __call__(self, *known: object) -> None:
        accepted = self._request.headers.get("accept", "")
        told = "\0".join(map(str, (version("setpoint"), self._request.url, accepted, *known)))
        digest = hashlib.blake2b(told.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
        etag = f'W/"{digest}"'
        if has(self._header, digest):
            raise NotModified(etag)
        self.headers = {"etag": etag, "cache-control": CACHING, "vary": VARY}
        self._response.headers.update(self.headers)


Tag = Annotated[Tagging, Depends()]


def has(header: str, tag: str) -> bool:
    """Whether If-None-Match names the tag; weak or strong is the same here."""
    return header.strip() == "*" or tag in TAG.findall(header)


def not_modified(_request: Request, error: Exception) -> Response:
    """The handler to register for NotModified."""
    assert isinstance(error, NotModified)
    return Response(status_code=304, headers={"etag": error.etag, "cache-control": CACHING})
