from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.engine import (
    HELD,
    NOW,
    POOL,
    Engine,
    Need,
    engine_of,
    fits,
    idle,
    launch,
    memory_tokens,
    serve_all,
    step,
    wait,
)
from envs.serving import Serving
from envs.units import GIB
from tests.envs.slow_engine import SlowEngine
from tests.envs.worlds import PROFILE

# one GPU: 0.1 s a request, 1 ms a prompt token, 20 ms an iteration and 10 ms for each further sequence, 0.2 s a chunk
ENGINE = Engine(0.1, 0.001, 0.02, 0.01, 0.2, 4, 1, 1000.0, 1.0)


def served(
    engine: Engine, requests: list[tuple[float, float, float]], cached: float = 0.0
) -> tuple[list[float], list[float]]:
    """requests: arrival, prompt and output. First token and end, seconds after arrival."""
    arrival, prompt, output = (np.array(column, float) for column in zip(*requests, strict=True))
    ttft, latency = serve_all(engine, idle(engine), arrival, (prompt, np.full(arrival.size, cached), output))
    return ttft.tolist(), latency.tolist()


def test_one_request_by_hand() -> None:
    assert served(ENGINE, [(3.0, 100, 10)]) == (pytest.approx([0.2]), pytest.approx([0.2 + 10 * 0.02]))


def test_cached_tokens_need_no_prefill() -> None:
    assert served(ENGINE, [(3.0, 100, 10)], cached=60)[0] == pytest.approx([0.14])


def test_prompts_are_taken_in_one_after_the_other() -> None:
    # as in an M/D/1 queue: each takes 0.2 s, so arrivals 0.1 s apart wait 0, 0.1, 0.2; after the pause none waits
    whole = ENGINE._replace(chunk_seconds=0.0)
    ttft, _ = served(whole, [(0.0, 100, 1), (0.1, 100, 1), (0.2, 100, 1), (9.0, 100, 1)])
    assert ttft == pytest.approx([0.2, 0.3, 0.4, 0.2])


def test_mean_wait_is_that_of_pollaczek_and_khinchine() -> None:
    # M/D/1 at load 0.6: mean wait = 0.6 x service / (2 x 0.4)
    engine = ENGINE._replace(slots=4000, kv_tokens=1e12, chunk_seconds=0.0)
    rng = np.random.default_rng(0)
    arrival = np.cumsum(rng.exponential(0.2 / 0.6, 200_000))
    ones = np.ones(arrival.size)
    ttft, _ = serve_all(engine, idle(engine), arrival, (100 * ones, 0 * ones, ones))
    assert ttft.mean() - 0.2 == pytest.approx(0.6 * 0.2 / 0.8, rel=0.03)


def test_a_prompt_and_those_that_decode_slow_each_other_and_so_does_company() -> None:
    # A has its first token at 0.2 and decodes alone at 0.02 s, 5 iterations until 0.3. Then B's 0.1 s of prefill, half
    # a chunk, takes half an iteration longer: first token at 0.51. Until then A's iterations have a chunk: 0.22 s, so
    # 0.21/0.22 of one. From 0.51 two decode, at 0.03 s.
    ttft, latency = served(ENGINE, [(0.0, 100, 10), (0.3, 100, 50)])
    assert ttft == pytest.approx([0.2, 0.21])
    left = 10 - 5 - 0.21 / 0.22
    assert latency[0] == pytest.approx(0.51 + left * 0.03)
    # B then has `left` iterations less to do, alone
    assert latency[1] == pytest.approx(0.51 + left * 0.03 + (50 - left) * 0.02 - 0.3)


def test_a_request_waits_for_a_slot() -> None:
    engine = ENGINE._replace(slots=1)
    # A ends at 0.2 + 5 x 0.02 = 0.3; B arrived at 0.1 and starts then
    assert served(engine, [(0.0, 100, 5), (0.1, 100, 5)])[0] == pytest.approx([0.2, 0.3 + 0.2 - 0.1])


def test_a_request_waits_for_memory() -> None:
    # A holds 600 + 100 of 1,000 tokens until 0.7 + 100 x 0.02 = 2.7; B needs 310
    ttft, _ = served(ENGINE, [(0.0, 600, 100), (1.0, 300, 10)])
    assert ttft == pytest.approx([0.7, 2.7 + 0.4 - 1.0])
    # half of its output counted, A holds 650 and B 305: both fit. B's prefill is 1.5 chunks, so 1.5 iterations longer
    ttft, _ = served(ENGINE._replace(output_share=0.5), [(0.0, 600, 100), (1.0, 300, 10)])
    assert ttft == pytest.approx([0.7, 0.43])


def test_a_sequence_larger_than_all_memory_runs_alone() -> None:
    ttft, _ = served(ENGINE, [(0.0, 5000, 10), (1.0, 100, 10), (1.0, 5000, 10)])
    # A from 0 to 5.1 + 0.2; B until 5.5 + 0.2; then C
    assert ttft == pytest.approx([5.1, 5.3 + 0.2 - 1.0, 5.7 + 5.1 - 1.0])


def test_two_gpus_take_in_two_prompts() -> None:
    two = ENGINE._replace(replicas=2, chunk_seconds=0.0)
    ttft, _ = served(two, [(0.0, 100, 1), (0.0, 100, 1), (0.0, 100, 1)])
    assert ttft == pytest.approx([0.2, 0.2, 0.4])


def test_finishes_are_told_in_order_and_give_their_room_back() -> None:
    state = idle(ENGINE)
    for tag, output in enumerate((30, 10, 20)):
        assert wait(ENGINE, state, 0.0, 100.0) == -1
        launch(ENGINE, state, tag, Need(10.0, 0.0, output, 100.0))
    assert state.clock[HELD] == 300.0
    told = []
    while (tag := step(ENGINE, state, np.inf)) >= 0:
        told.append((tag, float(state.clock[HELD])))
    assert told == [(1, 200.0), (2, 100.0), (0, 0.0)]
    at = float(state.clock[NOW])
    assert step(ENGINE, state, np.inf) == -1
    assert state.clock[NOW] == at


def test_room_for_sequences_can_change_while_they_run() -> None:
    state = idle(ENGINE)
    wait(ENGINE, state, 0.0, 100.0)
    launch(ENGINE, state, 0, Need(10.0, 0.0, 10.0, 100.0))
    assert fits(ENGINE, state, 900.0)
    state.clock[POOL] = 500.0
    assert not fits(ENGINE, state, 900.0)
    assert fits(ENGINE, state, 400.0)


def test_transfer_of_cached_tokens_takes_its_time() -> None:
    state = idle(ENGINE)
    wait(ENGINE, state, 2.0, 1.0)
    assert launch(ENGINE, state, 0, Need(100.0, 0.3, 10.0, 1.0)) == pytest.approx(2.5)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.0503, 0.3011, 2.003]),
            st.integers(1, 400),
            st.integers(0, 400),
            st.integers(0, 80),
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 3),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.00409]),
    st.sampled_from([0.0, 0.1507]),
    st.sampled_from([300.0, 900.0, 1e9]),
)
def test_engine_equals_a_list_of_sequences(
    requests: list[tuple[float, int, int, int]], replicas: int, slots: int, more: float, chunk: float, kv: float
) -> None:
    # numbers whose sums hardly meet by accident: at a tie, rounding would decide whether a prompt has company
    engine = Engine(0.0103, 0.00101, 0.0217, more, chunk, slots, replicas, kv, 0.5)
    gaps, prompts, uncached, outputs = (np.array(column, float) for column in zip(*requests, strict=True))
    arrival, cached = np.cumsum(gaps), prompts - np.minimum(prompts, uncached)
    slow = SlowEngine(engine)
    first = [
        slow.serve(a, p - c, o, memory_tokens(engine, p, o))
        for a, p, c, o in zip(arrival.tolist(), prompts.tolist(), cached.tolist(), outputs.tolist(), strict=True)
    ]
    finish = slow.drain()
    ttft, latency = serve_all(engine, idle(engine), arrival, (prompts, cached, outputs))
    np.testing.assert_allclose(ttft, np.array(first) - arrival, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(latency, np.array(finish) - arrival, rtol=1e-6, atol=1e-6)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1))
def test_more_memory_and_faster_prefill_make_no_first_token_later(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(0.3, 60))
    prompt, output = rng.integers(1, 500, 60).astype(float), rng.integers(1, 60, 60).astype(float)
    tokens = prompt, np.zeros(60), output
    tight = ENGINE._replace(slots=1, chunk_seconds=0.0)
    slow, _ = serve_all(tight, idle(tight), arrival, tokens)
    faster = tight._replace(prefill_seconds_per_token=0.0005)
    fast, _ = serve_all(faster, idle(faster), arrival, tokens)
    assert (fast <= slow + 1e-9).all()


def test_engine_of_a_profile() -> None:
    profile = PROFILE.model_copy(
        update={
            "seconds_per_output_token": 0.05,
            "seconds_per_output_token_alone": 0.02,
            "max_sequences": 4,
            "prefill_chunk_tokens": 500,
            "request_overhead_seconds": 0.03,
            "output_memory_share": 0.25,
        }
    )
    engine = engine_of(profile, Serving(replicas=3))
    assert engine.slots == 12
    assert engine.iteration_seconds == 0.02
    assert engine.iteration_seconds_per_sequence == pytest.approx(0.01)  # 0.02 alone, 0.05 with three more
    assert engine.chunk_seconds == pytest.approx(500 / profile.prefill_tokens_per_second)
    free = (profile.vram_gib - profile.weights_gib) * GIB / profile.kv_bytes_per_token
    assert engine.kv_tokens == pytest.approx(3 * free)
    assert memory_tokens(engine, 100.0, 40.0) == 110.0
    given_tokens = engine_of(profile.model_copy(update={"kv_tokens": 77}), Serving(replicas=3))
    assert given_tokens.kv_tokens == 231.0


def test_a_profile_without_the_new_fields_decodes_at_one_speed() -> None:
    engine = engine_of(PROFILE, Serving())
    assert engine.iteration_seconds == PROFILE.seconds_per_output_token
    assert (engine.iteration_seconds_per_sequence, engine.chunk_seconds, engine.overhead_seconds) == (0.0, 0.0, 0.0)
