"""The semantic tier over other structures of vectors, by the contract of tiers that answer by meaning."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial

import numpy as np

from caches.knobs import KnobSpace
from caches.semantic.bucket_map import BucketMap
from caches.semantic.buckets import Buckets
from caches.semantic.embedder import Embedder, unit_rows
from caches.semantic.matching import MatchingOptions
from caches.semantic.rows import MakeRows
from caches.semantic.signature import Hyperplanes
from caches.semantic.signed_matrix import SignedMatrix
from caches.semantic.tier import SemanticOptions, SemanticTier
from tests.contracts.meaning_contract import MeaningContract, MeaningSubject

NEAR = 32  # bits: of questions with a similarity of 0.5, the least that the contract asks for, 0.2 % are further apart
BUCKETS = 3


@asynccontextmanager
async def signed(embedder: Embedder, space: KnobSpace, options: MatchingOptions) -> AsyncIterator[SemanticTier]:
    rows: MakeRows = partial(SignedMatrix, planes=Hyperplanes(embedder.dimensions), radius=NEAR)
    yield made(embedder, space, options, rows)


@asynccontextmanager
async def bucketed(embedder: Embedder, space: KnobSpace, options: MatchingOptions) -> AsyncIterator[SemanticTier]:
    """All buckets are looked into, so that nothing is missed."""
    drawn = unit_rows(np.random.default_rng(3).normal(size=(8, embedder.dimensions)).astype(np.float32))
    found = BucketMap(embedder.name, drawn[0] * 0.1, np.linalg.qr(drawn.T)[0].T[:5], drawn[:BUCKETS, :5], 8, 0.5)
    yield made(embedder, space, options, lambda _: Buckets(found, BUCKETS))


def made(embedder: Embedder, space: KnobSpace, options: MatchingOptions, rows: MakeRows) -> SemanticTier:
    options = SemanticOptions(**asdict(options), entry_overhead_bytes=0, make_rows=rows)
    return SemanticTier(embedder, space, options=options)


class TestWithSignatures(MeaningContract):
    meaning = MeaningSubject(signed)


class TestWithBuckets(MeaningContract):
    meaning = MeaningSubject(bucketed)
