"""Buckets of questions, fitted on traffic: principal axes, then clusters along them. Nobody else knows scikit-learn."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from caches.errors import InputError
from caches.semantic.bucket_map import BucketMap
from caches.semantic.embedder import Vectors

BUCKETS, AXES = 1_024, 64


def fit_buckets(
    vectors: Vectors, embedder_name: str, buckets: int = BUCKETS, axes: int = AXES, seed: int = 0
) -> BucketMap:
    """vectors: shape (questions, dimensions), of questions as they were asked; how often each was asked says where
    buckets are worth having. Needs as many different ones as buckets. Raises InputError."""
    if buckets < 1 or axes < 1:
        raise InputError(f"buckets, axes: got {buckets} and {axes}, expected at least 1")
    different = len(np.unique(vectors, axis=0))
    if different < buckets:
        raise InputError(f"questions: got {different:,} different ones, expected {buckets:,} or more, or fewer buckets")
    components = min(axes, *vectors.shape)
    pca = PCA(components, svd_solver="full").fit(vectors.astype(np.float64))
    along = pca.transform(vectors.astype(np.float64))
    clusters = KMeans(buckets, n_init=1, random_state=seed).fit(along)
    return BucketMap(
        embedder_name,
        pca.mean_.astype(np.float32),
        pca.components_.astype(np.float32),
        clusters.cluster_centers_.astype(np.float32),
        len(vectors),
        float(pca.explained_variance_ratio_.sum()),
    )
