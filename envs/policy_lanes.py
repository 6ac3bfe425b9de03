"""Many caches side by side under any eviction and admission policy: envs.lanes around the kernel of caches.policies.

The eviction policy may change with every interval, as one more setting of it, where there are several to choose from.
Each lane has room for what any of them keeps. Least recently used without a rule of admission, if it is alone, stays
with envs.lanes, which needs no queues. Lanes have the fields of envs.lanes.Lanes, so its functions for the backend and
for money take them; to a checker, tuples of other fields are another type, which is why lanes are not typed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.policies import kernel as policy_kernel
from caches.policies.changing import change_policy
from caches.policies.rules import Rules, rules_at, rules_table
from caches.policies.state import GROWING, empty_states, state_at
from caches.shadow import kernel
from envs.lanes import OWNED as PLAIN_OWNED
from envs.lanes import Play, Scene, account, count_outcomes, make_lanes, open_slots, serve_misses
from envs.serving import NOTHING_SERVED

Array = NDArray[Any]
WITHOUT_CHOICE = 3  # numbers in settings that say nothing of the policy


class PolicyLanes(NamedTuple):
    """What each lane owns; the first axis is the lane. The first 14 as of envs.lanes.Lanes, the rest as of
    caches.policies.state.State. current: int64 (lanes, 1), the policy that each is under, as a row of choices. choices:
    float64 (policies, numbers), see caches.policies.rules.rules_table; of all lanes. A lane begins under the first."""

    entry: Array
    cursor: Array
    counts: Array
    warm_at: Array
    warm_key: Array
    warm_time: Array
    slots: Array
    slots_used: Array
    fetched: Array
    outcome: Array
    age: Array
    missed: Array
    ttft: Array
    latency: Array
    older: Array
    newer: Array
    queue: Array
    uses: Array
    tally: Array
    cache_age: Array
    weight: Array
    value: Array
    price: Array
    used_at: Array
    history: Array
    heap_value: Array
    heap_at: Array
    heap_key: Array
    sketch: Array
    asked: Array
    current: Array
    choices: Array


OWNED = (*PLAIN_OWNED, *PolicyLanes._fields[14:-1])


def make_policy_lanes(scene: Scene, rules: Sequence[Rules], num_keys: int, lanes: int, warmup_room: int) -> PolicyLanes:
    """Empty caches, before idle backends. rules: that they may come under, all with one rule of admission."""
    caches = empty_states(rules[0], num_keys, lanes, warmup_room, rules[1:])
    return PolicyLanes(
        **(make_lanes(scene, 0, lanes, 0)._asdict() | caches._asdict()),
        current=np.zeros((lanes, 1), np.int64),
        choices=rules_table(rules),
    )


@njit(cache=True)
def rules_now(lanes: Any, lane: int) -> Rules:
    """Those that a lane is under."""
    return rules_at(lanes.choices, lanes.current[lane, 0])


@njit(cache=True)
def bring_under(lanes: Any, lane: int, settings: Array, now: float) -> None:
    """The policy that settings name. settings: three knobs, and behind them the number of a policy, or nothing, which
    leaves it as it is."""
    if settings.size > WITHOUT_CHOICE and settings[WITHOUT_CHOICE] != lanes.current[lane, 0]:
        lanes.current[lane, 0] = int(settings[WITHOUT_CHOICE])
        change_policy(state_at(lanes, lane), rules_now(lanes, lane), int(settings[0]), now)


@njit(cache=True)
def run_interval(scene: Scene, lanes: Any, lane: int, index: int, settings: Array, row: Array) -> None:
    """As envs.lanes.run_interval, settings as of `bring_under`; what a miss costs a policy is its GPU seconds."""
    now = scene.start + index * scene.seconds
    bring_under(lanes, lane, settings, now)
    at, stop = scene.edges[index], scene.edges[index + 1]
    before = lanes.counts[lane].copy()
    wanted = int(np.round(settings[2] * scene.candidate_count[index]))
    taken = policy_kernel.advance(
        scene.requests,
        state_at(lanes, lane),
        kernel.Limits(int(settings[0]), settings[1], scene.since_touch),
        kernel.Moment(at, now, now + scene.seconds),
        scene.candidates[index, :wanted],
        stop,
        kernel.Record(lanes.fetched[lane], lanes.outcome[lane], lanes.age[lane]),
        rules_now(lanes, lane),
        scene.gpu,
    )
    warm_compute = 0.0
    for w in range(taken):
        warm_compute += scene.gpu[lanes.fetched[lane, w]]
    misses, compute, tokens, hit_tokens, stale = count_outcomes(scene, lanes, lane, (at, stop))
    counted = (taken, warm_compute, misses, compute, tokens, hit_tokens, stale)
    open_slots(scene, lanes, lane, now, settings)
    served = serve_misses(scene, lanes, lane, (0, misses), NOTHING_SERVED)
    account(scene, lanes, lane, settings, before, counted, served, row)


@njit(cache=True, nogil=True)
def step_lanes(scene: Scene, lanes: Any, part: tuple[int, int], index: Array, settings: Array, rows: Array) -> None:
    """As envs.lanes.step_lanes."""
    for lane in range(part[0], part[1]):
        run_interval(scene, lanes, lane, index[lane], settings[lane], rows[lane])


@njit(cache=True, nogil=True)
def run_static(scene: Scene, lanes: Any, part: tuple[int, int], stop: int, settings: Array, rows: Array) -> None:
    """As envs.lanes.run_static."""
    for lane in range(part[0], part[1]):
        for index in range(stop):
            run_interval(scene, lanes, lane, index, settings[lane], rows[lane, index])


POLICY = Play(OWNED, GROWING, run_interval, step_lanes, run_static)
