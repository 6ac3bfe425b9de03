"""From the settings of a gateway to what proposes answers by meaning: structures of vectors, and lemmas."""

from __future__ import annotations

from functools import cache, partial

from api.gateway.config import ServeConfig
from api.gateway.config_semantic import SemanticConfig
from caches.errors import InputError
from caches.keys.by_name import ByName
from caches.semantic.bucket_map import load_bucket_map
from caches.semantic.buckets import Buckets
from caches.semantic.embedder import Embedder
from caches.semantic.lemmas import Lemmas
from caches.semantic.rows import MakeRows
from caches.semantic.signature import Hyperplanes
from caches.semantic.signed_matrix import SignedMatrix


def make_rows(section: SemanticConfig, embedder: Embedder, source: str) -> MakeRows | None:
    """None for matrices and cells. Raises InputError, and Mismatch for a map of another embedder."""
    if section.neighbours == "signatures":
        planes = Hyperplanes(embedder.dimensions)
        return partial(SignedMatrix, planes=planes, radius=section.signature_bits)
    if section.bucket_map is None:
        return None
    try:
        found = load_bucket_map(section.bucket_map, embedder.name, embedder.dimensions)
    except InputError as error:
        raise InputError(f"{source}, tiers.semantic.bucket_map: {error}") from error
    return lambda _: Buckets(found, section.probed_buckets)


def lemmas_by_name(config: ServeConfig, source: str) -> ByName[Lemmas | None] | None:
    """Of each namespace; None where none has any. Raises InputError for a language without a dictionary."""
    section = config.tiers.semantic
    stated = {name: one.lemmas or section.lemmas for name, one in config.namespaces.items()}
    if section.lemmas is None and not any(stated.values()):
        return None
    if section.shared:
        raise InputError(f"{source}, namespaces: got lemmas, expected none with a semantic tier that is shared")
    of = cache(Lemmas)
    try:
        named = {name: None if language is None else of(language) for name, language in stated.items()}
        return ByName(named, None if section.lemmas is None else of(section.lemmas))
    except InputError as error:
        raise InputError(f"{source}, lemmas: {error}") from error
