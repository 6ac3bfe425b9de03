"""The section of the gateway's settings that makes the semantic tier, in this process or shared."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import model_validator

from api.gateway.config_knobs import SHORT_NAME, LocalConfig, seconds, shards
from caches.knobs import KNOB_NAMES
from caches.semantic.buckets import PROBED
from caches.semantic.signed_matrix import RADIUS
from envs.units import described


class SemanticConfig(LocalConfig):
    """The tier that also answers a question that means the same as one answered before, `semantic`. A hit in it is
    `hit-l3`; of a hit by meaning the similarity is told. It is in this process, or shared where `entries` says where:
    then `cache_size`, `ttl_seconds` and `warmup_ratio` that are not stated stay as somebody set them there."""

    enabled: bool = described(True, "Whether there is one.", "")
    embedder: str = described(
        "wordllama",
        "`wordllama`; name or folder of a sentence-transformers model; or the URL of an OpenAI-compatible server, up "
        "to and without /embeddings.",
        "name",
    )
    embedder_model: str | None = described(None, "Model, behind a URL.", "name")
    embedder_dimensions: int | None = described(
        None, "Length of its vectors, behind a URL.", "number", gt=0, strict=True
    )
    embedder_key_env: str | None = described(None, "Environment variable with the key for the URL.", "name")
    embedder_timeout_seconds: float = seconds(2.0, "For an embedder that is not in this process.")
    similarity_threshold: float = described(
        0.9, "At the start. It belongs to the embedder.", "similarity", ge=0, le=1, strict=True
    )
    lowest_threshold: float = described(
        0.7, "Nobody can go below, also no budget.", "similarity", ge=0, le=1, strict=True
    )
    highest_threshold: float = described(
        1.0,
        "Nobody can go above, but for serving equal requests only, which is always allowed.",
        "similarity",
        ge=0,
        le=1,
        strict=True,
    )
    verified_share: float = described(
        0.02, "Of hits by meaning: the backend is asked anyway, beside the request.", "share", ge=0, le=1, strict=True
    )
    wrong_hit_budget: float = described(
        0.02, "Of hits by meaning: the share that may be wrong; thresholds follow it.", "share", gt=0, le=1, strict=True
    )
    same_answer: Literal["facts", "similar", "normalised", "exact"] = described(
        "facts",
        "When two answers are the same. similar: by the embedder, which forgives another wording and does not see "
        "another number or a negation; facts: as similar, and the same numbers and as many negations; normalised: but "
        "for spelling; exact: to the letter.",
        "name",
    )
    same_answer_similarity: float = described(
        0.85, "For facts and similar: at least.", "similarity", ge=0, le=1, strict=True
    )
    folder: Path | None = described(
        None,
        "Where its entries are kept from a stop to the next start; they hold questions and answers. Not "
        "for one that is shared.",
        "path",
    )
    entries: str | None = described(
        None,
        "Shared: the Redis or Valkey that holds its entries, in any form of [tiers.redis]. Not set: in this process.",
        "URL",
        repr=False,
    )
    entries_env: str | None = described(
        None, "Environment variable with that URL, if there is a password in it.", "name"
    )
    vectors: str | None = described(
        None,
        "Shared: the store of its vectors, a Redis of version 8.2 or newer, or chroma+http://host:8000; not set: the "
        "Redis of its entries.",
        "URL",
        repr=False,
    )
    vectors_env: str | None = described(
        None, "Environment variable with that URL, if there is a password in it.", "name"
    )
    vectors_token_env: str | None = described(None, "Environment variable with the token for a Chroma.", "name")
    vector_form: Literal["fp32", "q8"] = described(
        "fp32", "Shared: numbers of its vectors. q8: a quarter of the memory, in Redis; less exact.", "name"
    )
    neighbours: Literal["vectors", "signatures", "buckets"] = described(
        "vectors",
        "Which stored questions are compared. vectors: all up to 4,096 of a context, above that those in the nearest "
        "cells; signatures: those whose 64 bits differ in a few; buckets: those of the nearest buckets of bucket_map. "
        "Not for one that is shared.",
        "name",
    )
    signature_bits: int = described(RADIUS, "signatures: bits that may differ.", "bits", ge=0, le=64, strict=True)
    bucket_map: Path | None = described(None, "buckets: the file that `setpoint keys fit` wrote.", "path")
    probed_buckets: int = described(PROBED, "buckets: in how many is looked.", "number", gt=0, strict=True)
    most_edits: float | None = described(
        None,
        "Of the characters of a question, the share that may differ from the one answered, 0 to 1; not set: any.",
        "share",
        ge=0,
        le=1,
        strict=True,
    )
    lemmas: str | None = described(
        None,
        'Language, as "en": questions that have their words in common, but for inflection, order and small words, are '
        "answered without a vector, if the guard agrees. Not set: none are. Not for one that is shared.",
        "name",
    )
    slow_seconds: float = seconds(
        0.5,
        "Shared: a lookup that takes longer is given up, and the tier left alone for a while; an embedder behind a URL "
        "has its own time on top.",
    )
    prefix: str = described("setpoint-semantic", "Shared: of all keys.", "name", pattern=SHORT_NAME.pattern + "$")
    shards: int = shards("Shared: ")

    @model_validator(mode="after")
    def _threshold_in_range(self) -> SemanticConfig:
        low, threshold, high = self.lowest_threshold, self.similarity_threshold, self.highest_threshold
        if not low <= threshold <= high or low == high:
            order = "lowest_threshold <= similarity_threshold <= highest_threshold"
            raise ValueError(f"{order}, got {low}, {threshold}, {high}")
        return self

    @model_validator(mode="after")
    def _in_one_place(self) -> SemanticConfig:
        if self.entries is not None and self.entries_env is not None:
            raise ValueError("entries or entries_env")
        if self.vectors is not None and self.vectors_env is not None:
            raise ValueError("vectors or vectors_env")
        if not self.shared and (self.vectors is not None or self.vectors_env is not None):
            raise ValueError("entries or entries_env beside vectors")
        if self.shared and self.folder is not None:
            raise ValueError("folder or entries: what is shared stays where it is")
        return self

    @model_validator(mode="after")
    def _neighbours_in_process(self) -> SemanticConfig:
        if self.shared and (self.neighbours != "vectors" or self.lemmas is not None):
            raise ValueError("neighbours and lemmas, or entries: what is shared is searched where its vectors are")
        if (self.neighbours == "buckets") != (self.bucket_map is not None):
            raise ValueError('bucket_map with neighbours = "buckets", and with no other')
        return self

    @property
    def shared(self) -> bool:
        """Whether other processes use it too."""
        return self.entries is not None or self.entries_env is not None

    @property
    def stated(self) -> dict[str, float]:
        """The knobs that the settings state, where they lie beside the entries."""
        return {
            name: float(getattr(self, name)) for name in KNOB_NAMES if self.shared and name in self.model_fields_set
        }
