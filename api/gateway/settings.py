"""What a gateway is told before it starts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from caches.errors import InputError
from caches.keys.partitions import partition_of
from caches.keys.rules import KeyRules

HASH = re.compile(r"[0-9a-f]{64}")
LIMITS = ("largest_body_bytes", "deadline_seconds", "connect_seconds", "idle_seconds", "connections")


@dataclass(frozen=True)
class GatewaySettings:
    """upstream: where the backend is, with or without /v1 at its end. upstream_key: sent to it in place of the
    clients'. tenants: hash of an API key to the tenant that has it; empty: everybody is "default" and no key is asked
    for. admin_key_hash: of the key that the endpoints under /v1/cache ask for; None: they answer this machine only.

    deadline_seconds: from a request to its whole answer, or to the beginning of a stream. idle_seconds: without a byte
    from the backend. connections: to the backend at once; more requests wait for one of them.
    """

    upstream: str = field(repr=False)
    upstream_key: str | None = field(default=None, repr=False)
    tenants: Mapping[str, str] = field(default_factory=dict, repr=False)
    admin_key_hash: str | None = field(default=None, repr=False)
    rules: KeyRules = field(default_factory=KeyRules)
    largest_body_bytes: int = 16 * 2**20
    deadline_seconds: float = 600.0
    connect_seconds: float = 5.0
    idle_seconds: float = 300.0
    connections: int = 1_000

    def __post_init__(self) -> None:
        parts = urlsplit(self.upstream)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise InputError(f"upstream: got {self.shown!r}, expected a URL such as http://127.0.0.1:8100")
        for digest in (*self.tenants, *filter(None, [self.admin_key_hash])):
            if not HASH.fullmatch(digest):
                raise InputError("tenants, admin_key_hash: got a hash of another form, expected 64 digits of SHA-256")
        for tenant in self.tenants.values():
            partition_of(tenant)
        for name in LIMITS:
            if not getattr(self, name) > 0:
                raise InputError(f"{name}: got {getattr(self, name)}, expected above 0")

    @property
    def base_url(self) -> str:
        """Of the backend, without /v1."""
        return self.upstream.rstrip("/").removesuffix("/v1")

    @property
    def shown(self) -> str:
        """The backend's URL without a user and password."""
        parts = urlsplit(self.upstream)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def key_hash(key: str) -> str:
    """What is kept of an API key. Keys are long and random, so a plain hash gives nothing away."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
