"""`setpoint cache`: the hot set of a gateway, to a file and from one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Annotated, BinaryIO
from urllib.parse import urlsplit

import typer

from api.cli.output import result_console
from caches.errors import InputError, SetpointError
from caches.files import written_whole

OWNER_ONLY = 0o600  # a hot set holds questions and answers
QUIET_SECONDS = 300.0  # without a byte, either way; a gateway takes entries in at a rate of its own
ANSWER_BYTES = 2**16  # of an answer that is no hot set
PIECE_BYTES = 2**16
PATH = "/v1/cache/hot"

GatewayUrl = Annotated[str, typer.Option("--gateway", help="URL of the gateway, as http://127.0.0.1:8080.")]
KeyEnv = Annotated[
    str | None, typer.Option(help="Environment variable that holds an operator's key; without it, none is sent.")
]


def export_command(
    file: Annotated[Path, typer.Argument(help="File to write, with a JSON object in each line.")],
    gateway: GatewayUrl,
    share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The best share of the requests that the gateway knows.")
    ] = 0.1,
    key_env: KeyEnv = None,
) -> None:
    """Write the entries of a gateway that are asked for most to a file.

    It holds questions and answers of all tenants, so only its owner can read it. It appears whole or not at all.
    """
    with (
        _answered("GET", gateway, f"{PATH}?share={share}", key_env) as answer,
        written_whole(file) as partial,
        partial.open("wb") as out,
    ):
        partial.chmod(OWNER_ONLY)
        out.writelines(_pieces(answer, gateway))
    with file.open("rb") as lines:
        entries = sum(1 for _ in lines)
    result_console().print(f"{file}: {entries:,} entries, {file.stat().st_size:,} bytes", markup=False)


def import_command(
    file: Annotated[Path, typer.Argument(help="File that `setpoint cache export` wrote.")],
    gateway: GatewayUrl,
    key_env: KeyEnv = None,
) -> None:
    """Take the entries of a file into the tiers of a gateway, with the age that they have.

    What is there already stays as it is, and what is too old by now is left out. The gateway takes its time, so that
    its requests do not wait. A line that is wrong ends it, and is named.
    """
    if not file.is_file():
        raise InputError(f"file: got {file}, expected a file that `setpoint cache export` wrote")
    with file.open("rb") as lines, _answered("POST", gateway, PATH, key_env, lines) as answer:
        counts = json.loads(b"".join(_pieces(answer, gateway)))
    told = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    result_console().print(f"{file}: {told}", markup=False)


@contextmanager
def _answered(
    method: str, gateway: str, path: str, key_env: str | None, body: BinaryIO | None = None
) -> Iterator[HTTPResponse]:
    """Raises InputError for what the gateway refuses, SetpointError where it cannot be reached or breaks off. It
    follows no redirect: the key is for this address alone."""
    headers = _headers(key_env)
    if body is not None:
        headers["content-length"] = str(os.fstat(body.fileno()).st_size)
    connection = _connection(gateway)
    try:
        with _reached(gateway):
            answer = _sent(
                connection, method, urlsplit(gateway).path.rstrip("/").removesuffix("/v1") + path, body, headers
            )
            reason = None if answer.status == 200 else _reason(answer.read(ANSWER_BYTES))
        if reason is not None:
            raise InputError(f"{gateway}: status {answer.status}: {reason}")
        yield answer
    finally:
        connection.close()


def _pieces(answer: HTTPResponse, gateway: str) -> Iterator[bytes]:
    """Raises SetpointError where it breaks off."""
    while True:
        with _reached(gateway):
            piece = answer.read(PIECE_BYTES)
        if not piece:
            return
        yield piece


@contextmanager
def _reached(gateway: str) -> Iterator[None]:
    try:
        yield
    except (HTTPException, OSError) as error:
        raise SetpointError(f"{gateway}: the connection failed ({type(error).__name__}: {error})") from error


def _sent(
    connection: HTTPConnection, method: str, path: str, body: BinaryIO | None, headers: dict[str, str]
) -> HTTPResponse:
    try:
        connection.request(method, path, body, headers)
    except BrokenPipeError:  # it refuses without reading all, and says why
        return connection.getresponse()
    return connection.getresponse()


def _connection(gateway: str) -> HTTPConnection:
    parts = urlsplit(gateway)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(f"--gateway: got {gateway!r}, expected a URL such as http://127.0.0.1:8080")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(parts.hostname, parts.port, timeout=QUIET_SECONDS)


def _headers(key_env: str | None) -> dict[str, str]:
    if key_env is None:
        return {}
    key = os.environ.get(key_env, "").strip()
    if not key:
        raise InputError(f"--key-env: got {key_env!r}, expected the name of a variable that holds a key")
    return {"authorization": f"Bearer {key}"}


def _reason(body: bytes) -> str:
    """Of an error in OpenAI's words, or the beginning of what came instead."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
