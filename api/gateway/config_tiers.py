"""The sections of the gateway's settings that make tiers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError, field_validator, model_validator

from api.gateway.config_knobs import (
    LEAST_BYTES,
    LEAST_CASSANDRA_BYTES,
    LEAST_SERVER_BYTES,
    SECOND_HIT,
    SECTION,
    SHORT_NAME,
    AdmissionConfig,
    KeptConfig,
    LocalConfig,
    seconds,
    shards,
)
from api.gateway.config_semantic import SemanticConfig
from caches.errors import InputError
from caches.policies.catalog import EVICTIONS, admission_called, eviction_called
from caches.policies.settings import Admission, AdmitAll, Eviction
from envs.units import described

MEMORY, DISK, REDIS, CASSANDRA, SEMANTIC = "memory", "disk", "redis", "cassandra", "semantic"
RESERVED = frozenset({MEMORY, DISK, CASSANDRA, SEMANTIC, "partitions"})
Kept = TypeVar("Kept", bound=KeptConfig)
EvictionName = Literal["lru", "lru-2", "lru-3", "lfu", "lfu-lru", "gdsf", "s3-fifo", "sieve", "w-tinylfu"]


class MemoryConfig(AdmissionConfig, LocalConfig):
    """The tier in this process's own memory, `memory`. A hit in it is `hit-l1`."""

    eviction_policy: EvictionName = described(
        "lru", "Which entry goes when it is full, see the page on eviction.", "name"
    )
    eviction_policies: tuple[EvictionName, ...] | None = described(
        None, "What that can be changed to at run time; not set: any of the page on eviction.", "list"
    )

    @model_validator(mode="after")
    def _one_that_can_be_had(self) -> MemoryConfig:
        """Who may come back to what it began with names it too."""
        if self.eviction_policies is not None and self.eviction_policy not in self.eviction_policies:
            raise ValueError(f"eviction_policies with {self.eviction_policy}, the eviction_policy that it begins with")
        return self

    @property
    def offered_policies(self) -> tuple[str, ...]:
        return tuple(EVICTIONS) if self.eviction_policies is None else self.eviction_policies

    @property
    def eviction(self) -> Eviction:
        return eviction_called(self.eviction_policy)

    @property
    def judged_by(self) -> Admission:
        """The rule that the tier itself keeps; the second hit is kept where it is asked."""
        return admission_called(self.admission or "all") if self.admission != SECOND_HIT else AdmitAll()


class DiskConfig(KeptConfig):
    """A tier in a file, `disk`, for a gateway that keeps what it knows without a Redis. A hit in it is `hit-l2`."""

    enabled: bool = described(True, "Whether there is one.", "")
    path: Path | None = described(
        None,
        "The file, made where there is none; it holds answers. Not set: one in the user's cache folder, for each "
        "backend; beside a tier in Redis or Cassandra none.",
        "path",
    )
    slow_seconds: float = seconds(1.0, "A lookup that takes longer is given up, and the tier left alone for a while.")


class RedisConfig(KeptConfig):
    """A tier in Redis that gateways share. Write `[tiers.redis]` for one tier of that name, or `[tiers.redis.NAME]` for
    each of several, which namespaces choose from. A hit in it is `hit-l2`."""

    url: str | None = described(None, "Server, Sentinel or Cluster, see the page on the live cache.", "URL", repr=False)
    url_env: str | None = described(None, "Environment variable with the URL, if there is a password in it.", "name")
    mode: Literal["index", "server"] = described(
        "index",
        "index: a byte budget of our own, on a server that others may use. server: the server's own memory limit, on a "
        "server that is the cache's alone; it has to be there when the gateway starts.",
        "name",
    )
    eviction_policy: EvictionName = described(
        "lru", "Which entry goes when it is full: in the index mode lru, in the server mode lru or lfu.", "name"
    )
    slow_seconds: float = seconds(0.2, "A lookup that takes longer is given up, and the tier left alone for a while.")
    prefix: str | None = described(
        None,
        'Of all keys. Not set: "setpoint", and "setpoint-NAME" for a tier of another name than redis.',
        "name",
        pattern=SHORT_NAME.pattern + "$",
    )
    shards: int = shards("In the index mode: ")

    @model_validator(mode="after")
    def _has_a_place(self) -> RedisConfig:
        if (self.url is None) == (self.url_env is None):
            raise ValueError("either url or url_env")
        offered = ("lru",) if self.mode == "index" else ("lru", "lfu")
        if self.eviction_policy not in offered:
            raise ValueError(f"eviction_policy of {', '.join(offered)} in the {self.mode} mode")
        return self

    @property
    def server_policy(self) -> Literal["lru", "lfu"]:
        """As the server approximates it."""
        return "lfu" if self.eviction_policy == "lfu" else "lru"

    @property
    def _least(self) -> int:
        """A server of our own takes memory for itself and for connections."""
        return LEAST_BYTES if self.mode == "index" else LEAST_SERVER_BYTES


class CassandraConfig(KeptConfig):
    """A tier in Cassandra that gateways share, `cassandra`, where the section says where; it needs the extra
    `cassandra`. A hit in it is `hit-l2`. Gateways with one keyspace have one cache. `highest_ttl_seconds` also bounds
    how long its disks keep what was evicted."""

    url: str | None = described(
        None, "Such as cassandra://host:9042,other:9042/keyspace?datacenter=NAME; cassandras: TLS.", "URL", repr=False
    )
    url_env: str | None = described(None, "Environment variable with the URL, if there is a password in it.", "name")
    slow_seconds: float = seconds(1.0, "A lookup that takes longer is given up, and the tier left alone for a while.")

    @model_validator(mode="after")
    def _has_a_place(self) -> CassandraConfig:
        """Only a section that says nothing may do without."""
        if self.model_fields_set and (self.url is None) == (self.url_env is None):
            raise ValueError("either url or url_env")
        return self

    @property
    def is_there(self) -> bool:
        """Whether there is such a tier."""
        return self.url is not None or self.url_env is not None

    @property
    def _least(self) -> int:
        """64 KiB for each slice that the capacity is shared out to: no entry can be larger than a share."""
        return LEAST_CASSANDRA_BYTES


class TiersConfig(BaseModel):
    """The tiers, from the top: memory, disk, those in Redis, the one in Cassandra, the semantic one."""

    model_config = SECTION

    memory: MemoryConfig = MemoryConfig()
    disk: DiskConfig = DiskConfig()
    redis: dict[str, RedisConfig] = described({}, "Sections of tiers in Redis.", "table")
    cassandra: CassandraConfig = CassandraConfig()
    semantic: SemanticConfig = SemanticConfig()

    @field_validator("redis", mode="before")
    @classmethod
    def _one_or_several(cls, given: Any) -> Any:
        """`[tiers.redis]` with the keys of a tier is one of that name."""
        if (
            not isinstance(given, dict)
            or not given
            or all(isinstance(one, dict | RedisConfig) for one in given.values())
        ):
            for name in given if isinstance(given, dict) else ():
                if name in RESERVED or not SHORT_NAME.fullmatch(name):
                    raise ValueError(
                        "names of tiers: 1 to 32 of a-z 0-9 _ -, other than memory, disk, cassandra, semantic, "
                        "partitions"
                    )
            return given
        return {REDIS: given}


def with_redis(tiers: TiersConfig, url: str | None, cache_size: int | None, ttl_seconds: float | None) -> TiersConfig:
    """With what options say of the tier in Redis, over what the file says of it; None stands for an option that was not
    given. Lifetimes are those of all tiers in Redis. Raises InputError where the options fit no tier, or several."""
    several = len(tiers.redis) > 1
    if (url is not None or cache_size is not None) and several:
        raise InputError(f"--redis, --redis-bytes: got the tiers {', '.join(tiers.redis)} in the file, expected one")
    if url is None and not tiers.redis:
        if cache_size is not None:
            raise InputError("--redis-bytes: got a capacity, expected --redis or a section [tiers.redis] beside it")
        return tiers
    said: dict[str, Any] = {"cache_size": cache_size, "ttl_seconds": ttl_seconds}
    update = {name: value for name, value in said.items() if value is not None}
    if url is not None:
        update |= {"url": url, "url_env": None}
    there = tiers.redis or {REDIS: RedisConfig(url=url)}
    options = "--redis, --redis-bytes, --ttl"
    changed = {name: _changed(section, update, options) for name, section in there.items()}
    return tiers.model_copy(update={"redis": changed})


def with_cassandra(tiers: TiersConfig, ttl_seconds: float | None) -> TiersConfig:
    """With the lifetime that an option says, over that of the tier in Cassandra in the file, where there is one. Raises
    InputError where it does not fit."""
    if ttl_seconds is None or not tiers.cassandra.is_there:
        return tiers
    changed = _changed(tiers.cassandra, {"ttl_seconds": ttl_seconds}, "--ttl")
    return tiers.model_copy(update={"cassandra": changed})


def _changed(section: Kept, update: dict[str, Any], options: str) -> Kept:
    try:
        return type(section)(**(section.model_dump() | update))
    except ValidationError as error:
        told = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise InputError(f"{options}: got what does not fit the file, expected {told}") from None
