"""Samples of a trace by a hash of the key."""

from __future__ import annotations

import numpy as np
import pytest

from caches.errors import InputError
from caches.shadow.cache import requests_of
from caches.shadow.sampling import NO_SAMPLE, key_hash, sample_of_keys, take


def test_samples_are_disjoint_and_of_the_share_asked_for() -> None:
    which = sample_of_keys(100_000, 0.1, 8, seed=0)
    counts = [int((which == number).sum()) for number in range(8)]
    assert counts == pytest.approx([10_000] * 8, rel=0.04)  # four standard deviations
    assert (which == NO_SAMPLE).sum() == 100_000 - sum(counts)


def test_all_keys_are_in_one_sample_or_another_when_the_shares_fill_the_whole() -> None:
    assert set(sample_of_keys(10_000, 0.25, 4, seed=1).tolist()) == {0, 1, 2, 3}


def test_another_seed_draws_other_keys_and_the_same_seed_the_same() -> None:
    one, other = (sample_of_keys(1000, 0.5, 1, seed=seed) for seed in (0, 1))
    assert (one == sample_of_keys(1000, 0.5, 1, seed=0)).all()
    assert 350 < (one != other).sum() < 650


def test_hashes_of_neighbouring_keys_are_unlike() -> None:
    hashes = key_hash(1000, 0)
    assert len(set(hashes.tolist())) == 1000
    changed = [bin(int(a ^ b)).count("1") for a, b in zip(hashes[1:], hashes[:-1], strict=True)]
    assert np.mean(changed) == pytest.approx(32, abs=1)


def test_more_than_all_keys_cannot_be_asked_for() -> None:
    with pytest.raises(InputError, match=r"share: got 3 samples of 0\.5 of the keys"):
        sample_of_keys(10, 0.5, 3, seed=0)


def test_the_requests_of_some_keys_keep_their_columns() -> None:
    requests = requests_of([3, 0, 2, 3], [0.0, 1.0, 2.0, 3.0], [5, 6, 7, 5], [1.0, np.nan, 2.0, 3.0], [0, 0, 1, 2])
    part, keys = take(requests, 4, np.array([0, 2, 3]))
    assert keys == 2
    assert part.key.tolist() == [1, 0, 1]
    assert part.time.tolist() == [0.0, 2.0, 3.0]
    assert part.size.tolist() == [5, 7, 5]
    assert part.ttl.tolist() == [1.0, 2.0, 3.0]
    assert part.operation.tolist() == [0, 1, 2]
