"""`setpoint api`: the REST interface and the page on a ledger."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path
from typing import Annotated

import typer

from api.cli.options import ConfigFile, TrackingUri
from api.cli.output import progress_console, result_console
from api.cli.registry import open_registry
from caches.errors import InputError
from tuner.api_sections import ApiConfig, is_loopback
from tuner.config import TunerConfig, load_tuner_config
from tuner.ledgers.sql import open_ledger
from tuner.service import TunerService

try:
    from api.app import create_app
    from api.http.listening import listen, place_of, run, take_stops_as_asked_for
    from api.serving import serve, tls_of
except ModuleNotFoundError as error:
    if error.name not in {"fastapi", "httptools", "starlette", "uvicorn"}:
        raise
    raise InputError(f"setpoint api needs {error.name}: install it with pip install 'setpoint[live]'") from error


def api(
    config_file: ConfigFile = None,
    ledger: Annotated[
        str | None, typer.Option(help="URL of the ledger, in place of control.ledger: sqlite:///FILE or postgresql://…")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on, in place of api.host.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on, in place of api.port; 0: any free one.")
    ] = None,
    tracking_uri: TrackingUri = None,
) -> None:
    """Show what the tuning daemon did, why and what it saved: as a page, and as JSON below /v1.

    It reads the ledger and writes down what people ask for; it touches no cache, and the daemon may run or not. Stops
    at SIGINT and SIGTERM.
    """
    overrides = {
        "control.ledger": ledger,
        "api.host": host,
        "api.port": port,
        "tracking.uri": tracking_uri,
    }
    told = load_tuner_config(config_file, Path.cwd(), os.environ, overrides)
    listener = listen(told.api.host, told.api.port)
    take_stops_as_asked_for()
    with listener:
        run(_run(told, listener))


async def _run(told: TunerConfig, listener: socket.socket) -> None:
    tls = tls_of(told.api, os.environ)
    ledger = await asyncio.to_thread(open_ledger, told.control.ledger, Path.cwd())
    try:
        app = create_app(TunerService(ledger, open_registry(told, Path.cwd()), time.time), told.api)
        _announce(told.api, listener)
        await serve(app, listener, tls)
    finally:
        ledger.close()


def _announce(config: ApiConfig, listener: socket.socket) -> None:
    scheme = "http" if config.tls_certificate is None else "https"
    result_console().print(f"Page: {scheme}://{place_of(listener)}/", markup=False)
    if not config.keys:
        progress_console().print("No keys: whoever is on this machine is an admin here, and nobody else gets in.")
    elif scheme == "http" and not is_loopback(config.host):
        progress_console().print("Keys go over the network in the clear: set tls_certificate, or put a proxy in front.")
