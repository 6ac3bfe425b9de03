"""The same hits as kvcache-simulator, another implementation by other people, to the last block and token.

It keeps a tree and a heap of its leaves, one request after the other. Where it differs, and what is done about it:
- it measures from some request on, and only once its cache is full: here a first request of exactly as many blocks of
  its own fills both caches, and everything after it is measured;
- a prompt longer than the cache throws out its own deepest block for the next one, which then has no parent, so one
  block less is kept; ours refuses the rest. Capacities here hold the longest prompt, and the last test shows this;
- a hit on a prompt's last, partial block counts the tokens that are in it, so hits are compared in blocks and tokens.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from caches.shadow.chain import PrefixCache
from caches.shadow.trie import Chains, chains_of
from traces.catalog import load_trace
from traces.trace import Trace

trace_of_peer = pytest.importorskip(
    "kvcache_sim.trace", reason="kvcache-simulator is not installed (the extra `bench` has it)"
)
plan_of_peer = pytest.importorskip("kvcache_sim.plan")
policies_of_peer = pytest.importorskip("kvcache_sim.policies")
core_of_peer = pytest.importorskip("kvcache_sim.cpp_backend")

BLOCK = 512  # tokens
CAPACITIES = (250, 1_000, 4_000, 16_000, 50_000)  # blocks; the longest prompt has 244
FILLER = 10**9  # the first of the ids of the filling request
Replay = Callable[[object, int], int]  # the peer's trace and a capacity to hit tokens


@pytest.fixture(scope="module")
def mooncake(shared_traces: Path) -> Path:
    return shared_traces / "llm" / "mooncake_conversation.part1.jsonl.gz"


@pytest.fixture(scope="module")
def theirs(mooncake: Path) -> object:
    return trace_of_peer.parse_trace_file(mooncake, block_size=BLOCK)


@pytest.fixture(scope="module")
def ours(mooncake: Path) -> Trace:
    return load_trace(mooncake)


def filled(peer: object, capacity: int) -> object:
    """Their trace, with a first request of `capacity` blocks that nothing else has."""
    extra = [FILLER + block for block in range(capacity)]
    return dataclasses.replace(
        peer,
        ids=extra + peer.ids,
        tokens=[1] * capacity + peer.tokens,
        request_starts=[0] + [capacity + start for start in peer.request_starts],
        request_count=peer.request_count + 1,
    )


def python_backend(peer: object, capacity: int) -> int:
    plan = plan_of_peer.build_execution_plan(peer, warmup_fraction=1.5 / peer.request_count)
    assert plan.warmup_requests == 1
    result = policies_of_peer.simulate_policy(plan, "lru", capacity)
    assert result.measurementMode == "fixed_window"
    return result.hitTokens


def cpp_backend(peer: object, capacity: int) -> int:
    done = core_of_peer.run_cpp_sweep(peer, capacities=[capacity], policies=["lru"], warmup_requests=1)
    return done.results["lru", capacity].hitTokens


def our_hits(peer: object, capacity: int) -> np.ndarray:
    """Leading blocks that hit, of each request of their trace."""
    chains = chains_of(np.array(peer.request_starts), np.array(peer.ids))
    return PrefixCache(chains, capacity).run(peer.request_count)


def compare(peer: object, prompt_tokens: np.ndarray, capacity: int, replay: Replay) -> None:
    whole = filled(peer, capacity)
    hits = our_hits(whole, capacity)[1:]
    assert hits.sum() == replay(dataclasses.replace(whole, tokens=[1] * len(whole.ids)), capacity)
    assert np.minimum(hits * BLOCK, prompt_tokens).sum() == replay(whole, capacity)
    assert 0 < hits.sum() < len(peer.ids)


def test_both_read_the_same_blocks(theirs: object, ours: Trace) -> None:
    chains: Chains = chains_of(ours.block_offsets, ours.block_hashes)
    plan = plan_of_peer.build_execution_plan(theirs)
    assert (chains.node + 1).tolist() == plan.node_for_event  # theirs has a root, node 0
    assert (chains.parent + 1).tolist() == plan.parent[1:]
    assert chains.offsets.tolist() == theirs.request_starts
    assert ours.prompt_tokens.sum() == theirs.total_input_tokens


@pytest.mark.parametrize("capacity", CAPACITIES[:2])
def test_the_first_thousand_requests(mooncake: Path, ours: Trace, capacity: int) -> None:
    peer = trace_of_peer.parse_trace_file(mooncake, block_size=BLOCK, max_records=1_000)
    compare(peer, ours.prompt_tokens[:1_000], capacity, python_backend)


@pytest.mark.skipif(shutil.which("c++") is None, reason="kvcache-simulator's core needs a C++ compiler")
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_the_whole_trace(theirs: object, ours: Trace, capacity: int) -> None:
    compare(theirs, ours.prompt_tokens, capacity, cpp_backend)


def test_the_ceiling_is_a_cache_with_room_for_all(theirs: object, ours: Trace) -> None:
    plan = plan_of_peer.build_execution_plan(theirs, warmup_fraction=0.0)
    hits = our_hits(theirs, plan.unique_blocks)
    assert np.minimum(hits * BLOCK, ours.prompt_tokens).sum() == policies_of_peer.simulate_ceiling(plan).hitTokens


def test_a_prompt_longer_than_the_cache_leaves_one_block_less_there() -> None:
    # two blocks of room, 1 2 3 three times: ours keeps 1 2; theirs throws 2 out for 3, which cannot stand behind 1
    peer = trace_of_peer.TraceData([1, 2, 3] * 3, [1] * 9, [0, 3, 6, 9], 1, 3, 3, 9, 3.0, 0, 0)
    assert our_hits(peer, 2).tolist() == [0, 2, 2]
    assert python_backend(peer, 2) == 1 + 1
