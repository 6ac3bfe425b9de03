"""From the settings of a gateway to what keeps its answers fresh: schedules, epochs and where they are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from api.gateway.config import ServeConfig
from api.gateway.config_freshness import FreshnessConfig
from api.gateway.config_knobs import KeptConfig, TtlLimits
from api.gateway.config_tiers import CASSANDRA, DISK, REDIS
from api.gateway.freshening import FreshnessParts
from api.gateway.verifying import said
from caches.errors import InputError
from caches.freshness.epoch_file import EpochFile
from caches.freshness.epoch_keeping import EpochKeeping
from caches.freshness.epoch_redis import RedisEpochs
from caches.freshness.epochs import Epochs, EpochStore
from caches.freshness.freshness import Freshness, Rule
from caches.freshness.lifetime import Bounded
from caches.freshness.load_meter import LoadMeter
from caches.freshness.looks_file import LooksFile
from caches.freshness.schedules import FIXED, HAZARD, schedule_of
from caches.freshness.shift import Drift
from caches.keys.by_name import ByName
from caches.semantic.embedder import Embedder
from caches.semantic.same_answer import SameAnswer, by_facts, by_similarity, exact, normalised
from caches.tiers.redis_connection import Connection

EPOCHS, LOOKS = ".epochs", ".looks"  # after the name of the tier's file


def schedules_of(config: ServeConfig) -> ByName[str]:
    """The name of each namespace's."""
    return ByName({name: section.freshness for name, section in config.namespaces.items()}, FIXED)


def retention_of(config: ServeConfig, source: str) -> float:
    """How many times their lifetime tiers keep answers. Raises InputError for a tier whose lifetime would then be read
    otherwise than it was written."""
    if all(name == FIXED for name in schedules_of(config).values()) or config.freshness.longest_share == 1.0:
        return 1.0
    disk, tiers = config.tiers.disk, config.tiers
    kept: dict[str, KeptConfig] = {}
    if disk.enabled and disk.path is not None:
        kept[DISK] = disk
    kept |= {REDIS if name == REDIS else f"{REDIS}.{name}": section for name, section in tiers.redis.items()}
    if tiers.cassandra.is_there:
        kept[CASSANDRA] = tiers.cassandra
    for name, section in kept.items():
        if section.ttl_seconds is None:
            raise InputError(
                f"{source}, tiers.{name}.ttl_seconds: not set, expected a lifetime where a namespace has a schedule: "
                "what was kept before is read as that of the longest_share"
            )
    return config.freshness.longest_share


def freshness_of(config: ServeConfig, source: str, embedder: Embedder | None) -> FreshnessParts | None:
    """None where nothing of it is asked for, so that requests cost nothing for it. embedder: of the semantic tier.
    Raises InputError."""
    section = config.freshness
    schedules = schedules_of(config)
    files = FreshnessConfig(epochs_file=section.epochs_file, looks_file=section.looks_file)
    if section == files and all(one == FIXED for one in schedules.values()):
        return None
    if section.on_shift != "off" and embedder is None:
        raise InputError(f"{source}, freshness.on_shift: got {section.on_shift!r}, expected a semantic tier beside it")
    drift = None if section.on_shift == "off" or embedder is None else Drift(embedder, said, section.shift_rule)
    rules = {name: _rule(one.freshness, section) for name, one in config.namespaces.items()}
    shortening = drift if section.on_shift == "shorten" else None
    load: LoadMeter[str] = LoadMeter(section.load_period_seconds)
    freshness = Freshness(ByName(rules, _rule(FIXED, section)), load, shortening)
    looks = _looks(config, freshness) if HAZARD in schedules.values() else None
    return FreshnessParts(section, freshness, _same(config, source, embedder), said, drift, looks)


def _looks(config: ServeConfig, freshness: Freshness) -> LooksFile | None:
    """What an earlier gateway measured is known from the start."""
    path = config.freshness.looks_file or _beside(config, LOOKS)
    if path is None:
        return None
    file = LooksFile(path)
    freshness.evidence.restore(file.read())
    return file


def epochs_of(config: ServeConfig, redis: Mapping[str, tuple[Connection, str]], retention: float) -> EpochKeeping:
    """redis: connection and prefix of each tier that lies in one."""
    stores: list[EpochStore] = [RedisEpochs(connection, prefix) for connection, prefix in redis.values()]
    file = config.freshness.epochs_file or _beside(config, EPOCHS)
    if file is not None:
        stores.append(EpochFile(file))
    tiers = config.tiers
    sections: list[TtlLimits] = [tiers.memory, tiers.disk, tiers.cassandra, tiers.semantic, *tiers.redis.values()]
    longest = max(section.highest_ttl_seconds for section in sections)
    return EpochKeeping(Epochs(retention * longest), stores)


def _beside(config: ServeConfig, ending: str) -> Path | None:
    disk = config.tiers.disk
    return disk.path.with_name(disk.path.name + ending) if disk.enabled and disk.path is not None else None


def _rule(name: str, section: FreshnessConfig) -> Rule:
    return Rule(name, Bounded(schedule_of(name, section.full_rounds, section.stale_budget), section.bounds))


def _same(config: ServeConfig, source: str, embedder: Embedder | None) -> SameAnswer:
    semantic = config.tiers.semantic
    name = config.freshness.same_answer or (semantic.same_answer if embedder is not None else "normalised")
    plain: dict[str, SameAnswer] = {"normalised": normalised, "exact": exact}
    if name in plain:
        return plain[name]
    if embedder is None:
        raise InputError(f"{source}, freshness.same_answer: got {name!r}, expected a semantic tier beside it")
    made: dict[str, Callable[[Embedder, float], SameAnswer]] = {"facts": by_facts, "similar": by_similarity}
    return made[name](embedder, semantic.same_answer_similarity)
