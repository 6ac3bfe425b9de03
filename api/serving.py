"""The application at work: TLS from the settings, and an end that streams of events do not hold up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping

import uvicorn
from fastapi import FastAPI

from api.events import Revisions
from api.http.listening import Tls, server_of
from caches.errors import InputError
from tuner.api_sections import ApiConfig

SHUTDOWN_SECONDS = 3  # for answers that are on their way
LOOK_SECONDS = 0.2  # between two looks whether it is to stop


async def serve(app: FastAPI, listener: socket.socket, tls: Tls | None) -> None:
    """Until uvicorn is told to stop, by a signal."""
    server = server_of(app, SHUTDOWN_SECONDS, has_lifespan=True, tls=tls)
    ending = asyncio.create_task(_end_streams(server, app.state.revisions))
    try:
        await server.serve(sockets=[listener])
    finally:
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)


async def _end_streams(server: uvicorn.Server, revisions: Revisions) -> None:
    """They would go on for ever, and uvicorn waits for them."""
    while not server.should_exit:
        await asyncio.sleep(LOOK_SECONDS)
    await revisions.close()


def tls_of(config: ApiConfig, environ: Mapping[str, str]) -> Tls | None:
    """Raises InputError for files that are not there and a password that is not set."""
    if config.tls_certificate is None:
        return None
    for name, path in (("tls_certificate", config.tls_certificate), ("tls_key", config.tls_key)):
        if path is not None and not path.is_file():
            raise InputError(f"api.{name}: got {path}, expected a PEM file")
    password = None
    if config.tls_password_env is not None:
        password = environ.get(config.tls_password_env)
        if not password:
            raise InputError(f"api.tls_password_env: {config.tls_password_env} is not set")
    return Tls(config.tls_certificate, config.tls_key, password)
