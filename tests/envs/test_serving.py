from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from envs.serving import (
    GIB,
    QUANTILES,
    Backend,
    Load,
    Serving,
    ServingProfile,
    backend_of,
    gpu_seconds,
    load_profile,
    quantiles,
    serve,
    slots_left,
)
from tests.envs.worlds import PROFILE

PROFILES = sorted((Path(__file__).parents[2] / "envs" / "profiles").glob("*.toml"))
BACKEND = backend_of(PROFILE, Serving())


def idle(slots: int) -> np.ndarray:
    return np.array([-np.inf] * slots + [np.inf])


def first_come_first_served(
    backend: Backend, load: Load, missed: np.ndarray, slots: int, objective: float
) -> tuple[list[float], list[float], tuple[float, float, int, float]]:
    """A list of the times at which slots are free, searched for the earliest."""
    free = [-np.inf] * slots
    ttft, latency, waited, busy, held = [], [], 0.0, 0.0, 0.0
    for t in missed:
        begin = max(load.time[t], min(free))
        prefill = load.prompt[t] * backend.prefill_seconds_per_token
        service = prefill + load.output[t] * backend.decode_seconds_per_token
        free[free.index(min(free))] = begin + service
        # the wait first: a request that waits for nothing takes exactly its prefill, which may equal the objective
        ttft.append(max(begin - load.time[t] + prefill, backend.hit_seconds))
        latency.append(max(begin - load.time[t] + service, backend.hit_seconds))
        waited += begin - load.time[t]
        busy += service
        held += service * (load.prompt[t] + load.output[t] / 2)
    return ttft, latency, (waited, busy, sum(x > objective for x in ttft), held)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(0, 60))
def test_queue_equals_a_list_of_slots(seed: int, slots: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    total = 2 * count
    load = Load(
        np.cumsum(rng.exponential(0.2, total)),
        rng.integers(0, 900, total).astype(np.int32),
        rng.integers(0, 60, total).astype(np.int32),
    )
    missed = np.sort(rng.choice(total, count, replace=False)).astype(np.int32)
    delays = np.zeros(count, np.float32), np.zeros(count, np.float32)
    told = serve(BACKEND, load, missed, idle(slots), 0.5, delays)
    ttft, latency, expected = first_come_first_served(BACKEND, load, missed, slots, 0.5)
    np.testing.assert_allclose(told, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(delays[0], ttft, rtol=1e-6)
    np.testing.assert_allclose(delays[1], latency, rtol=1e-6)


def test_queue_by_hand() -> None:
    # 1 ms a prompt token, 20 ms an output token, two slots; all need 0.1 + 0.4 s but the last, which needs 0.001
    # 0.0 -> 0.5 (slot 1), 0.1 -> 0.6 (slot 2), 0.2 waits 0.3 for slot 1 -> 1.0, 0.7 (slot 2) at once
    load = Load(
        np.array([0.0, 0.1, 0.2, 0.7]), np.array([100, 100, 100, 1], np.int32), np.array([20, 20, 20, 0], np.int32)
    )
    delays = np.zeros(4, np.float32), np.zeros(4, np.float32)
    slots = idle(2)
    told = serve(BACKEND, load, np.arange(4, dtype=np.int32), slots, 0.3, delays)
    assert told == pytest.approx((0.3, 1.501, 1, 3 * 0.5 * 110 + 0.001))
    assert delays[0].tolist() == pytest.approx([0.1, 0.1, 0.4, 0.001])
    assert delays[1].tolist() == pytest.approx([0.5, 0.5, 0.8, 0.001])
    assert sorted(slots) == pytest.approx([0.701, 1.0, np.inf])


def test_the_queue_carries_over_from_one_call_to_the_next() -> None:
    rng = np.random.default_rng(1)
    load = Load(np.sort(rng.uniform(0, 5, 40)), np.full(40, 300, np.int32), np.full(40, 20, np.int32))
    missed, at_once, in_two = (
        np.arange(40, dtype=np.int32),
        np.zeros((2, 40), np.float32),
        np.zeros((2, 40), np.float32),
    )
    serve(BACKEND, load, missed, idle(3), 1.0, (at_once[0], at_once[1]))
    slots = idle(3)
    serve(BACKEND, load, missed[:17], slots, 1.0, (in_two[0, :17], in_two[1, :17]))
    serve(BACKEND, load, missed[17:], slots, 1.0, (in_two[0, 17:], in_two[1, 17:]))
    np.testing.assert_array_equal(at_once, in_two)


def test_no_miss_is_faster_than_a_hit() -> None:
    load = Load(np.zeros(1), np.zeros(1, np.int32), np.zeros(1, np.int32))
    delays = np.zeros(1, np.float32), np.zeros(1, np.float32)
    serve(BACKEND, load, np.zeros(1, np.int32), idle(1), 1.0, delays)
    assert (delays[0][0], delays[1][0]) == pytest.approx((PROFILE.hit_seconds, PROFILE.hit_seconds))


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0, 2.5, 7.0]), max_size=150), st.integers(0, 400))
def test_quantiles_are_those_of_the_sorted_delays(delays: list[float], hits: int) -> None:
    into = np.zeros(3)
    quantiles(np.array(delays, np.float32), hits, 0.001, into)
    ordered = sorted([0.001] * hits + delays)
    for q, value in zip((50, 95, 99), into, strict=True):
        if not ordered:
            assert np.isnan(value)
        else:  # nearest rank: the smallest value that at least q percent are not above
            assert value == ordered[-(-q * len(ordered) // 100) - 1]


def test_quantiles_of_many_delays() -> None:
    delays = np.random.default_rng(0).exponential(1.0, 5_000).astype(np.float32)
    into = np.zeros(3)
    quantiles(delays.copy(), 0, 0.001, into)
    np.testing.assert_array_equal(into, np.quantile(delays, QUANTILES, method="inverted_cdf"))


def test_slots_are_those_of_all_replicas() -> None:
    assert backend_of(PROFILE, Serving(replicas=3)).slots == 12
    assert backend_of(PROFILE, Serving(replicas=3, max_sequences=2)).slots == 6
    assert slots_left(BACKEND, 1e12, 100.0) == 4  # a cache on the host takes none


def test_a_cache_in_vram_takes_the_place_of_sequences() -> None:
    backend = backend_of(PROFILE, Serving(cache_in_vram=True))  # 0.5 GiB beside the weights
    sequence = 1_000.0  # tokens, so 100 MB each: 5 would fit, the profile allows 4
    assert slots_left(backend, 0.0, sequence) == 4
    assert slots_left(backend, 0.5 * GIB - 399e6, sequence) == 3
    assert slots_left(backend, 0.5 * GIB - 400e6, sequence) == 4
    assert slots_left(backend, 0.5 * GIB, sequence) == 1  # never none
    assert slots_left(backend, 5.0 * GIB, sequence) == 1


def test_gpu_seconds_share_decoding_with_the_sequences_of_a_full_batch() -> None:
    # 1 ms a prompt token; 20 ms an output token shared by 4
    told = gpu_seconds(BACKEND, np.array([100, 0]), np.array([0, 100]))
    np.testing.assert_allclose(told, [0.1, 0.5])
    assert told.dtype == np.float32
    fewer = backend_of(PROFILE, Serving(max_sequences=1, replicas=7))  # prices do not follow from the deployment
    np.testing.assert_array_equal(gpu_seconds(fewer, np.array([100, 0]), np.array([0, 100])), told)


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_every_number_of_a_profile_has_a_source(path: Path) -> None:
    data = tomllib.loads(path.read_text())
    numbers = {name for name, value in data.items() if isinstance(value, int | float)}
    assert numbers == set(data["sources"])
    assert all(len(source) > 5 for source in data["sources"].values())
    assert load_profile(path.stem) == ServingProfile.model_validate(data)
    assert data["name"] == path.stem


@pytest.mark.parametrize(
    ("name", "layers", "heads", "bytes_per_token"),
    [("qwen-7b-a100", 32, 32, 524_288), ("qwen2.5-7b-a100", 28, 4, 57_344)],
)
def test_kv_bytes_follow_from_the_architecture(name: str, layers: int, heads: int, bytes_per_token: int) -> None:
    """Key and value, heads of 128 numbers, two bytes each."""
    assert load_profile(name).kv_bytes_per_token == bytes_per_token == 2 * layers * heads * 128 * 2


def test_a_full_batch_fits_beside_the_weights() -> None:
    for path in PROFILES:
        profile = load_profile(path.stem)
        kv_gib = profile.max_sequences * 1_150 * profile.kv_bytes_per_token / GIB
        assert profile.weights_gib + kv_gib < profile.vram_gib, path.stem


def test_an_unknown_profile_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"got 'gpt', expected a TOML file or one of .*qwen-7b-a100, qwen2\.5-7b-a100"):
        load_profile("gpt")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("vram_gib = 80.0", "vram_gib = -1", "vram_gib: got -1"),
        ("vram_gib = 80.0\n", "", "vram_gib: got"),
        ("vram_gib = 80.0", "vram_gb = 80.0\nvram_gib = 80.0", "vram_gb: got 80.0"),
        ("max_sequences = 64", "max_sequences = 'many'", "max_sequences: got 'many'"),
        ("max_sequences = 64", "max_sequences", "not a TOML file"),
    ],
)
def test_a_bad_profile_names_file_and_field(tmp_path: Path, old: str, new: str, named: str) -> None:
    text = next(path for path in PROFILES if path.stem == "qwen-7b-a100").read_text()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=named) as caught:
        load_profile(str(path))
    assert str(caught.value).startswith(str(path))
