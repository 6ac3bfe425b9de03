"""`setpoint emulate`: a backend in which no model runs, for demonstrations, tests and load."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from api.cli.output import result_console
from caches.errors import InputError
from envs.serving import load_profile

try:
    from api.emulator.app import create_emulator
    from api.emulator.settings import EmulatorSettings
    from api.http.listening import listen, place_of, server_of, take_stops_as_asked_for
except ModuleNotFoundError as error:
    if error.name not in {"fastapi", "httptools", "prometheus_client", "starlette", "uvicorn"}:
        raise
    raise InputError(f"setpoint emulate needs {error.name}: install it with pip install 'setpoint[live]'") from error

# A stream may have minutes to go; who stops an emulator does not wait for it.
SHUTDOWN_SECONDS = 2


def emulate(
    profile: Annotated[
        str, typer.Option(help="Serving profile: name of a built-in one, or path of a TOML file.")
    ] = "qwen2.5-7b-a100",
    replicas: Annotated[int, typer.Option(min=1, max=1024, help="GPUs that serve the model.")] = 1,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8100,
    speed: Annotated[
        float, typer.Option(min=0.001, max=1e6, help="Seconds of the profile that pass in one second.")
    ] = 1.0,
    stream_interval: Annotated[
        int, typer.Option(min=1, help="Tokens of a streamed chunk, after the first; as vLLM's option of this name.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of all answers.")] = 0,
    fail_ratio: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of requests, always the same ones, that get a 429 or a 500.")
    ] = 0.0,
) -> None:
    """Answer OpenAI's API with the latency and queueing of a serving profile. An emulator: no model runs.

    Answers follow from a hash of the request. Serves chat completions, completions, embeddings and models below /v1,
    and /healthz and /metrics. Stops at SIGINT and SIGTERM.
    """
    settings = EmulatorSettings(
        profile=load_profile(profile),
        replicas=replicas,
        speed=speed,
        stream_interval=stream_interval,
        seed=seed,
        fail_ratio=fail_ratio,
    )
    listener = listen(host, port)
    server = server_of(create_emulator(settings), SHUTDOWN_SECONDS, has_lifespan=False)
    take_stops_as_asked_for()
    _announce(settings, listener)
    with listener:
        server.run(sockets=[listener])


def _announce(settings: EmulatorSettings, listener: socket.socket) -> None:
    console = result_console()
    console.print(f"Emulator, no model runs: http://{place_of(listener)}/v1", markup=False)
    console.print(
        f"Profile {settings.profile.name}, {settings.backend.slots:,} sequences at once, "
        f"{settings.speed:g} times real time, seed {settings.seed}.",
        markup=False,
    )
