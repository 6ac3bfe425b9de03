"""Matrices, signatures and buckets by the contract of structures that hold vectors, and what is each one's own."""

from __future__ import annotations

import itertools
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from caches.errors import InputError, Mismatch
from caches.semantic.bucket_fitting import fit_buckets
from caches.semantic.bucket_map import BucketMap, load_bucket_map, save_bucket_map
from caches.semantic.buckets import Buckets
from caches.semantic.embedder import unit_rows
from caches.semantic.index import MATRIX_UP_TO, Group, VectorIndex
from caches.semantic.matrix import Matrix
from caches.semantic.signature import BITS, Hyperplanes, differing_bits, share_within, similarity_by
from caches.semantic.signed_matrix import SignedMatrix
from tests.caches.semantic.toy import HERE
from tests.contracts.rows_contract import DIMENSIONS, POOL, RowsContract

PLANES = Hyperplanes(DIMENSIONS)
FITTED = fit_buckets(POOL, "toy", buckets=5, axes=3)


class TestMatrix(RowsContract):
    make = Matrix
    exact = True


class TestSignaturesOfAnyDistance(RowsContract):
    make = partial(SignedMatrix, planes=PLANES, radius=BITS)
    exact = True


class TestSignatures(RowsContract):
    make = partial(SignedMatrix, planes=PLANES, radius=12)


class TestEqualSignatures(RowsContract):
    make = partial(SignedMatrix, planes=PLANES, radius=0)


class TestBuckets(RowsContract):
    make = staticmethod(lambda _: Buckets(FITTED, probed=1))


class TestAllBuckets(RowsContract):
    make = staticmethod(lambda _: Buckets(FITTED, probed=9))
    exact = True


# --- signatures ------------------------------------------------------------------------------------------------------


def test_a_signature_says_the_side_of_each_plane() -> None:
    planes = np.random.Generator(np.random.PCG64(0)).standard_normal((64, DIMENSIONS)).astype(np.float32)
    expected = sum(1 << bit for bit in range(64) if float(planes[bit] @ POOL[3]) > 0)
    assert int(PLANES.signature(POOL[3])) == expected
    assert [int(one) for one in PLANES.signatures(POOL[:4])] == [int(PLANES.signature(one)) for one in POOL[:4]]
    assert int(PLANES.signature(-POOL[3])) == expected ^ (2**64 - 1)


def test_signatures_of_a_version_do_not_change() -> None:
    """Whatever numpy draws: another way to draw needs another version."""
    planes = Hyperplanes(4, seed=7)
    assert planes.name == "simhash-64 version 1, seed 7, 4 dimensions"
    signatures = [hex(planes.signature(row)) for row in np.eye(4, dtype=np.float32)[:2]]
    assert signatures == ["0x8c1b902a6040ac49", "0xb54e456181c07681"]


def test_differing_bits_by_hand() -> None:
    signatures = np.array([0b1011, 0, 2**64 - 1], np.uint64)
    assert differing_bits(signatures, np.uint64(0b0001)).tolist() == [2, 1, 63]


def test_the_share_within_a_radius_by_hand() -> None:
    # at a right angle each bit is a fair coin: C(64, 0) + C(64, 1) + C(64, 2) of 2^64 are within 2
    assert share_within(0.0, 2) == pytest.approx((1 + 64 + 64 * 63 / 2) / 2**64, rel=1e-9)
    assert share_within(1.0, 0) == 1.0
    assert share_within(-1.0, 63) == 0.0
    # at 60 degrees a bit differs with 1/3
    by_hand = sum(math.comb(64, k) * (1 / 3) ** k * (2 / 3) ** (64 - k) for k in range(17))
    assert share_within(0.5, 16) == pytest.approx(by_hand, rel=1e-9)
    assert [similarity_by(bits) for bits in (0, 16, 32, 64)] == pytest.approx([1.0, math.sqrt(0.5), 0.0, -1.0])


def test_the_shares_that_the_page_tells() -> None:
    told = [share_within(similarity, 16) for similarity in (0.9, 0.85, 0.7)]
    assert [round(share, 3) for share in told] == [0.992, 0.951, 0.543]
    assert round(share_within(0.9, 3), 3) == 0.013
    assert 1 / share_within(0.9, 0) == pytest.approx(20_000, rel=0.05)


@pytest.mark.parametrize("similarity", [0.95, 0.9, 0.7])
def test_signatures_differ_as_often_as_the_angle_says(similarity: float) -> None:
    """Over many planes: 200 draws of 64 bits, within four standard errors."""
    one, other = np.zeros(32, np.float32), np.zeros(32, np.float32)
    one[0], other[0], other[1] = 1.0, similarity, math.sqrt(1.0 - similarity**2)
    differ = [
        int(differing_bits(np.array([planes.signature(one)]), planes.signature(other))[0])
        for planes in (Hyperplanes(32, seed) for seed in range(200))
    ]
    apart = math.acos(similarity) / math.pi
    error = math.sqrt(apart * (1 - apart) / (64 * 200))
    assert np.mean(differ) / 64 == pytest.approx(apart, abs=4 * error)
    within = np.mean(np.array(differ) <= 12)
    assert within == pytest.approx(share_within(similarity, 12), abs=0.15)


def test_four_bands_find_all_within_three_bits_and_miss_at_four() -> None:
    """Why signatures are counted, and not looked up by band: a band of each has to be equal."""
    bands = [0xFFFF << shift for shift in (0, 16, 32, 48)]
    for differing in itertools.product(range(4), repeat=3):  # three bits, in any bands
        signature = 0
        for place, band in enumerate(differing):
            signature |= 1 << (16 * band + place)
        assert any(signature & band == 0 for band in bands)
    assert not any(sum(1 << (16 * band) for band in range(4)) & band == 0 for band in bands)
    assert share_within(0.9, 3) < 0.02


def test_a_radius_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="radius of signatures: got 65"):
        SignedMatrix(DIMENSIONS, PLANES, 65)


def test_an_index_of_another_structure_never_becomes_cells() -> None:
    index = VectorIndex(DIMENSIONS, 8, partial(SignedMatrix, planes=PLANES))
    group = Group(HERE, b"c" * 32)
    for number, vector in enumerate(POOL):
        index.add(group, b"%032d" % number, vector)
    assert (len(POOL) > 8, index.plan()) == (True, None)
    assert index.search(group, POOL[7], 1)[0].fingerprint == b"%032d" % 7
    assert MATRIX_UP_TO > 8


# --- buckets ---------------------------------------------------------------------------------------------------------


def test_buckets_by_hand() -> None:
    """Axis: the second coordinate. Centres at -1, 0.5 and 1; the mean is at 0.2 there."""
    mean, axes = np.array([0.0, 0.2, 0.0], np.float32), np.array([[0.0, 1.0, 0.0]], np.float32)
    found = BucketMap("toy", mean, axes, np.array([[-1.0], [0.5], [1.0]], np.float32), 3, 1.0)
    asked = np.array([[0.0, -0.6, 0.8], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], np.float32)
    assert found.buckets_of(asked).tolist() == [0, 1, 2]  # -0.8 is near -1; -0.2 near 0.5; 0.8 near 1
    assert found.nearest(asked[1], 3) == [1, 0, 2]  # at distances 0.7, 0.8 and 1.2
    assert found.nearest(asked[1], 9) == [1, 0, 2]


def test_buckets_are_those_of_the_clusters_that_are_there() -> None:
    rng = np.random.default_rng(1)
    centres = unit_rows(rng.normal(size=(7, 16)).astype(np.float32))
    rows = unit_rows((centres[np.repeat(np.arange(7), 20)] + 0.05 * rng.normal(size=(140, 16))).astype(np.float32))
    found = fit_buckets(rows, "toy", buckets=7, axes=6)
    assert (found.embedder, found.fitted_on, len(found), found.dimensions) == ("toy", 140, 7, 16)
    assert found.explained > 0.9
    for cluster in found.buckets_of(rows).reshape(7, 20):
        assert len(set(cluster.tolist())) == 1
    assert len(set(found.buckets_of(rows).tolist())) == 7


def test_fewer_questions_than_buckets_are_refused() -> None:
    with pytest.raises(InputError, match="got 40 different ones, expected 1,024 or more"):
        fit_buckets(POOL, "toy")
    with pytest.raises(InputError, match="got 1 different ones, expected 2"):
        fit_buckets(np.repeat(POOL[:1], 9, axis=0), "toy", buckets=2)


def test_a_map_is_read_as_it_was_written_and_for_its_embedder_only(tmp_path: Path) -> None:
    path = tmp_path / "buckets.npz"
    save_bucket_map(FITTED, path)
    again = load_bucket_map(path, "toy", DIMENSIONS)
    assert again.buckets_of(POOL).tolist() == FITTED.buckets_of(POOL).tolist()
    assert (again.fitted_on, again.explained) == (40, FITTED.explained)
    with pytest.raises(Mismatch, match=r"'toy', 6\), expected .*'other', 6\)"):
        load_bucket_map(path, "other", DIMENSIONS)
    with pytest.raises(Mismatch):
        load_bucket_map(path, "toy", DIMENSIONS + 1)


def test_a_map_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "buckets.npz"
    monkeypatch.setattr("caches.semantic.bucket_map.FORMAT", "setpoint buckets 0")
    save_bucket_map(FITTED, path)
    monkeypatch.undo()
    with pytest.raises(Mismatch, match=r"got buckets of .'setpoint buckets 0'"):
        load_bucket_map(path, "toy", DIMENSIONS)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04broken"])
def test_a_file_that_is_no_map_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "buckets.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read as a map of buckets"):
        load_bucket_map(path, "toy", DIMENSIONS)
    with pytest.raises(InputError, match="cannot be read"):
        load_bucket_map(tmp_path / "absent", "toy", DIMENSIONS)


def test_no_bucket_at_all_is_no_search() -> None:
    with pytest.raises(InputError, match="probed buckets: got 0"):
        Buckets(FITTED, 0)
