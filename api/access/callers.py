"""Who asks: the holder of a key, by its hash, or whoever is on this machine where there are no keys."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from api.access.sessions import Sessions
from api.errors import Problem
from api.gateway.settings import key_hash
from tuner.api_sections import ApiConfig, ApiRole, is_loopback

COOKIE = "setpoint-session"
LOCAL = "local"  # who asks where there are no keys
CHALLENGE = {"www-authenticate": 'Bearer realm="setpoint"'}


@dataclass(frozen=True)
class Caller:
    """name: as wishes and the audit have it. token: against forged forms, of those who came by the page; None of those
    who sent a key."""

    name: str
    role: ApiRole
    token: str | None = None

    def may(self, role: ApiRole) -> bool:
        return self.role.covers(role)


class Callers:
    """Raises Problem: 401 where a key is missing or unknown, 403 where none would help."""

    def __init__(self, config: ApiConfig, sessions: Sessions, local_token: str) -> None:
        self._holders = {key.sha256: Caller(key.name, key.role) for key in config.keys}
        self._sessions, self._local_token = sessions, local_token

    @property
    def need_keys(self) -> bool:
        return bool(self._holders)

    def by_key(self, key: str) -> Caller | None:
        """By hash: how long it takes says nothing of the keys that there are."""
        return self._holders.get(key_hash(key))

    def caller(self, connection: HTTPConnection) -> Caller:
        if not self._holders:
            return self._local(connection)
        key = _bearer(connection)
        if key is not None:
            found = self.by_key(key)
            if found is None:
                raise Problem(401, "The key that was sent is none of this server's.", CHALLENGE)
            return found
        session = self._sessions.find(connection.cookies.get(COOKIE, ""))
        holder = None if session is None else self._holders.get(session.sha256)
        if session is None or holder is None:
            raise Problem(401, "This needs a key, as a bearer token; a browser logs in at /login.", CHALLENGE)
        return Caller(holder.name, holder.role, session.token)

    def _local(self, connection: HTTPConnection) -> Caller:
        """The Host has to be this machine's too: a page elsewhere whose name was made to mean 127.0.0.1 has another."""
        if not (_is_local(connection) and is_loopback(host_of(connection))):
            raise Problem(403, "This server has no keys, so it is only for this machine, by 127.0.0.1 or localhost.")
        return Caller(LOCAL, ApiRole.ADMIN, self._local_token)


def host_of(connection: HTTPConnection) -> str:
    """Of the Host header, without its port; empty where there is none or it is nonsense."""
    try:
        return urlsplit(f"//{connection.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def address_of(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client is not None else "unknown"


def check_origin(connection: HTTPConnection) -> None:
    """Browsers say where a request that changes something comes from. Raises Problem where that is another site."""
    origin = connection.headers.get("origin")
    site = connection.headers.get("sec-fetch-site", "same-origin")
    place = connection.headers.get("host", "")
    if site not in ("same-origin", "none") or (origin is not None and urlsplit(origin).netloc != place):
        raise Problem(403, "This comes from a page of another site.")


def _bearer(connection: HTTPConnection) -> str | None:
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def _is_local(connection: HTTPConnection) -> bool:
    try:
        return ipaddress.ip_address(address_of(connection)).is_loopback
    except ValueError:  # a name, for example that of a test
        return False
