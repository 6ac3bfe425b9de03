"""From the settings of a gateway to what it is made of: tiers, stacks of namespaces, rules, and who has which key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from api.access.audit import Audit
from api.gateway.access_log import LevelsOf
from api.gateway.building_freshness import epochs_of, freshness_of, retention_of
from api.gateway.building_resilience import STALE, resilience_of, stale_place
from api.gateway.building_semantic import SOCKET_SECONDS, SemanticParts, semantic_parts
from api.gateway.building_streams import keeps_streams, streams_of
from api.gateway.config import NamespaceConfig, ServeConfig
from api.gateway.config_access_log import access_log_of
from api.gateway.config_tiers import CASSANDRA, DISK, MEMORY, REDIS, SEMANTIC, CassandraConfig, RedisConfig
from api.gateway.config_tracing import TracingConfig
from api.gateway.config_warming import warming_of
from api.gateway.key_levels import levels_by
from api.gateway.service import GatewayService
from api.gateway.settings import GatewaySettings, KeyHolder, NamespaceRules
from api.gateway.stage_budget import budget_of, limited
from api.gateway.stages import Stages
from api.gateway.tracing import tracing_of
from api.gateway.upstream import upstream_client
from caches.clocks import Clocks
from caches.errors import InputError
from caches.keys.by_name import ByName
from caches.keys.request_key import RequestKey
from caches.knobs import KnobSpace
from caches.place import Place
from caches.routing import Routing
from caches.semantic.shared import SharedSemanticTier
from caches.semantic.tier import SemanticTier
from caches.stack import Stack
from caches.target import Arm
from caches.tiers.cassandra import CassandraTier
from caches.tiers.cassandra_connection import CassandraConnection
from caches.tiers.disk import DiskTier
from caches.tiers.lease import Lease
from caches.tiers.memory import MemoryTier
from caches.tiers.redis_connection import Connection, connect
from caches.tiers.redis_index import RedisIndexOptions, RedisIndexTier
from caches.tiers.redis_lease import RedisLease
from caches.tiers.redis_server import RedisServerOptions, RedisServerTier
from caches.tiers.retaining import retained
from caches.tiers.split import SplitTier
from caches.tiers.tier import Tier
from tuner.config_loader import secret
from tuner.router import assigner

PREFIX = "setpoint"
Made = TypeVar("Made")


@dataclass(frozen=True)
class Built:
    """A gateway before it is an application. places: by the names of their tiers, from the top."""

    config: ServeConfig
    service: GatewayService
    places: Mapping[str, Place]
    semantic: SemanticTier | SharedSemanticTier | None


@dataclass(frozen=True)
class _Parts:
    """leases: of the tiers that have one. redis: connection and prefix of the tiers in one. retention: how many times
    their lifetime the tiers keep answers. admissions: what namespaces say of it."""

    places: dict[str, Place] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    redis: dict[str, tuple[Connection, str]] = field(default_factory=dict)
    retention: float = 1.0
    admissions: Mapping[str, str | None] = field(default_factory=dict)


def built(config: ServeConfig, source: str, environ: Mapping[str, str], clocks: Clocks = Clocks()) -> Built:
    """Nothing is connected yet. source: where the settings come from, for errors. Raises InputError."""
    settings = _settings(config, source, environ)
    parts = _Parts(retention=retention_of(config, source), admissions=_admissions(config))
    tuned = _add_tiers(parts, config, source, environ)
    semantic = _add_semantic(parts, config, source, environ, tuned)
    stale = _of_resilience(source, lambda: stale_place(config.resilience, config.tiers, parts.redis))
    if stale is not None:
        parts.places[STALE] = stale
    stages = _stages(config.tracing, parts)
    look = Place.lookup if stages is None else stages.look
    streams = streams_of(config, source, parts.redis)
    epochs = epochs_of(config, parts.redis, parts.retention)
    freshness = freshness_of(config, source, None if semantic is None else semantic.embedder)
    asked = None if freshness is None else freshness.freshness
    make = partial(Stack, clock=clocks.unix, look=look, streams=streams, freshness=asked, epochs=epochs.epochs)
    stacks = _stacks(config, tuple(parts.places), source, partial(_stack, parts, make))
    log = access_log_of(config.access_log, lambda name, key: secret(name, f"{source}, access_log.{key}", environ))
    checker = None if semantic is None else semantic.checker
    client = upstream_client(settings, config.resilience.health, clocks.ticks)
    hidden = partial(_secret, f"{source}, resilience.", environ)
    resilience = _of_resilience(
        source,
        lambda: resilience_of(config.resilience, settings, client, parts.places, hidden, clocks.ticks),
    )
    service = GatewayService(
        settings,
        Routing(stacks, clocks.unix),
        client,
        clocks,
        checker=checker,
        access_log=log,
        levels_of=_levels(config, source) if config.access_log.key_levels else None,
        tuned=tuned,
        streams=streams,
        stages=stages,
        resilience=resilience,
        freshness=freshness,
        epochs=epochs,
        audit=_audit(config, clocks),
    )
    return Built(config, service, parts.places, None if semantic is None else semantic.tier)


def _add_semantic(
    parts: _Parts, config: ServeConfig, source: str, environ: Mapping[str, str], tuned: SplitTier | None
) -> SemanticParts | None:
    semantic = semantic_parts(
        config,
        source,
        lambda name, key: secret(name, f"{source}, {key}", environ),
        None if tuned is None else partial(_arm, _tuned_namespaces(config), tuned),
    )
    if semantic is not None:
        parts.places[SEMANTIC] = semantic.place
        if semantic.lease is not None:
            parts.leases[SEMANTIC] = semantic.lease
    return semantic


def _add_tiers(parts: _Parts, config: ServeConfig, source: str, environ: Mapping[str, str]) -> SplitTier | None:
    """All but the one that answers by meaning. Returns the tier that is tuned."""
    memory, disk = config.tiers.memory, config.tiers.disk
    policies: Any = {
        "eviction": memory.eviction,
        "admission": memory.judged_by,
        "policies": memory.offered_policies,
    }
    split = partial(SplitTier, memory.knobs, assigner, MEMORY, retention=parts.retention, **policies)
    tuned = split() if config.tuning.enabled else None
    make = partial(MemoryTier, name=MEMORY, **policies)
    parts.places[MEMORY] = Place(
        tuned or retained(make, memory.knobs, parts.retention), admission=memory.doorkeeper(parts.admissions)
    )
    if disk.path is not None and disk.enabled:
        tier = retained(partial(DiskTier, disk.path, name=DISK), disk.knobs, parts.retention)
        parts.places[DISK] = Place(tier, disk.slow_seconds, admission=disk.doorkeeper(parts.admissions))
    for name, section in config.tiers.redis.items():
        _add_redis(parts, name, section, source, environ)
    if config.tiers.cassandra.is_there:
        _add_cassandra(parts, config.tiers.cassandra, source, environ)
    return tuned


def _levels(config: ServeConfig, source: str) -> LevelsOf:
    try:
        return levels_by(config.access_log.key_language)
    except InputError as error:
        raise InputError(f"{source}, access_log.key_language: {error}") from error


def _secret(place: str, environ: Mapping[str, str], name: str | None, key: str) -> str | None:
    return secret(name, f"{place}{key}", environ)


def _audit(config: ServeConfig, clocks: Clocks) -> Audit | None:
    path = config.gateway.audit_log
    return None if path is None else Audit(path, clocks.unix, "gateway.audit_log")


def _admissions(config: ServeConfig) -> Mapping[str, str | None]:
    """What namespaces say of it."""
    return {name: section.admission for name, section in config.namespaces.items()}


def _tuned_namespaces(config: ServeConfig) -> ByName[bool]:
    """Whether a namespace uses the tuned tier."""
    named = {name: not section.tiers or MEMORY in section.tiers for name, section in config.namespaces.items()}
    return ByName(named, default=True)


def _arm(uses: ByName[bool], tuned: SplitTier, key: RequestKey) -> Arm | None:
    """None in a namespace that does not use the tuned tier."""
    return tuned.arm_of(key) if uses.of(key.partition.namespace) else None


def _of_resilience(source: str, make: Callable[[], Made]) -> Made:
    try:
        return make()
    except InputError as error:
        raise InputError(f"{source}, resilience.{error}") from error


def _settings(config: ServeConfig, source: str, environ: Mapping[str, str]) -> GatewaySettings:
    told = config.gateway
    if told.upstream is None:
        raise InputError("gateway.upstream: not set, expected the URL of a backend, there or as --upstream")
    return GatewaySettings(
        upstream=told.upstream,
        upstream_key=secret(told.upstream_key_env, f"{source}, gateway.upstream_key_env", environ),
        keys={key.sha256: KeyHolder(key.tenant, key.role) for key in told.keys},
        rules=NamespaceRules(NamespaceConfig().key_rules(), keeps_streams=keeps_streams(config, None)),
        namespaces={name: _rules(config, name, source) for name in config.namespaces},
        largest_body_bytes=told.largest_body_bytes,
        deadline_seconds=told.deadline_seconds,
        connect_seconds=told.connect_seconds,
        idle_seconds=told.idle_seconds,
        connections=told.connections,
        health_seconds=told.health_seconds,
        warming=warming_of(config.warming),
    )


def _rules(config: ServeConfig, name: str, source: str) -> NamespaceRules:
    section = config.namespaces[name]
    try:
        keeps = keeps_streams(config, section)
        return NamespaceRules(section.key_rules(), section.ttl_seconds, section.tiers != (), keeps, section.degrade)
    except InputError as error:
        raise InputError(f"{source}, namespaces.{name}.{error}") from error


def _add_redis(parts: _Parts, name: str, section: RedisConfig, source: str, environ: Mapping[str, str]) -> None:
    place = f"{source}, tiers.redis" + ("" if name == REDIS else f".{name}")
    url = section.url or secret(section.url_env, f"{place}.url_env", environ) or ""
    prefix = section.prefix or (PREFIX if name == REDIS else f"{PREFIX}-{name}")
    try:
        connection = connect(url, max(section.slow_seconds, SOCKET_SECONDS))
        if section.mode == "index":
            options = RedisIndexOptions(prefix=prefix, shards=section.shards)
            make: Callable[[KnobSpace], Tier] = partial(RedisIndexTier, connection, name=name, options=options)
        else:
            served = RedisServerOptions(prefix=prefix, policy=section.server_policy)
            make = partial(RedisServerTier, connection, name=name, options=served)
    except InputError as error:
        raise InputError(f"{place}: {error}") from error
    tier = retained(make, section.knobs, parts.retention)
    parts.places[name] = Place(tier, section.slow_seconds, admission=section.doorkeeper(parts.admissions))
    parts.leases[name] = RedisLease(connection, prefix)
    parts.redis[name] = (connection, prefix)


def _add_cassandra(parts: _Parts, section: CassandraConfig, source: str, environ: Mapping[str, str]) -> None:
    place = f"{source}, tiers.cassandra"
    url = section.url or secret(section.url_env, f"{place}.url_env", environ) or ""
    try:
        connection = CassandraConnection(url, max(section.slow_seconds, SOCKET_SECONDS))
    except InputError as error:
        raise InputError(f"{place}: {error}") from error
    tier = retained(partial(CassandraTier, connection, name=CASSANDRA), section.knobs, parts.retention)
    parts.places[CASSANDRA] = Place(tier, section.slow_seconds, admission=section.doorkeeper(parts.admissions))


def _stages(section: TracingConfig, parts: _Parts) -> Stages | None:
    tracing = tracing_of(section)
    if tracing is None:
        return None
    return Stages(tracing, budget_of(section.objective_ms / 1000.0, list(map(limited, parts.places.values()))))


def _stacks(
    config: ServeConfig, every: tuple[str, ...], source: str, stack_of: Callable[[tuple[str, ...]], Stack]
) -> ByName[Stack]:
    """One stack for each set of tiers, however many namespaces use it. Who names none asks none: it has no stack.
    every: all tiers, from the top."""
    chosen: dict[str, tuple[str, ...]] = {}
    for name, section in config.namespaces.items():
        for tier in section.tiers or ():
            if tier not in every:
                raise InputError(f"{source}, namespaces.{name}.tiers: got {tier!r}, expected of {', '.join(every)}")
        chosen[name] = tuple(tier for tier in every if tier in section.tiers) if section.tiers else every
    stacks = {tiers: stack_of(tiers) for tiers in {every, *chosen.values()}}
    return ByName({name: stacks[tiers] for name, tiers in chosen.items()}, stacks[every])


def _stack(parts: _Parts, make: Callable[..., Stack], tiers: tuple[str, ...]) -> Stack:
    lease = next((parts.leases[tier] for tier in tiers if tier in parts.leases), None)
    return make([parts.places[tier] for tier in tiers], lease=lease)
