"""An application whose busiest paths go past the framework's middleware and routing, which cost more than a hit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

Handler = Callable[[Request], Awaitable[Response]]


class DirectApp(FastAPI):
    """direct: by path, who answers a POST there. It has to turn its own errors into responses; what it does raise is a
    500 of the server that runs this. Everything else of these paths is for the routes that the application has too."""

    def __init__(self, direct: Mapping[str, Handler], **settings: Any) -> None:
        super().__init__(**settings)
        self._direct = dict(direct)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            handler = self._direct.get(scope["path"])
            if handler is not None:
                response = await handler(Request(scope, receive, send))
                await response(scope, receive, send)
                return
        await super().__call__(scope, receive, send)
