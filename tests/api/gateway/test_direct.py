"""The short way of a hit: heads that are too long, other methods on the same paths, and streams that are all there."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.routing import Route

from api.http.direct import DirectApp
from api.http.limited_head import LARGEST_HEAD_BYTES
from api.http.listening import server_of
from tests.api.gateway.conftest import served_by

PATIENT_SECONDS = 30.0


async def direct(request: Request) -> Response:
    return Response(b"direct " + await request.body())


async def routed(_request: Request) -> Response:
    return Response(b"routed")


def application() -> FastAPI:
    return DirectApp({"/short": direct}, routes=[Route("/short", routed, methods=["POST", "GET"])])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served_by(server_of(application(), 1, has_lifespan=False)) as place:
        yield place


def test_a_post_goes_past_the_routes_and_all_else_through_them(address: str) -> None:
    with httpx.Client(base_url=address, timeout=PATIENT_SECONDS) as client:
        assert client.post("/short?a=b", content=b"body").content == b"direct body"
        assert client.get("/short").content == b"routed"
        assert client.post("/other").status_code == 404


@pytest.mark.parametrize("size", [LARGEST_HEAD_BYTES - 4_096, 3 * LARGEST_HEAD_BYTES])
def test_a_head_may_be_long_but_not_endless(address: str, size: int) -> None:
    """Sent in pieces, and beyond the limit without an end: the server must not wait for one."""
    place = urlsplit(address)
    with socket.create_connection((place.hostname or "", place.port or 0), PATIENT_SECONDS) as client:
        client.sendall(b"GET /short HTTP/1.1\r\nhost: a\r\n")
        filler = (b"x-filler: " + b"a" * 1_012 + b"\r\n") * (size // 1_024)
        if size < LARGEST_HEAD_BYTES:
            client.sendall(filler + b"connection: close\r\n\r\n")
            assert answer_of(client).startswith(b"HTTP/1.1 200 ")
            return
        try:
            client.sendall(filler)
        except ConnectionError:
            return  # closed while we sent, and the answer lost with it
        assert answer_of(client)[:12] in {b"HTTP/1.1 400", b""}


def answer_of(client: socket.socket) -> bytes:
    """All of it; empty where the connection was reset."""
    received = b""
    try:
        while piece := client.recv(65_536):
            received += piece
    except ConnectionResetError:
        return received
    return received


def test_the_limit_counts_each_head_for_itself(address: str) -> None:
    """Three requests on a connection, together beyond the limit."""
    headers = {"x-filler": "a" * (LARGEST_HEAD_BYTES // 2)}
    with httpx.Client(base_url=address, timeout=PATIENT_SECONDS) as client:
        assert [client.get("/short", headers=headers).status_code for _ in range(3)] == [200, 200, 200]


def test_a_body_is_no_part_of_the_head(address: str) -> None:
    body = b"b" * (4 * LARGEST_HEAD_BYTES)
    with httpx.Client(base_url=address, timeout=PATIENT_SECONDS) as client:
        assert client.post("/short", content=body).content == b"direct " + body
