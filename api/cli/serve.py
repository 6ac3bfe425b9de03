"""`setpoint serve`: the live cache in front of an OpenAI-compatible backend."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from api.cli.output import progress_console, result_console
from caches.errors import InputError

try:
    from api.gateway.app import create_gateway
    from api.gateway.at_work import at_work
    from api.gateway.building import Built, built
    from api.gateway.config import load_serve_config
    from api.gateway.config_knobs import LEAST_BYTES, LONGEST_TTL_SECONDS
    from api.gateway.config_tiers import with_cassandra, with_redis
    from api.gateway.default_disk import with_default_disk
    from api.http.listening import listen, place_of, run, server_of, take_stops_as_asked_for
except ModuleNotFoundError as error:
    if error.name not in {
        "fastapi",
        "faiss",
        "httptools",
        "httpx",
        "prometheus_client",
        "redis",
        "starlette",
        "tokenizers",
        "uvicorn",
    }:
        raise
    raise InputError(f"setpoint serve needs {error.name}: install it with pip install 'setpoint[live]'") from error

SHUTDOWN_SECONDS = 10  # for answers that are on their way


def serve(
    config: Annotated[Path | None, typer.Option(help="TOML file with settings; options win over it.")] = None,
    upstream: Annotated[
        list[str] | None,
        typer.Option(help="URL of the backend, as http://127.0.0.1:8100; given again, of others that answer alike."),
    ] = None,
    upstream_key_env: Annotated[
        str | None,
        typer.Option(help="Environment variable that holds the backend's key; without it, clients send theirs."),
    ] = None,
    disk: Annotated[
        Path | None,
        typer.Option(
            help="File for a second tier that outlives the gateway; else one in the user's cache folder, if there is "
            "no Redis and no Cassandra."
        ),
    ] = None,
    no_disk: Annotated[bool, typer.Option("--no-disk", help="Keep nothing on disk.")] = False,
    redis: Annotated[str | None, typer.Option(help="URL of a Redis, for a second tier that gateways share.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; else 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one; else 8080.")
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(min=1.0, max=LONGEST_TTL_SECONDS, help="Lifetime of an answer in seconds; else 3,600."),
    ] = None,
    memory_bytes: Annotated[
        int | None, typer.Option(min=LEAST_BYTES, help="Capacity in this process; else 256 MiB.")
    ] = None,
    redis_bytes: Annotated[
        int | None, typer.Option(min=LEAST_BYTES, help="Capacity in Redis; else 1 GiB, or what it was set to before.")
    ] = None,
    access_log: Annotated[
        str | None,
        typer.Option(help="Folder, or redis://HOST:6379/0?stream=NAME, for a log of keys, sizes, tokens and times."),
    ] = None,
    no_semantic: Annotated[
        bool, typer.Option("--no-semantic", help="Answer equal requests only, and none by meaning.")
    ] = False,
) -> None:
    """Answer OpenAI's API from a cache, and from the backend behind it.

    Chat completions, completions and embeddings are cached, all else below /v1 is passed through. Only answers at
    temperature 0, which the backend would give again, are kept. A question that means the same as one answered before
    shares its answer, unless --no-semantic is given. Stops at SIGINT and SIGTERM.
    """
    overrides = {
        "gateway.upstream": upstream or None,
        "gateway.upstream_key_env": upstream_key_env,
        "gateway.host": host,
        "gateway.port": port,
        "access_log.place": access_log,
        "tiers.memory.cache_size": memory_bytes,
        "tiers.memory.ttl_seconds": ttl,
        "tiers.disk.path": disk,
        "tiers.disk.enabled": _has_disk(disk, no_disk),
        "tiers.disk.ttl_seconds": ttl,
        "tiers.semantic.ttl_seconds": ttl,
        "tiers.semantic.enabled": False if no_semantic else None,
    }
    told = load_serve_config(config, overrides)
    tiers = with_cassandra(with_redis(told.tiers, redis, redis_bytes, ttl), ttl)
    told = told.model_copy(update={"tiers": tiers})
    told, remarks = with_default_disk(told, os.environ, socket.gethostname())
    gateway = built(told, "command line" if config is None else str(config), os.environ)
    listener = listen(told.gateway.host, told.gateway.port)
    take_stops_as_asked_for()
    with listener:
        run(_run(gateway, listener, remarks))


def _has_disk(disk: Path | None, no_disk: bool) -> bool | None:
    """None where the options say nothing about it."""
    if disk is not None and no_disk:
        raise InputError("--disk, --no-disk: got both, expected one of them")
    if no_disk:
        return False
    return None if disk is None else True


async def _run(gateway: Built, listener: socket.socket, remarks: Sequence[str]) -> None:
    """remarks: of the time before, to be told with the address."""
    async with at_work(gateway) as more:
        _announce(gateway, listener, remarks)
        for remark in more:
            progress_console().print(remark, markup=False)
        server = server_of(create_gateway(gateway.service), SHUTDOWN_SECONDS, has_lifespan=True)
        await server.serve(sockets=[listener])


def _announce(gateway: Built, listener: socket.socket, remarks: Sequence[str]) -> None:
    console = result_console()
    console.print(f"Gateway: http://{place_of(listener)}/v1", markup=False)
    console.print(f"Tiers: {', '.join(gateway.places)}. Backend: {gateway.service.settings.shown}", markup=False)
    if gateway.semantic is not None:
        threshold = gateway.config.tiers.semantic.similarity_threshold
        console.print(
            f"A question that means the same as one answered before (similarity {threshold:g} or more) gets its "
            "answer, as hit-l3; --no-semantic turns this off.",
            markup=False,
        )
    for remark in remarks:
        console.print(remark, markup=False)
