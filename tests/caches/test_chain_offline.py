from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.shadow.chain import PrefixCache
from caches.shadow.chain_offline import clairvoyant_run, endless_run
from caches.shadow.curve import link
from caches.shadow.offline import min_hits
from caches.shadow.trie import Chains, chains_of

Path = tuple[int, ...]
BLOCKS = st.integers(0, 1)


def chains_from(prompts: list[Path]) -> Chains:
    return chains_of(np.cumsum([0, *map(len, prompts)]), np.array([b for prompt in prompts for b in prompt], np.int64))


def best_of_all(prompts: list[Path], room: int) -> int:
    """Every way to choose what is kept after each request, of what was there and what the request brought."""
    best: dict[frozenset[Path], int] = {frozenset(): 0}
    for prompt in prompts:
        paths = [prompt[: depth + 1] for depth in range(len(prompt))]
        after: dict[frozenset[Path], int] = {}
        for kept, hits in best.items():
            run = len(list(itertools.takewhile(kept.__contains__, paths)))
            for chosen in closed_sets(kept | set(paths), room):
                after[chosen] = max(after.get(chosen, 0), hits + run)
        best = after
    return max(best.values())


def closed_sets(blocks: frozenset[Path], room: int) -> list[frozenset[Path]]:
    """Sets of at most `room` blocks that hold the parent of each block that they hold."""
    sets = [frozenset[Path]()]
    for block in sorted(blocks, key=len):
        sets += [one | {block} for one in sets if len(one) < room and (len(block) == 1 or block[:-1] in one)]
    return sets


@given(st.lists(st.lists(BLOCKS, max_size=3).map(tuple), min_size=1, max_size=7), st.integers(0, 4))
@settings(max_examples=150, deadline=None)
def test_nobody_hits_more_and_somebody_hits_as_much(prompts: list[Path], room: int) -> None:
    assert clairvoyant_run(chains_from(prompts), room).sum() == best_of_all(prompts, room)


@given(st.lists(st.lists(st.integers(0, 2), max_size=5).map(tuple), min_size=1, max_size=60), st.integers(0, 20))
@settings(max_examples=100, deadline=None)
def test_lies_between_what_must_take_in_each_block_with_as_much_room_and_with_one_block_more(
    prompts: list[Path], room: int
) -> None:
    chains = chains_from(prompts)
    _, following = link(chains.node, len(chains.parent))
    forced = [min_hits(np.arange(len(chains.node), dtype=float), following, room + more, np.inf) for more in (0, 1)]
    assert forced[0] <= clairvoyant_run(chains, room).sum() <= forced[1]
    assert PrefixCache(chains, room).run(len(prompts)).sum() <= clairvoyant_run(chains, room).sum()


@given(st.lists(st.lists(BLOCKS, max_size=5).map(tuple), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_with_room_for_all_it_is_the_endless_cache(prompts: list[Path]) -> None:
    chains = chains_from(prompts)
    room = len(chains.parent)
    assert clairvoyant_run(chains, room).tolist() == endless_run(chains).tolist()
    assert endless_run(chains).tolist() == PrefixCache(chains, room).run(len(prompts)).tolist()


def test_worked_out_by_hand() -> None:
    # room for 2: of 1 2 3 keep 1 2, which come next; 4 is not taken in; then 1 2 hit, 3 never did
    prompts = [(1, 2, 3), (4,), (1, 2), (4,), (1, 2, 3)]
    assert clairvoyant_run(chains_from(prompts), 2).tolist() == [0, 0, 2, 0, 2]
    # room for 3: 1 2 are needed first, then 4, then 3
    assert clairvoyant_run(chains_from(prompts), 3).tolist() == [0, 0, 2, 1, 2]
    assert clairvoyant_run(chains_from(prompts), 4).tolist() == [0, 0, 2, 1, 3]
    assert endless_run(chains_from(prompts)).tolist() == [0, 0, 2, 1, 3]


def test_a_negative_room_is_refused() -> None:
    with pytest.raises(InputError, match="blocks: got -1, expected 0 or more"):
        clairvoyant_run(chains_from([(1,)]), -1)
