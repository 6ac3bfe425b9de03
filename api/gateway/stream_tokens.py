"""What names a place in a stream to a client: the token of its stream, and the ids of events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from api.gateway.events import without_usage

RESUME_HEADER = "x-setpoint-resume"
LAST_EVENT_HEADER = "last-event-id"
WITH_USAGE, WITHOUT_USAGE = "u", "n"
TOKEN = re.compile(rf"([A-Za-z0-9_-]{{22}})([{WITH_USAGE}{WITHOUT_USAGE}])")
EVENT_ID = re.compile(rf"({TOKEN.pattern}):([0-9]{{1,9}})")


@dataclass(frozen=True)
class Token:
    """stream: its id in the log. with_usage: whether the client sees the events' usage; it must stay the same, since
    the bytes are to be the same."""

    stream: str
    with_usage: bool

    @property
    def text(self) -> str:
        return self.stream + (WITH_USAGE if self.with_usage else WITHOUT_USAGE)


def token_of(text: str) -> Token | None:
    """None for what is of another form."""
    found = TOKEN.fullmatch(text)
    return None if found is None else Token(found[1], found[2] == WITH_USAGE)


def event_of(text: str) -> tuple[Token, int] | None:
    """The token in an event's id, and how many events of the log a client has that got it. None for what is of another
    form."""
    found = EVENT_ID.fullmatch(text)
    return None if found is None else (Token(found[2], found[3] == WITH_USAGE), int(found[4]))


class Marking:
    """Events of a log as one client gets them, each with its id. seen: events of the log before the next."""

    def __init__(self, token: Token, seen: int = 0) -> None:
        self.token, self.seen = token, seen
        self._head = b"id: %b:" % token.text.encode()

    def told(self, events: Sequence[bytes]) -> bytes:
        """Those that follow. An event that has nothing to say to this client is left out, and its number with it."""
        pieces = []
        for event in events:
            self.seen += 1
            told = event if self.token.with_usage else without_usage(event)
            if told is not None:
                pieces.append(b"%b%d\n%b" % (self._head, self.seen, told))
        return b"".join(pieces)
