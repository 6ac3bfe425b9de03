"""What a gateway is told before it starts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit

from api.gateway.warming_settings import WarmingSettings
from caches.errors import InputError
from caches.guards.ladder import Rung
from caches.keys.by_name import ByName
from caches.keys.partitions import partition_of
from caches.keys.rules import KeyRules
from tuner.key_hash import HASH

LIMITS = ("largest_body_bytes", "deadline_seconds", "connect_seconds", "idle_seconds", "connections", "health_seconds")


class Role(Enum):
    """What a key opens. client: OpenAI's API. viewer: the counts, the settings and the metrics of the cache, to read.
    operator: what a viewer may, and to change and to clear."""

    CLIENT = "client"
    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True)
class KeyHolder:
    """Who has a key. tenant: whose requests it sends; of an operator, whose entries are meant unless another tenant is
    named."""

    tenant: str = "default"
    role: Role = Role.CLIENT


@dataclass(frozen=True)
class NamespaceRules:
    """Of requests to a namespace. ttl_seconds: longest lifetime of their answers; None: that of the tiers. cached: else
    they go past the cache, both ways. keeps_streams: where the gateway keeps any. rungs: who
    may answer in place of the backend; None: anybody."""

    key_rules: KeyRules = field(default_factory=KeyRules)
    ttl_seconds: float | None = None
    cached: bool = True
    keeps_streams: bool = False
    rungs: tuple[Rung, ...] | None = None


@dataclass(frozen=True)
class GatewaySettings:
    """upstream: where the backend is, with or without /v1 at its end; or where several are that answer alike.
    upstream_key: sent to them in place of the clients'. keys: hash of an API key to who has it. Where no client has
    one, everybody is a client, and "default"; where no viewer or operator has one, the endpoints under /v1/cache answer
    this machine only, and /metrics everybody.

    rules, namespaces: of namespaces by name or beginning, as in `ByName`; rules: of those that are not named.

    deadline_seconds: from a request to its whole answer, or to the beginning of a stream. idle_seconds: without a byte
    from the backend. connections: to a backend at once; more requests wait for one of them. health_seconds: between two
    looks at how each of several backends is.
    """

    upstream: str | Sequence[str] = field(repr=False)
    upstream_key: str | None = field(default=None, repr=False)
    keys: Mapping[str, KeyHolder] = field(default_factory=dict, repr=False)
    rules: NamespaceRules = field(default_factory=NamespaceRules)
    namespaces: Mapping[str, NamespaceRules] = field(default_factory=dict)
    largest_body_bytes: int = 16 * 2**20
    deadline_seconds: float = 600.0
    connect_seconds: float = 5.0
    idle_seconds: float = 300.0
    connections: int = 1_000
    health_seconds: float = 5.0
    warming: WarmingSettings = field(default_factory=WarmingSettings)
    _rules: ByName[NamespaceRules] = field(init=False, repr=False, compare=False)
    _roles: frozenset[Role] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.upstreams:
            raise InputError("upstream: got an empty list, expected at least one URL")
        for url in self.upstreams:
            parts = urlsplit(url)
            if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
                raise InputError(f"upstream: got {shown_url(url)!r}, expected a URL such as http://127.0.0.1:8100")
        for digest, holder in self.keys.items():
            if not HASH.fullmatch(digest):
                raise InputError("keys: got a hash of another form, expected 64 digits of SHA-256")
            partition_of(holder.tenant)
        for name in LIMITS:
            if not getattr(self, name) > 0:
                raise InputError(f"{name}: got {getattr(self, name)}, expected above 0")
        object.__setattr__(self, "_rules", ByName(self.namespaces, self.rules))
        object.__setattr__(self, "_roles", frozenset(holder.role for holder in self.keys.values()))

    def rules_of(self, namespace: str) -> NamespaceRules:
        return self._rules.of(namespace)

    def asks_for(self, *roles: Role) -> bool:
        """Whether anybody has a key of one of these roles, so that all need one."""
        return not self._roles.isdisjoint(roles)

    @property
    def upstreams(self) -> tuple[str, ...]:
        return listed(self.upstream)

    @property
    def base_urls(self) -> tuple[str, ...]:
        """Of the backends, without /v1."""
        return tuple(map(base_url, self.upstreams))

    @property
    def shown(self) -> str:
        """The backends' URLs."""
        return ", ".join(map(shown_url, self.upstreams))


def listed(upstream: str | Sequence[str]) -> tuple[str, ...]:
    """One or several."""
    return (upstream,) if isinstance(upstream, str) else tuple(upstream)


def base_url(url: str) -> str:
    """Without /v1."""
    return url.rstrip("/").removesuffix("/v1")


def shown_url(url: str) -> str:
    """Without a user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def key_hash(key: str) -> str:
    """What is kept of an API key. Keys are long and random, so a plain hash gives nothing away."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
