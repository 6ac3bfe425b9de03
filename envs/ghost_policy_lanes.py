"""Ghost lanes under any eviction and admission policy, from Python: more room for keys, rules of a part of the keys,
entries that change arms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.policies.pair import in_miniature
from caches.policies.rules import Rules, rules_from, rules_table
from caches.policies.state import HAND, empty_states
from caches.shadow.kernel import TOUCHED
from envs.ghost_policy_kernels import hand_over_remembered
from envs.policy_lanes import PolicyLanes

Array = NDArray[Any]

LINKS = ("older", "newer")
OF_KEYS = (
    *("entry", "queue", "uses", "weight", "value", "price", "used_at", "history"),
    *("heap_value", "heap_at", "heap_key", "sketch", "asked"),
)


def with_more_keys(lanes: Any, keys: int) -> Any:
    """With room for as many; circles begin behind them."""
    old, number = lanes.entry.shape[1], len(lanes.cursor)
    first, *others = _every(lanes)
    longer = empty_states(first, keys, number, 0, others)._asdict()
    for name in OF_KEYS:
        array = getattr(lanes, name)
        longer[name][:, : array.shape[1]] = array
    for name in LINKS:
        links = getattr(lanes, name)
        moved = np.where(links >= old, links + (keys - old), links)
        longer[name][:, :old], longer[name][:, keys:] = moved[:, :old], moved[:, old:]
    hand = lanes.tally[:, HAND]
    hand[hand == old] = keys  # Sieve's, where it stands at no entry
    return lanes._replace(**{name: longer[name] for name in (*OF_KEYS, *LINKS)})


def for_share(lanes: Any, share: float) -> Any:
    """For a part that sees a share of the keys."""
    if not isinstance(lanes, PolicyLanes):
        return lanes
    return lanes._replace(choices=rules_table([in_miniature(rules, share) for rules in _every(lanes)]))


def _every(lanes: Any) -> list[Rules]:
    """The rules that lanes may come under."""
    return [rules_from(row) for row in lanes.choices]


def hand_over_by_touch(lanes: Any, key: Array, sides: tuple[Array, Array], capacity: Array, time: Array) -> None:
    """As envs.ghost_policy_kernels.hand_over_remembered, least recently touched first, as a live cache hands over."""
    order = np.argsort(lanes.entry[sides[0], key, TOUCHED], kind="stable")
    hand_over_remembered(lanes, key[order], (sides[0][order], sides[1][order]), capacity[order], time)
