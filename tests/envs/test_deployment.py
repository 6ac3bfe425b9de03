from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from envs.deployment import Deployment, Reuse, Routing, Sent, simulate
from envs.engine import engine_of, idle, serve_all
from envs.serving import Serving
from tests.envs.worlds import PROFILE

# 0.1 s a request, 1 ms a prompt token, 20 ms an output token, room for 1,000 tokens
MODEL = PROFILE.model_copy(
    update={
        "prefill_tokens_per_second": 1000.0,
        "seconds_per_output_token": 0.02,
        "request_overhead_seconds": 0.1,
        "kv_tokens": 1000,
        "max_sequences": 8,
    }
)


def sent(requests: list[tuple[float, int, int, int]]) -> Sent:
    """arrival, prompt, output, session."""
    arrival, prompt, output, session = (np.array(column, float) for column in zip(*requests, strict=True))
    return Sent(arrival, prompt, output, session.astype(np.int64))


def test_one_queue_is_the_engine_itself() -> None:
    rng = np.random.default_rng(0)
    arrival = np.cumsum(rng.exponential(0.2, 300))
    prompt, output = rng.integers(1, 300, 300).astype(float), rng.integers(1, 40, 300).astype(float)
    log = Sent(arrival, prompt, output, np.full(300, -1))
    answer = simulate(MODEL, Deployment(3), log, 0)
    engine = engine_of(MODEL, Serving(replicas=3))
    ttft, latency = serve_all(engine, idle(engine), arrival, (prompt, np.zeros(300), output))
    np.testing.assert_array_equal(answer.ttft, ttft)
    np.testing.assert_array_equal(answer.latency, latency)


def test_a_session_finds_its_prefix_in_the_kv_memory_while_it_lasts() -> None:
    # 0: 300 + 10 tokens kept. 1: another session, 600 + 10. Both fit in 1,000. Session 0 again with 400 tokens: finds
    # 310. Then session 2 with 500 + 10 pushes out session 1, the oldest, which finds nothing.
    log = sent([(0, 300, 10, 0), (10, 600, 10, 1), (20, 400, 10, 0), (30, 500, 10, 2), (40, 600, 10, 1)])
    answer = simulate(MODEL, Deployment(reuse="gpu"), log, 0)
    assert answer.cached.tolist() == [0, 0, 310, 0, 0]
    assert answer.ttft.tolist() == pytest.approx([0.4, 0.7, 0.1 + 0.09, 0.6, 0.7])


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    answer = simulate(MODEL, Deployment(reuse="gpu"), sent([(0, 300, 10, 0), (10, 300, 10, 0)]), 0)
    assert answer.cached.tolist() == [0, 299]


def test_prefixes_come_back_from_the_host_for_the_price_of_the_transfer() -> None:
    # room for 1,000 on the GPU and 2,000 on the host: session 0 was pushed off the GPU by 1
    log = sent([(0, 600, 0, 0), (10, 600, 0, 1), (20, 600, 0, 0)])
    host = Deployment(reuse="gpu+host", host_tokens=2000, transfer_tokens_per_second=6000)
    answer = simulate(MODEL, host, log, 0)
    assert answer.cached.tolist() == [0, 0, 599]
    assert answer.ttft[2] == pytest.approx(0.1 + 599 / 6000 + 0.001)
    # on the host alone even what was just there has to be brought
    again = sent([(0, 600, 0, 0), (10, 600, 0, 0)])
    alone = simulate(MODEL, Deployment(reuse="host", host_tokens=2000, transfer_tokens_per_second=6000), again, 0)
    assert alone.ttft[1] == pytest.approx(0.1 + 599 / 6000 + 0.001)
    assert simulate(MODEL, Deployment(reuse="host", host_tokens=599), again, 0).cached.tolist() == [0, 0]


def test_a_pool_is_shared_by_all_replicas_and_loses_nothing() -> None:
    log = sent([(float(10 * t), 600, 0, t % 5) for t in range(40)])
    pool = Deployment(4, "round-robin", "gpu+pool", transfer_tokens_per_second=1e9)
    assert (simulate(MODEL, pool, log, 0).cached[5:] == 599).all()


def test_round_robin_takes_turns() -> None:
    answer = simulate(MODEL, Deployment(2, "round-robin"), sent([(0, 100, 1, -1)] * 4), 0)
    assert answer.ttft.tolist() == pytest.approx([0.2, 0.2, 0.4, 0.4])


def test_sessions_stay_on_their_replica() -> None:
    log = sent([(float(10 * t), 600, 0, t % 3) for t in range(30)])
    stay = simulate(MODEL, Deployment(64, "session", "gpu"), log, 1)  # three sessions on 64: hardly two on one
    assert (stay.cached[3:] == 599).all()
    stray = simulate(MODEL, Deployment(64, "random", "gpu"), log, 5)
    assert (stray.cached[3:] == 599).mean() < 0.2


def test_prefix_routing_leaves_the_session_s_replica_only_where_loads_are_out_of_balance() -> None:
    quiet = sent([(float(10 * t), 600, 0, 0) for t in range(5)])
    assert simulate(MODEL, Deployment(8, "prefix", "gpu"), quiet, 0).cached.tolist() == [0, 599, 599, 599, 599]
    # eleven at once: with nine on the one replica the difference is above eight, and others take the rest
    burst = sent([(0.0, 100, 0, 0)] * 11)
    cached = simulate(MODEL, Deployment(8, "prefix", "gpu"), burst, 0).cached
    assert cached.tolist() == [0] + [99] * 8 + [0, 0]


def test_least_of_two_waits_less_than_random() -> None:
    rng = np.random.default_rng(3)
    arrival = np.cumsum(rng.exponential(0.06, 4000))
    log = Sent(arrival, np.full(4000, 200.0), np.full(4000, 5.0), np.full(4000, -1))
    wait = {
        routing: np.mean([simulate(MODEL, Deployment(8, routing), log, seed).ttft.mean() for seed in range(3)])
        for routing in ("queue", "least", "random")
    }
    assert wait["queue"] < wait["least"] < wait["random"]


def test_kept_connections_are_used_again_until_they_close() -> None:
    # 9 s apart: the connection has closed (idle 8.7 s), the next is opened anywhere; 2 s apart it is kept
    far = sent([(9.0 * t, 200, 0, 0) for t in range(40)])
    near = sent([(2.0 * t, 200, 0, 0) for t in range(40)])
    assert (simulate(MODEL, Deployment(8, "connections", "gpu"), near, 1).cached[1:] == 199).all()
    assert (simulate(MODEL, Deployment(8, "connections", "gpu"), far, 1).cached[1:] == 0).any()


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from(get_args(Routing)), st.sampled_from(get_args(Reuse)))
def test_every_request_is_served_under_every_router(seed: int, routing: Routing, reuse: Reuse) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 80))
    log = Sent(
        np.cumsum(rng.exponential(0.1, count)),
        rng.integers(1, 900, count).astype(float),
        rng.integers(0, 30, count).astype(float),
        rng.integers(-1, 4, count),
    )
    host = float(rng.integers(1, 3000))
    deployment = Deployment(int(rng.integers(1, 5)), routing, reuse, host, 5000.0)
    answer = simulate(MODEL, deployment, log, seed)
    own = 0.1 + (log.prompt - answer.cached) / 1000.0
    assert (answer.ttft >= own - 1e-6).all()
    np.testing.assert_array_less(answer.ttft - 1e-9, answer.latency + 1e-6)
    assert (answer.cached <= log.prompt - 1).all()
    assert (answer.cached[log.session < 0] == 0).all()
    again = simulate(MODEL, deployment, log, seed)
    np.testing.assert_array_equal(answer.latency, again.latency)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"replicas": 0}, "replicas: got 0"),
        ({"routing": "magic"}, "routing: got 'magic', expected one of queue"),
        ({"reuse": "gpu+ssd"}, r"reuse: got 'gpu\+ssd'"),
    ],
)
def test_a_deployment_that_cannot_be_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Deployment(**fields)  # type: ignore[arg-type]
