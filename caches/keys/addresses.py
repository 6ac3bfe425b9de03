"""Web addresses in one spelling, by RFC 3986, section 6.2.2 and 6.2.3, and without the parameters of trackers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from urllib.parse import SplitResult, urlsplit

PORTS = {"http": 80, "https": 443}
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def plain_address(address: str) -> str:
    """Scheme and host in small letters, no default port, escapes in capitals and none where a character needs none, no
    fragment, which no server is told. What is no address of http or https is returned as it is."""
    parts = _parts(address)
    if parts is None:
        return address
    user, at, host = parts.netloc.rpartition("@")
    host = host.lower()
    default = f":{PORTS[parts.scheme]}"
    host = host.removesuffix(default) if host.endswith(default) else host.removesuffix(":")
    query = f"?{_escapes(parts.query)}" if parts.query else ""
    return f"{parts.scheme}://{user}{at}{host}{_escapes(parts.path) or '/'}{query}"


def without_parameters(address: str, names: Iterable[str]) -> str:
    """Without the parameters of the query so named; a name may end in `*`. The order of the others counts."""
    parts = _parts(address)
    if parts is None or not parts.query:
        return address
    kept = [one for one in parts.query.split("&") if not _named(one.partition("=")[0], names)]
    if len(kept) == parts.query.count("&") + 1:
        return address
    return parts._replace(query="&".join(kept)).geturl()


def _parts(address: str) -> SplitResult | None:
    """None for what is none, or has what is not understood here."""
    if not address.isascii() or not address.lower().startswith(("http://", "https://")):
        return None
    if any(character.isspace() or not character.isprintable() for character in address):
        return None
    try:
        parts = urlsplit(address)
    except ValueError:  # brackets that do not close; whoever fetches it will say so
        return None
    return parts if parts.netloc else None


def _escapes(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        character = chr(int(match[1], 16))
        return character if character in _UNRESERVED else f"%{match[1].upper()}"

    return _ESCAPED.sub(one, text)


def _named(name: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in names)
