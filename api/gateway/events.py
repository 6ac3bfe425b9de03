"""Server-sent events: the part of them that OpenAI's API uses, read and written."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Any

import orjson

END = b"[DONE]"


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


DONE = event(END)


def json_event(value: Any) -> bytes:
    return event(orjson.dumps(value))


async def data_of(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The data of each event, however the bytes were cut on their way. Comments and other fields are left out, and an
    event that was not ended, as the standard says."""
    rest, lines = b"", list[bytes]()
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                lines.append(line[5:].removeprefix(b" "))
            elif not line and lines:
                yield b"\n".join(lines)
                lines = []


def without_usage(piece: bytes) -> bytes | None:
    """An event as a client gets it that did not ask for usage; None where it has nothing else to say."""
    if b'"usage"' not in piece:
        return piece
    chunk = orjson.loads(piece[len(b"data: ") :])
    if not isinstance(chunk, dict) or "usage" not in chunk:
        return piece
    if not chunk.get("choices"):
        return None
    del chunk["usage"]
    return json_event(chunk)


def without_usages(pieces: Iterable[bytes]) -> list[bytes]:
    """Those events that have something to say to such a client, as it gets them."""
    return [told for told in map(without_usage, pieces) if told is not None]
