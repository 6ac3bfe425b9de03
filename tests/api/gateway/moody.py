"""A backend with moods: an emulator that can be made slow, or to answer with errors, while it runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from api.emulator.app import create_emulator
from api.emulator.settings import EmulatorSettings
from envs.serving import load_profile
from tests.api.gateway.conftest import FAST, configured, serving

QUIET = "[tiers.disk]\nenabled = false\n[tiers.semantic]\nenabled = false\n"


@dataclass
class Moody:
    """status: of all its answers from now on; None: it answers. delay_seconds: before each. models: of the requests
    that reached it, with their API keys."""

    address: str = ""
    status: int | None = None
    delay_seconds: float = 0.0
    models: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def over(self, app: Any) -> Any:
        async def answer(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http" or not scope["path"].endswith("completions"):
                await app(scope, receive, send)
                return
            received, body = [], b""
            while True:
                message = await receive()
                received.append(message)
                body += message.get("body", b"")
                if not message.get("more_body"):
                    break
            self.models.append(json.loads(body)["model"])
            self.keys.append(dict(scope["headers"]).get(b"authorization", b"").decode())
            await asyncio.sleep(self.delay_seconds)
            if self.status is not None:
                head = {
                    "type": "http.response.start",
                    "status": self.status,
                    "headers": [(b"content-type", b"application/json")],
                }
                await send(head)
                await send({"type": "http.response.body", "body": b'{"error":{"message":"in a mood","type":"mood"}}'})
                return

            async def again() -> Any:
                return received.pop(0) if received else await receive()

            await app(scope, again, send)

        return answer


@contextmanager
def moody() -> Iterator[Moody]:
    app, backend = create_emulator(EmulatorSettings(profile=load_profile("qwen2.5-7b-a100"), speed=FAST)), Moody()
    with serving(backend.over(app)) as backend.address:
        yield backend


@contextmanager
def guarded(backend: Moody, folder: Path, text: str) -> Iterator[str]:
    """The address of a gateway in front of it with `[resilience] enabled = true`, and no tier but that in memory."""
    file = folder / "gateway.toml"
    with configured(
        backend.address, file, f"health_seconds = 0.2\n{QUIET}[resilience]\nenabled = true\n{text}"
    ) as address:
        yield address
