"""`setpoint serve`: the live cache in front of an OpenAI-compatible backend."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import replace
from typing import Annotated

import typer

from api.cli.output import result_console
from caches.errors import InputError
from caches.knobs import Knob, KnobSpace
from caches.place import Place
from caches.stack import Stack
from caches.tiers.memory import MemoryTier

try:
    from api.gateway.app import create_gateway
    from api.gateway.service import GatewayService
    from api.gateway.settings import GatewaySettings
    from api.gateway.upstream import upstream_client
    from api.http.listening import listen, place_of, server_of, take_stops_as_asked_for
    from caches.tiers.redis_connection import connect
    from caches.tiers.redis_index import RedisIndexTier
    from caches.tiers.redis_lease import RedisLease
except ModuleNotFoundError as error:
    if error.name not in {"fastapi", "httpx", "prometheus_client", "redis", "starlette", "uvicorn"}:
        raise
    raise InputError(f"setpoint serve needs {error.name}: install it with pip install 'setpoint[live]'") from error

SHUTDOWN_SECONDS = 10  # for answers that are on their way
REDIS_SECONDS = 0.2  # of a lookup; a Redis that takes longer is passed by
MEMORY_BYTES, REDIS_BYTES = 256 * 2**20, 1 * 2**30
TTL_SECONDS, LONGEST_TTL_SECONDS = 3_600.0, 30 * 86_400.0
LEAST_BYTES = 2**16
# How far a change at run time may go: in this process a few times what was stated, in Redis what somebody set there.
ROOM, MOST_REDIS_BYTES = 4.0, 2.0**40


def serve(
    upstream: Annotated[str, typer.Option(help="URL of the backend, as http://127.0.0.1:8100.")],
    upstream_key_env: Annotated[
        str | None,
        typer.Option(help="Environment variable that holds the backend's key; without it, clients send theirs."),
    ] = None,
    redis: Annotated[str | None, typer.Option(help="URL of a Redis, for a second tier that gateways share.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8080,
    ttl: Annotated[
        float | None,
        typer.Option(min=1.0, max=LONGEST_TTL_SECONDS, help="Lifetime of an answer in seconds; else 3,600."),
    ] = None,
    memory_bytes: Annotated[int, typer.Option(min=LEAST_BYTES, help="Capacity in this process.")] = MEMORY_BYTES,
    redis_bytes: Annotated[
        int | None, typer.Option(min=LEAST_BYTES, help="Capacity in Redis; else 1 GiB, or what it was set to before.")
    ] = None,
) -> None:
    """Answer OpenAI's API from a cache, and from the backend behind it.

    Chat completions, completions and embeddings are cached, all else below /v1 is passed through. Only answers at
    temperature 0, which the backend would give again, are kept. Stops at SIGINT and SIGTERM.
    """
    settings = GatewaySettings(upstream, _key(upstream_key_env))
    places = [Place(MemoryTier(_space(memory_bytes, memory_bytes * ROOM, ttl)))]
    lease = None
    if redis is not None:
        connection = connect(redis)
        space = _space(redis_bytes or REDIS_BYTES, MOST_REDIS_BYTES, ttl)
        places.append(Place(RedisIndexTier(connection, space), REDIS_SECONDS))
        lease = RedisLease(connection)
    service = GatewayService(settings, Stack(places, lease=lease), upstream_client(settings))
    listener = listen(host, port)
    take_stops_as_asked_for()
    _announce(settings, places, listener)
    with listener:
        asyncio.run(_run(service, listener, redis_bytes, ttl))


async def _run(service: GatewayService, listener: socket.socket, redis_bytes: int | None, ttl: float | None) -> None:
    for place in service.stack.places[1:]:
        await _settle(place, service.clock(), redis_bytes, ttl)
    server = server_of(create_gateway(service), SHUTDOWN_SECONDS, has_lifespan=True)
    await server.serve(sockets=[listener])


async def _settle(place: Place, now_seconds: float, size: int | None, ttl: float | None) -> None:
    """A shared tier keeps its settings: what is stated here is applied, what is not stays as somebody set it."""
    found = await place.ask(place.tier.settings)
    if found is None or (size is None and ttl is None):
        return
    wished = replace(
        found,
        cache_size=found.cache_size if size is None else float(size),
        ttl_seconds=found.ttl_seconds if ttl is None else ttl,
    )
    await place.ask(place.tier.apply, wished, now_seconds)


def _key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key:
        raise InputError(f"--upstream-key-env: got {name!r}, expected the name of a variable that holds a key")
    return key


def _space(size: float, most: float, ttl: float | None) -> KnobSpace:
    """The ranges within which settings can be changed at run time."""
    lifetime = TTL_SECONDS if ttl is None else ttl
    return KnobSpace(
        Knob("cache_size", "bytes", LEAST_BYTES, most, size, 0.1, "log"),
        Knob("ttl_seconds", "seconds", 1.0, LONGEST_TTL_SECONDS, lifetime, 0.1, "log"),
        Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear"),
    )


def _announce(settings: GatewaySettings, places: list[Place], listener: socket.socket) -> None:
    console = result_console()
    console.print(f"Gateway: http://{place_of(listener)}/v1", markup=False)
    names = ", ".join(place.tier.name for place in places)
    console.print(f"Tiers: {names}. Backend: {settings.shown}", markup=False)
