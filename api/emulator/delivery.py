"""The header that says what answers here."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-setpoint-emulator"


class EmulatorHeader:
    """ASGI middleware: every response says that an emulator made it, also an error and a path that is not there."""

    def __init__(self, app: ASGIApp, value: str) -> None:
        self.app = app
        self.header = (HEADER.encode(), value.encode("latin-1", "replace"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], self.header]
            await send(message)

        await self.app(scope, receive, send_with_header)
