"""Where a server listens, and how it is stopped."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.loops.auto import auto_loop_factory

from api.http.limited_head import LimitedHead
from caches.errors import InputError


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections already; they wait until it is served. Raises InputError.

    It says that it is of TCP: only then does asyncio switch Nagle's delay off, which costs 40 ms a request.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise InputError(f"--host, --port: got {host}, {port}, expected a free address: {error.strerror}") from error
    return listener


def place_of(listener: socket.socket) -> str:
    """host:port, as URLs have it."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class Tls:
    """PEM files. key: None where it is in the file of the certificate."""

    certificate: Path
    key: Path | None = None
    password: str | None = field(default=None, repr=False)


def server_of(app: FastAPI, patience_seconds: int, *, has_lifespan: bool, tls: Tls | None = None) -> uvicorn.Server:
    """It says nothing but warnings. patience_seconds: for answers that are on their way when it is stopped."""
    config = uvicorn.Config(
        app,
        http=LimitedHead,
        log_level="warning",
        access_log=False,
        lifespan="on" if has_lifespan else "off",
        timeout_graceful_shutdown=patience_seconds,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
        ssl_keyfile_password=None if tls is None else tls.password,
    )
    return uvicorn.Server(config)


def run(work: Coroutine[Any, Any, None]) -> None:
    """As asyncio.run; in uvloop's loop where that is installed, as uvicorn does for servers that it runs itself."""
    with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
        runner.run(work)


def take_stops_as_asked_for() -> None:
    """uvicorn stops at these signals and then raises them anew, for whoever was there before: a stop that was asked for
    is not an error."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stopped)


def _stopped(number: int, frame: FrameType | None) -> None:
    """A handler that does nothing."""
