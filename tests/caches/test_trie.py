from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.shadow.trie import FIRST_SLOTS, Chains, chains_of

Path = tuple[int, ...]
prompt_sets = st.lists(st.lists(st.integers(-2, 3), max_size=5).map(tuple), max_size=12)


def chains_from(prompts: list[Path]) -> Chains:
    offsets = np.cumsum([0, *map(len, prompts)])
    return chains_of(offsets, np.array([block for prompt in prompts for block in prompt], np.int64))


@settings(max_examples=200, deadline=None)
@given(prompt_sets)
def test_nodes_are_paths_numbered_as_they_appear(prompts: list[Path]) -> None:
    check_numbers(prompts)


def test_many_nodes_are_numbered_alike() -> None:
    random = np.random.default_rng(1)
    prompts = [tuple(random.integers(0, 4, random.integers(1, 12)).tolist()) for _ in range(4_000)]
    assert check_numbers(prompts) > 4 * FIRST_SLOTS  # the table has grown


def check_numbers(prompts: list[Path]) -> int:
    """Against a dictionary of paths; returns how many there are."""
    numbers: dict[Path, int] = {}
    expected = [
        numbers.setdefault(prompt[: depth + 1], len(numbers)) for prompt in prompts for depth in range(len(prompt))
    ]
    chains = chains_from(prompts)
    assert chains.node.tolist() == expected
    assert chains.parent.tolist() == [numbers[path[:-1]] if len(path) > 1 else -1 for path in numbers]
    assert np.diff(chains.offsets).tolist() == [len(prompt) for prompt in prompts]
    return len(numbers)


def test_equal_ids_behind_different_beginnings_are_different_blocks() -> None:
    # 7 after nothing, after 1, after 2, and after 1 again
    chains = chains_from([(7,), (1, 7), (2, 7), (1, 7)])
    assert chains.node.tolist() == [0, 1, 2, 3, 4, 1, 2]
    assert chains.parent.tolist() == [-1, -1, 1, -1, 3]


def test_an_id_may_follow_itself() -> None:
    assert chains_from([(5, 5, 5), (5, 5)]).node.tolist() == [0, 1, 2, 0, 1]


def test_ids_may_be_any_64_bits() -> None:
    lowest, highest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    assert chains_from([(lowest, highest), (highest, lowest), (lowest, highest)]).node.tolist() == [0, 1, 2, 3, 0, 1]


def test_no_prompts_and_empty_prompts_have_no_blocks() -> None:
    assert chains_from([]).parent.size == 0
    chains = chains_from([(), (1,), ()])
    assert (chains.offsets.tolist(), chains.node.tolist()) == ([0, 0, 1, 1], [0])
