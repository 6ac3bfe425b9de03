"""Keys belong to arms by a hash, and stay there."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.errors import InputError
from caches.target import Arm, Split
from tuner.router import assign, assigner, point, points

KEYS = [b"key %d" % number for number in range(20_000)]


def test_a_point_is_the_hash_of_salt_and_key() -> None:
    digest = hashlib.sha256(b"salt\0key").hexdigest()
    assert point(b"key", "salt") == int(digest[:16], 16) / 2**64


def test_shares_are_met() -> None:
    placed = points(KEYS, "a")
    assert placed.min() >= 0.0
    assert placed.max() < 1.0
    # 20,000 keys: the share of those below 0.2 has a standard deviation of 0.0028
    assert np.mean(placed < 0.2) == pytest.approx(0.2, abs=0.012)
    # another salt is another split: a fifth of a fifth in both
    assert np.mean((placed < 0.2) & (points(KEYS, "b") < 0.2)) == pytest.approx(0.04, abs=0.006)


@given(st.binary(max_size=60), st.text(max_size=20), st.floats(0.0, 1.0))
def test_assigner_is_assign(key: bytes, salt: str, share: float) -> None:
    split = Split(salt, share)
    assert assigner(split)(key) is assign(key, split)


@given(st.binary(max_size=60), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_growing_share_moves_keys_one_way_only(key: bytes, one: float, other: float) -> None:
    small, large = sorted((one, other))
    if assign(key, Split("s", small)) is Arm.TREATMENT:
        assert assign(key, Split("s", large)) is Arm.TREATMENT
    moved = assign(key, Split("s", small)) is not assign(key, Split("s", large))
    assert moved == (small <= point(key, "s") < large)


def test_nobody_and_everybody() -> None:
    assert {assign(key, Split("s", 0.0)) for key in KEYS[:100]} == {Arm.CONTROL}
    assert {assign(key, Split("s", 1.0)) for key in KEYS[:100]} == {Arm.TREATMENT}


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(InputError, match="treatment: got"):
        Split("s", share)
