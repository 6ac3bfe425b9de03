"""Answers whatever comes with the same bytes: shows what a load generator can do. python fixed_server.py PORT BYTES"""

from __future__ import annotations

import asyncio
import sys


class Fixed(asyncio.Protocol):
    """Requests come in one piece each, as small ones do on this machine."""

    def __init__(self, response: bytes) -> None:
        self._response = response

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._response)


async def serve(port: int, size: int) -> None:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n"
    response = head.encode() + b"x" * size
    server = await asyncio.get_running_loop().create_server(lambda: Fixed(response), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:])))
