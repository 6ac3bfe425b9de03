"""From the settings to the log of streams, and to the namespaces whose streams it keeps."""

from __future__ import annotations

from collections.abc import Mapping

from api.gateway.config import NamespaceConfig, ServeConfig
from api.gateway.config_tiers import MEMORY
from api.gateway.feed import ending
from caches.errors import InputError
from caches.streams.memory_log import MemoryStreamLog
from caches.streams.redis_log import RedisStreamLog
from caches.streams.streams import Streams
from caches.tiers.redis_connection import Connection


def streams_of(config: ServeConfig, source: str, redis: Mapping[str, tuple[Connection, str]]) -> Streams | None:
    """None where none are kept. redis: connection and prefix of each tier there. Raises InputError for a place that is
    none."""
    section = config.streaming
    if not section.enabled:
        return None
    if section.place != MEMORY and section.place not in redis:
        places = ", ".join((MEMORY, *redis))
        raise InputError(f"{source}, streaming.place: got {section.place!r}, expected of {places}")
    if section.place == MEMORY:
        return Streams(MemoryStreamLog(section.rules, section.capacity_bytes), section.grace_seconds, ending)
    connection, prefix = redis[section.place]
    log = RedisStreamLog(connection, prefix, section.rules)
    return Streams(log, section.grace_seconds, ending, joins=section.join)


def keeps_streams(config: ServeConfig, namespace: NamespaceConfig | None) -> bool:
    """None: of the namespaces that are not named. What may not lie in a tier does not go there as a stream either."""
    section = config.streaming
    if not section.enabled:
        return False
    if namespace is None:
        return True
    return namespace.streams and (section.place == MEMORY or not namespace.tiers or section.place in namespace.tiers)
