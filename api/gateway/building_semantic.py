"""From the settings of a gateway to its semantic tier, in this process or shared, and to what checks its hits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial

from api.gateway.building_candidates import lemmas_by_name, make_rows
from api.gateway.config import ServeConfig
from api.gateway.config_semantic import SemanticConfig
from api.gateway.config_tiers import SEMANTIC
from api.gateway.verifying import said
from caches.errors import InputError
from caches.keys.by_name import ByName
from caches.keys.request_key import Partition, RequestKey
from caches.place import Place
from caches.semantic.checking import Budget, HitChecker
from caches.semantic.embedder import Embedder
from caches.semantic.embedder_catalog import make_embedder
from caches.semantic.matching import Matching, MatchingOptions
from caches.semantic.redis_entries import NotedEntries
from caches.semantic.same_answer import SameAnswer, by_facts, by_similarity, exact, normalised
from caches.semantic.shared import SharedOptions, SharedSemanticTier
from caches.semantic.store_catalog import make_vectors
from caches.semantic.tier import SemanticOptions, SemanticTier
from caches.semantic.verification import Verification
from caches.tiers.lease import Lease
from caches.tiers.redis_connection import connect
from caches.tiers.redis_index import RedisIndexOptions
from caches.tiers.redis_lease import RedisLease

SOCKET_SECONDS = 0.5  # of servers at least: housekeeping may take longer than a lookup
SEED = 0
Secret = Callable[[str | None, str], str | None]
SideOf = Callable[[RequestKey], Hashable]


@dataclass(frozen=True)
class SemanticParts:
    """lease: of the server with the entries, where they are shared."""

    tier: SemanticTier | SharedSemanticTier
    place: Place
    checker: HitChecker
    embedder: Embedder
    lease: Lease | None = None


def semantic_parts(
    config: ServeConfig, source: str, secret: Secret, side_of: SideOf | None = None
) -> SemanticParts | None:
    """None where it is turned off. secret: what an environment variable holds that a key names. side_of: as of
    MatchingOptions. Raises InputError."""
    section = config.tiers.semantic
    if not section.enabled:
        return None
    embedder = _embedder(section, source, secret)
    stated = {name: namespace.similarity_threshold for name, namespace in config.namespaces.items()}
    options = MatchingOptions(
        similarity_threshold=section.similarity_threshold,
        namespace_thresholds=ByName(stated, None),
        lowest_threshold=section.lowest_threshold,
        highest_threshold=section.highest_threshold,
        embed_timeout_seconds=section.embedder_timeout_seconds,
        most_edits=section.most_edits,
        side_of=side_of,
    )
    embedding = section.embedder_timeout_seconds if embedder.slow else None
    lemmas = lemmas_by_name(config, source)
    if not section.shared:
        options_here = SemanticOptions(**vars(options), make_rows=make_rows(section, embedder, source), lemmas=lemmas)
        local = SemanticTier(embedder, section.knobs, SEMANTIC, options_here)
        return SemanticParts(local, Place(local, embedding, level=3), _checker(config, local, embedder), embedder)
    tier, lease = _shared_tier(section, options, embedder, source, secret)
    place = Place(tier, section.slow_seconds + (embedding or 0.0), level=3)
    return SemanticParts(tier, place, _checker(config, tier, embedder), embedder, lease)


def _embedder(section: SemanticConfig, source: str, secret: Secret) -> Embedder:
    key = secret(section.embedder_key_env, "tiers.semantic.embedder_key_env")
    try:
        return make_embedder(
            section.embedder,
            section.embedder_model,
            section.embedder_dimensions,
            key,
            section.embedder_timeout_seconds,
        )
    except InputError as error:
        raise InputError(f"{source}, tiers.semantic: {error}") from error


def _shared_tier(
    section: SemanticConfig, options: MatchingOptions, embedder: Embedder, source: str, secret: Secret
) -> tuple[SharedSemanticTier, Lease]:
    entries_url = section.entries or secret(section.entries_env, "tiers.semantic.entries_env") or ""
    vectors_url = section.vectors or secret(section.vectors_env, "tiers.semantic.vectors_env") or entries_url
    token = secret(section.vectors_token_env, "tiers.semantic.vectors_token_env")
    timeout, prefix, field = max(section.slow_seconds, SOCKET_SECONDS), section.prefix, "entries"
    try:
        connection = connect(entries_url, timeout)
        field = "vectors"
        vectors = make_vectors(vectors_url, SEMANTIC, prefix, section.vector_form, token, timeout)
    except InputError as error:
        raise InputError(f"{source}, tiers.semantic.{field}: {error}") from error
    entries = NotedEntries(connection, section.knobs, SEMANTIC, RedisIndexOptions(prefix, section.shards))
    tier = SharedSemanticTier(embedder, entries, vectors, SEMANTIC, SharedOptions(**vars(options)))
    return tier, RedisLease(connection, prefix)


def _checker(config: ServeConfig, tier: Matching, embedder: Embedder) -> HitChecker:
    section = config.tiers.semantic
    budgets = ByName(
        {
            name: Budget(section.wrong_hit_budget if one.wrong_hit_budget is None else one.wrong_hit_budget)
            for name, one in config.namespaces.items()
        },
        Budget(section.wrong_hit_budget),
    )
    same: Mapping[str, SameAnswer] = {
        "similar": by_similarity(embedder, section.same_answer_similarity),
        "facts": by_facts(embedder, section.same_answer_similarity),
        "normalised": normalised,
        "exact": exact,
    }
    verification = Verification(section.verified_share, SEED)
    return HitChecker(tier, verification, same[section.same_answer], said, partial(_budget_of, budgets))


def _budget_of(budgets: ByName[Budget], partition: Partition) -> Budget:
    return budgets.of(partition.namespace)
