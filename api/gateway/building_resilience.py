"""From the settings to what guards a gateway's backend, and to the tier of answers past their lifetime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from api.gateway.config_knobs import LEAST_BYTES, LONGEST_TTL_SECONDS
from api.gateway.config_resilience import ResilienceConfig
from api.gateway.config_tiers import DISK, MEMORY, TiersConfig
from api.gateway.resilience import Fallback, Resilience
from api.gateway.settings import GatewaySettings
from api.gateway.upstream import Client, upstream_client
from caches.breaker import BreakerRule
from caches.errors import InputError
from caches.guards.classes import PromptClasses
from caches.guards.dependencies import Dependencies, DependentBreaker
from caches.guards.health import HasCondition, OfBreaker, Together
from caches.guards.ladder import Ladder, Rung
from caches.guards.negatives import Negatives
from caches.guards.token_rate import TokenRate
from caches.knobs import Knob, KnobSpace
from caches.place import Place
from caches.tiers.disk import DiskTier
from caches.tiers.memory import MemoryTier
from caches.tiers.redis_connection import Connection
from caches.tiers.redis_index import RedisIndexOptions, RedisIndexTier
from caches.tiers.stale import StaleTier
from caches.tiers.tier import Tier

STALE, UPSTREAM, FALLBACK = "stale", "upstream", "fallback"
BESIDE = ".stale"  # what a file or prefix of this tier is called after


def stale_place(
    config: ResilienceConfig, tiers: TiersConfig, redis: Mapping[str, tuple[Connection, str]]
) -> Place | None:
    """The last place of a stack; None where no such answers are kept. redis: connections and prefixes by tier. Raises
    InputError."""
    if not config.enabled or config.stale_grace_seconds is None:
        return None
    space = _space(config.stale_size, _retention_seconds(config, tiers))
    kept, slow_seconds = _kept(config.stale_in, space, tiers, redis)
    return Place(StaleTier(kept, config.stale_grace_seconds), slow_seconds, level=3)


def stale_stated(config: ResilienceConfig, tiers: TiersConfig) -> dict[str, float]:
    """The knobs of that tier, which hold at each start: it may lie where an earlier one left others."""
    return {"cache_size": float(config.stale_size), "ttl_seconds": _retention_seconds(config, tiers)}


def resilience_of(
    config: ResilienceConfig,
    settings: GatewaySettings,
    client: Client,
    places: Mapping[str, Place],
    secret_of: Callable[[str | None, str], str | None],
    ticks: Callable[[], float],
) -> Resilience | None:
    """None where it is off. places: by the names of their tiers; those that depend on something get breakers that know.
    secret_of: the value of an environment variable, and the key that names it. Raises InputError."""
    if not config.enabled:
        return None
    fallback = _fallback(config, settings, secret_of, ticks)
    nodes = _nodes(client, fallback, places)
    depends = Dependencies(config.depends_on, tuple(nodes))
    for name, place in places.items():
        on = depends.all_of(name)
        if on:
            place.breaker = DependentBreaker(BreakerRule(), [nodes[one] for one in on])
            nodes[name] = OfBreaker(place.breaker)
    if fallback is not None:
        fallback = replace(fallback, on=(nodes[FALLBACK], *(nodes[one] for one in depends.all_of(FALLBACK))))
    rate = config.token_rate
    limited = rate.whole is not None or rate.tenant is not None
    return Resilience(
        Ladder(config.table, _there(config)),
        PromptClasses(config.class_rules()),
        TokenRate(rate.whole, rate.tenant, ticks()) if limited else None,
        rate.bytes_per_token,
        rate.output_tokens,
        None if config.negative_seconds is None else Negatives(config.negative_seconds),
        fallback,
        config.template,
        config.patience_seconds,
        nodes,
    )


def _there(config: ResilienceConfig) -> set[Rung]:
    said = {
        Rung.STALE: config.stale_grace_seconds,
        Rung.FALLBACK: config.fallback_model,
        Rung.TEMPLATE: config.template,
        Rung.UPSTREAM: "",
    }
    return {rung for rung, value in said.items() if value is not None}


def _nodes(client: Client, fallback: Fallback | None, places: Mapping[str, Place]) -> dict[str, HasCondition]:
    nodes: dict[str, HasCondition] = {name: OfBreaker(place.breaker) for name, place in places.items()}
    nodes[UPSTREAM] = Together([backend.health for backend in client.balanced.backends])
    if fallback is not None:
        there = client if fallback.client is None else fallback.client
        nodes[FALLBACK] = Together([backend.health for backend in there.balanced.backends])
    return nodes


def _fallback(
    config: ResilienceConfig,
    settings: GatewaySettings,
    secret_of: Callable[[str | None, str], str | None],
    ticks: Callable[[], float],
) -> Fallback | None:
    model, url = config.fallback_model, config.fallback_upstream
    if model is None:
        return None
    if url is None:
        return Fallback(model, model, None, None)
    try:
        own = replace(settings, upstream=url, upstream_key=secret_of(config.fallback_key_env, "fallback_key_env"))
    except InputError as error:
        raise InputError(f"fallback_{error}") from error
    return Fallback(model, f"{model} at {own.shown}", upstream_client(own, config.health, ticks), own)


def _kept(
    where: str, space: KnobSpace, tiers: TiersConfig, redis: Mapping[str, tuple[Connection, str]]
) -> tuple[Tier, float | None]:
    """And how long it may take; None for what answers at once."""
    if where == MEMORY:
        return MemoryTier(space, STALE), None
    if where == DISK:
        if tiers.disk.path is None or not tiers.disk.enabled:
            raise InputError("stale_in: got disk, expected a tier on disk beside it")
        path = Path(f"{tiers.disk.path}{BESIDE}")
        return DiskTier(path, space, STALE), tiers.disk.slow_seconds
    if where not in redis:
        raise InputError(f"stale_in: got {where!r}, expected of {', '.join((MEMORY, DISK, *redis))}")
    connection, prefix = redis[where]
    options = RedisIndexOptions(prefix=prefix + BESIDE, shards=tiers.redis[where].shards)
    return RedisIndexTier(connection, space, STALE, options), tiers.redis[where].slow_seconds


def _retention_seconds(config: ResilienceConfig, tiers: TiersConfig) -> float:
    """The longest lifetime that is stated, and the grace."""
    stated = (tiers.memory.knobs, tiers.disk.knobs, tiers.cassandra.knobs, *(one.knobs for one in tiers.redis.values()))
    return max(knobs.ttl_seconds.default for knobs in stated) + (config.stale_grace_seconds or 0.0)


def _space(size: int, retention_seconds: float) -> KnobSpace:
    longest = max(retention_seconds, LONGEST_TTL_SECONDS)
    return KnobSpace(
        Knob("cache_size", "bytes", min(LEAST_BYTES, size / 2), 2.0 * size, size, 0.1, "log"),
        Knob("ttl_seconds", "seconds", 1.0, 2.0 * longest, retention_seconds, 0.1, "log"),
        Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear"),
    )
