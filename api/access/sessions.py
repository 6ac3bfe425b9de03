"""Browsers that logged in. They are held in memory: after a restart the page asks for the key anew."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from api.gateway.settings import key_hash

MOST = 1_000  # the oldest goes first
BYTES = 32


@dataclass(frozen=True)
class Session:
    """sha256: of the API key. token: what a form has to send along. until_seconds: by the clock of `Sessions`."""

    sha256: str
    token: str
    until_seconds: float


class Sessions:
    """By the hash of what the cookie holds. Used by several threads."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds, self._clock = seconds, clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def begin(self, key: str) -> str:
        """Returns what the cookie is to hold. The key has been checked."""
        secret = secrets.token_urlsafe(BYTES)
        session = Session(key_hash(key), secrets.token_urlsafe(BYTES), self._clock() + self._seconds)
        with self._lock:
            self._sessions[key_hash(secret)] = session
            while len(self._sessions) > MOST:
                self._sessions.popitem(last=False)
        return secret

    def find(self, secret: str) -> Session | None:
        digest = key_hash(secret)
        with self._lock:
            session = self._sessions.get(digest)
            if session is not None and session.until_seconds <= self._clock():
                del self._sessions[digest]
                return None
            return session

    def end(self, secret: str) -> None:
        with self._lock:
            self._sessions.pop(key_hash(secret), None)
