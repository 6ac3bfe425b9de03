"""Many prefix caches side by side under any policy: envs.prefix_lanes around caches.policies.prefix_kernel.

Least recently used stays with envs.prefix_lanes, which remembers nothing. Lanes have the fields of PrefixLanes; to a
checker, tuples of other fields are another type, which is why lanes are not typed here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.policies.prefix_notes import Notes, empty_notes, notes_at
from caches.policies.prefix_settings import HIT_DENSITY, PrefixRules
from envs.lanes import Play
from envs.prefix_lanes import OWNED as PLAIN_OWNED
from envs.prefix_lanes import PrefixScene, lane_of, make_prefix_lanes, run_lane

Array = NDArray[Any]


class PrefixPolicyLanes(NamedTuple):
    """What each lane owns; the first axis is the lane. The first 17 as of envs.prefix_lanes.PrefixLanes, the rest as of
    caches.policies.prefix_notes.Notes. rules: of all lanes."""

    place: Array
    pins: Array
    touched: Array
    older: Array
    newer: Array
    cursor: Array
    counts: Array
    decoding: Array
    joining: Array
    servers: Array
    clock: Array
    running: Array
    held: Array
    added: Array
    taken: Array
    ttft: Array
    latency: Array
    group: Array
    seen: Array
    times: Array
    weight: Array
    value: Array
    recent: Array
    children: Array
    leaf: Array
    spot: Array
    tally: Array
    age: Array
    kind: Array
    since: Array
    waiting: Array
    returned: Array
    lost: Array
    worth: Array
    rules: PrefixRules


OWNED = (*PLAIN_OWNED, *Notes._fields)


def make_prefix_policy_lanes(scene: PrefixScene, rules: PrefixRules, lanes: int) -> PrefixPolicyLanes:
    """Empty caches under the same rules, before idle engines."""
    uses = len(scene.chains.node) if rules.eviction == HIT_DENSITY else len(scene.load.time)
    rules = rules._replace(remembered=min(rules.remembered, max(uses, 1)))  # there are no more, so none is forgotten
    one = empty_notes(len(scene.chains.parent), rules)
    notes = {name: np.repeat(array[None], lanes, axis=0) for name, array in one._asdict().items()}
    return PrefixPolicyLanes(**make_prefix_lanes(scene, lanes)._asdict(), **notes, rules=rules)


@njit(cache=True, nogil=True)
def run_interval(scene: PrefixScene, lanes: Any, lane: int, index: int, settings: Array, row: Array) -> None:
    """As envs.prefix_lanes.run_interval, under the lanes' rules."""
    this = lane_of(lanes, (notes_at(lanes, lane), lanes.rules), lane)
    run_lane(scene, this, index, settings, (lanes.ttft[lane], lanes.latency[lane]), row)


def step_lanes(
    scene: PrefixScene, lanes: Any, part: tuple[int, int], index: Array, settings: Array, rows: Array
) -> None:
    """As envs.lanes.step_lanes. Not compiled: that takes half a minute, and a call is nothing beside an interval."""
    for lane in range(part[0], part[1]):
        run_interval(scene, lanes, lane, index[lane], settings[lane], rows[lane])


def run_static(scene: PrefixScene, lanes: Any, part: tuple[int, int], stop: int, settings: Array, rows: Array) -> None:
    """As envs.lanes.run_static, and as little compiled."""
    for lane in range(part[0], part[1]):
        for index in range(stop):
            run_interval(scene, lanes, lane, index, settings[lane], rows[lane, index])


PREFIX_POLICY = Play(OWNED, (), run_interval, step_lanes, run_static)
