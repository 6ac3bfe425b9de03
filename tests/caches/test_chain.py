from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from caches.errors import InputError
from caches.in_process_prefix import InProcessPrefixCache
from caches.shadow import chain
from caches.shadow.chain import PrefixCache
from caches.shadow.trie import Chains, chains_of
from caches.stats import PrefixStats
from tests.contracts.prefix_contract import (
    Arrive,
    Change,
    Finish,
    Path,
    PrefixContract,
    Runner,
    Script,
    Seen,
    Step,
    WarmUp,
    model,
)


def chains_from(prompts: tuple[Path, ...]) -> Chains:
    offsets = np.cumsum([0, *map(len, prompts)])
    return chains_of(offsets, np.array([block for prompt in prompts for block in prompt], np.int64))


def path_of(chains: Chains, prompts: tuple[Path, ...]) -> dict[int, Path]:
    """From the trie's numbers back to paths."""
    return {
        int(node): prompt[: depth + 1]
        for t, prompt in enumerate(prompts)
        for depth, node in enumerate(chains.node[chains.offsets[t] : chains.offsets[t + 1]])
    }


def run_shadow(script: Script) -> list[Seen]:
    chains = chains_from(script.prompts)
    names = path_of(chains, script.prompts)
    return followed_shadow(PrefixCache(chains, script.upper, script.ttl, script.lower), script, names, check_circles)


def followed_shadow(
    cache: PrefixCache, script: Script, names: dict[int, Path], check: Callable[[Any], None]
) -> list[Seen]:
    """check: is called after every step."""

    def take(step: Step) -> tuple[int, ...]:
        if isinstance(step, Arrive):
            return cache.arrive(step.request, step.time)
        if isinstance(step, Finish):
            cache.finish(step.request, step.time)
            return ()
        if isinstance(step, Change):
            cache.apply(step.upper, step.ttl, step.time)
            return ()
        return (cache.warm(step.request, step.time),)

    told = []
    for step in script.steps:
        answer = take(step)
        check(cache)
        upper, lower = (frozenset(names[node] for node in cache.resident(tier)) for tier in (chain.UPPER, chain.LOWER))
        told.append(Seen(answer, cache.stats(), upper, lower))
    return told


def check_circles(cache: PrefixCache) -> None:
    """Each unpinned resident is in its tier's circle once, both ways round, in order of its last use; no other is."""
    state, nodes = cache.state, len(cache.state.place)
    for tier, circle in ((chain.UPPER, nodes), (chain.LOWER, nodes + 1)):
        forward = walk(state.newer, circle)
        assert forward == walk(state.older, circle)[::-1]
        assert sorted(forward) == np.flatnonzero((state.place == tier) & (state.pins == 0)).tolist()
        assert np.all(np.diff(state.touched[forward]) >= 0) or tier == chain.LOWER
        assert state.cursor[tier - 1] == np.count_nonzero(state.place == tier)
    assert np.all(state.place[state.pins > 0] == chain.UPPER)
    assert state.cursor[chain.PINNED] == np.count_nonzero(state.pins)


def walk(neighbour: np.ndarray, circle: int) -> list[int]:
    found: list[int] = []
    at = int(neighbour[circle])
    while at != circle:
        found.append(at)
        assert len(found) <= len(neighbour), "the circle does not close"
        at = int(neighbour[at])
    return found


def run_in_process(script: Script) -> list[Seen]:
    return followed_live(InProcessPrefixCache(script.upper, script.ttl, script.lower), script)


def followed_live(cache: InProcessPrefixCache[int], script: Script) -> list[Seen]:
    def take(step: Step) -> tuple[int, ...]:
        if isinstance(step, Arrive):
            return cache.arrive(step.request, script.prompts[step.request], step.time)
        if isinstance(step, Finish):
            cache.finish(step.request, step.time)
            return ()
        if isinstance(step, Change):
            cache.apply(step.upper, step.ttl, step.time)
            return ()
        return (cache.warm(script.prompts[step.request], step.time),)

    told = []
    for step in script.steps:
        answer = take(step)
        told.append(Seen(answer, cache.stats(), *(frozenset(cache.resident(tier)) for tier in (0, 1))))
    return told


class TestShadow(PrefixContract):
    run = staticmethod(run_shadow)


class TestInProcess(PrefixContract):
    run = staticmethod(run_in_process)


RUNS = pytest.mark.parametrize("run", [run_shadow, run_in_process, model], ids=["shadow", "in process", "model"])


@RUNS
def test_requests_side_by_side_worked_out_by_hand(run: Runner) -> None:
    # A = 1 2 3, B = 1 2 4, C = 5 6, room for 4, none below. A block is written as its path; idle: least recent first.
    steps = (
        Arrive(0.0, 0),  # A misses 3.                                in use 1 12 123
        Arrive(1.0, 1),  # B hits 1 12, misses 124.                   in use 1 12 123 124: full
        Arrive(2.0, 2),  # C misses 2, all is in use: 2 refused.
        Finish(3.0, 0),  # B still has 1 12.                          in use 1 12 124, idle 123
        Finish(4.0, 2),  # C held nothing.
        Arrive(5.0, 2),  # C misses 2: 5 takes the place of 123, 56 finds none: 1 refused.
        Finish(6.0, 1),  # deepest first.                             in use 5, idle 124 12 1
        Finish(7.0, 2),  #                                            idle 124 12 1 5
        Arrive(8.0, 0),  # A hits 1 12, misses 123, and 124 goes.     in use 1 12 123, idle 5
    )
    told = run(Script(((1, 2, 3), (1, 2, 4), (5, 6)), 4, np.inf, 0, steps))
    assert [seen.answer for seen in told] == [(0, 0), (2, 0), (0, 0), (), (), (0, 0), (), (), (2, 0)]
    # misses 3 + 1 + 2 + 2 + 1; what is evicted has nowhere to fall
    counts = PrefixStats(upper_hits=4, misses=9, evictions=2, drops=2, refusals=3, upper_blocks=4)
    assert told[-1] == Seen((2, 0), counts, frozenset({(1,), (1, 2), (1, 2, 3), (5,)}), frozenset())


@RUNS
def test_two_tiers_worked_out_by_hand(run: Runner) -> None:
    # A = 1 2 3, B = 4 5, room for 3 and for 2 below, lifetime 10.
    steps = (
        Arrive(0.0, 0),  # A misses 3
        Finish(1.0, 0),  #                                            above 123 12 1
        Arrive(2.0, 1),  # B misses 2; 123 and 12 fall.               above 1, in use 4 45; below 123 12
        Finish(3.0, 1),  #                                            above 1 45 4
        Arrive(4.0, 0),  # A hits 1 above, 12 123 below; they rise, 45 and 4 fall.             below 45 4
        Finish(5.0, 0),  #                                            above 123 12 1, unused since 5
        Change(15.0, 3, 10.0),  # 10 old: 123 12 1 fall; room for two: 45 4 123 are dropped.   below 12 1
        WarmUp(16.0, 0),  # 1 12 rise, 123 is gone for good.          above 12 1; below nothing
        Arrive(17.0, 1),  # B misses 2; 12 falls.                     above 1, in use 4 45; below 12
        Arrive(18.0, 0),  # A hits 1 above and 12 below, which finds no room above: 12 and 123 are refused.
    )
    told = run(Script(((1, 2, 3), (4, 5)), 3, 10.0, 2, steps))
    assert [seen.answer for seen in told] == [(0, 0), (), (0, 0), (), (1, 2), (), (), (2,), (0, 0), (1, 1)]
    counts = PrefixStats(
        upper_hits=2,
        lower_hits=3,
        misses=8,  # 3 + 2 + 2 + 1
        expirations=3,
        evictions=5,  # 2 + 2 + 1
        refusals=2,
        warmups=2,
        drops=3,
        upper_blocks=3,
        lower_blocks=1,
    )
    assert told[-1] == Seen((1, 1), counts, frozenset({(1,), (4,), (4, 5)}), frozenset({(1, 2)}))


def test_replay_in_turn_equals_arrivals_and_ends() -> None:
    random = np.random.default_rng(3)
    prompts = tuple(tuple(random.integers(0, 3, random.integers(0, 6)).tolist()) for _ in range(200))
    chains = chains_from(prompts)
    one, other = PrefixCache(chains, 20), PrefixCache(chains, 20)
    hits = []
    for t in range(len(prompts)):
        hits.append(sum(one.arrive(t, 0.0)))
        one.finish(t, 0.0)
    assert other.run(len(prompts)).tolist() == hits
    assert one.stats() == other.stats()


def test_what_makes_no_sense_is_refused() -> None:
    cache = PrefixCache(chains_from(((1, 2), (3,))), 4)
    live: InProcessPrefixCache[int] = InProcessPrefixCache(4)
    cache.arrive(0, 1.0)
    live.arrive(0, (1, 2), 1.0)
    with pytest.raises(InputError, match="request: got 0, expected one of the trace's that is not running"):
        cache.arrive(0, 1.0)
    with pytest.raises(InputError, match="request: got 0, expected one that is not running"):
        live.arrive(0, (1, 2), 1.0)
    with pytest.raises(InputError, match="request: got 2, expected one of the trace's"):
        cache.arrive(2, 1.0)
    for finish in (cache.finish, live.finish):
        with pytest.raises(InputError, match="request: got 1, expected one that is running"):
            finish(1, 1.0)
    with pytest.raises(InputError, match="time never goes back"):
        cache.finish(0, 0.5)
    for apply in (cache.apply, live.apply):
        with pytest.raises(InputError, match="blocks: got -1 and 0 below, expected 0 or more"):
            apply(-1, 1.0, 1.0)
        with pytest.raises(InputError, match=r"ttl_seconds: got 0\.0, expected above 0"):
            apply(1, 0.0, 1.0)
