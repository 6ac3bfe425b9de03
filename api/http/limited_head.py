"""HTTP by httptools, a parser in C, with the limit that it lacks: a head that never ends would fill the memory."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD_BYTES = 2**16  # as uvicorn's other parser, h11, has it


class LimitedHead(HttpToolsProtocol):
    """A request line and headers that go on beyond the limit get a 400, and the connection is closed. What one read of
    the socket brings is taken in before it is counted."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._in_head, self._head_bytes = False, 0

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > LARGEST_HEAD_BYTES:
                self._in_head = False
                self.send_400_response(f"The head of a request may have {LARGEST_HEAD_BYTES:,} bytes.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
