"""Prefix caches in an interval under any policy: they find what the policy's own cache finds, and forks are exact."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.baselines.best_policy import fit_best_policy
from agents.baselines.best_static import fit_best_static
from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.policies.pair import PLAIN, CachePolicy, policies_called
from caches.policies.prefix_cache import PolicyPrefixCache
from caches.policies.prefix_notes import Notes, notes_at
from caches.policies.prefix_settings import PREFIX_ADMISSIONS, PREFIX_EVICTIONS, HitDensity, prefix_rules
from caches.policies.settings import Lru
from caches.shadow.chain import ChainState
from envs.control import LaneControl, observation_scale
from envs.interval import COLUMN, STATS, column, total_usd
from envs.lanes import fork
from envs.prefix import PrefixConfig
from envs.prefix_lanes import PREFIX, PrefixLanes
from envs.units import GIB
from envs.world import Reference, World
from tests.caches.test_prefix_policies import check_leaves
from tests.contracts.prefix_contract import Arrive, Finish, Script
from tests.contracts.prefix_policy_contract import model_with
from tests.envs.test_prefix import BLOCK_BYTES, BLOCK_TOKENS, END, PROFILE, interval, prompts, traffic, world_of
from tests.envs.worlds import problem
from traces.trace import Trace

POLICIES = [CachePolicy(*one) for one in itertools.product(PREFIX_EVICTIONS, PREFIX_ADMISSIONS)]
OTHERS = POLICIES[1:]
FEW = [CachePolicy("lfu"), CachePolicy("hit-density"), CachePolicy("lru-2", "second-hit")]
# so fast that every request starts when it arrives
AT_ONCE = PROFILE.model_copy(
    update={"prefill_tokens_per_second": 1e12, "seconds_per_output_token": 1e-12, "kv_tokens": 10**9}
)


def under(world: World, policy: CachePolicy) -> World:
    """With a hit density that learns within a short trace."""
    other = world.under(policy)
    if policy.eviction == "hit-density":
        quick = prefix_rules(HitDensity(every=5, strength=0.5, half_life=20), BLOCK_TOKENS)
        other.rules = quick._replace(admission=other.rules.admission)
    return other


def found(world: World, blocks: list[int]) -> list[float]:
    """Tokens in each interval, of as many leading blocks of each request but the last, which ends the trace."""
    prompt = world.scene.load.prompt[:-1]
    tokens = np.minimum(np.array(blocks) * BLOCK_TOKENS, np.maximum(prompt - 1, 0))
    edges = world.timeline.edges
    return [float(tokens[start:stop].sum()) for start, stop in itertools.pairwise(edges)]


def hit_tokens(world: World, rows: np.ndarray) -> list[float]:
    prompt, edges = world.scene.load.prompt.astype(np.int64), world.timeline.edges
    asked = np.array([prompt[start:stop].sum() for start, stop in itertools.pairwise(edges)])
    return np.where(asked > 0, column(rows, "token_hit_ratio") * asked, 0.0).tolist()


@given(
    traffic(),
    st.sampled_from(OTHERS),
    st.integers(0, 30),
    st.integers(0, 20),
    st.sampled_from([3.0, 1e3]),
    st.sampled_from(["host", "reserved"]),
)
@settings(max_examples=60, deadline=None)
def test_what_is_found_is_what_the_contracts_oracle_finds(
    trace: Trace, policy: CachePolicy, above: int, below: int, ttl: float, placement: Any
) -> None:
    where = PrefixConfig(placement=placement, below_gib=below * BLOCK_BYTES / GIB)
    world = under(world_of(trace, where, profile=AT_ONCE), policy)
    rows = interval(world, above + 0.5, ttl)
    offsets, hashes = trace.block_offsets, trace.block_hashes
    assert offsets is not None
    assert hashes is not None
    paths = tuple(tuple(hashes[start:stop].tolist()) for start, stop in itertools.pairwise(offsets))
    steps = [
        step for t, at in enumerate(trace.arrival_seconds[:-1].tolist()) for step in (Arrive(at, t), Finish(at, t))
    ]
    told = model_with(Script(paths, above, ttl, below, tuple(steps)), world.rules)
    assert hit_tokens(world, rows) == pytest.approx(found(world, [sum(one.answer) for one in told[::2]]))
    assert column(rows, "evictions").sum() == told[-1].stats.evictions


def long_traffic(requests: int) -> Trace:
    """Conversations that go on from one of the last twenty."""
    rng = np.random.default_rng(2)
    made: list[list[int]] = []
    for number in range(requests):
        kept = made[-int(rng.integers(1, 21))] if len(made) >= 20 and rng.random() < 0.7 else []
        made.append([*kept, *(10 * number + np.arange(1, rng.integers(2, 6)))])
    time = np.linspace(0.0, 0.99 * END, requests)
    return prompts(*((float(t), b, len(b) * BLOCK_TOKENS - 9, 5) for t, b in zip(time, made, strict=True)))


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_long_trace_has_the_hits_of_the_policys_own_cache(policy: CachePolicy) -> None:
    """With the catalog's parameters, of which hit density takes in 64 requests at a time."""
    trace = long_traffic(600)
    world = world_of(trace, profile=AT_ONCE, policy=policy)
    cache = PolicyPrefixCache(world.scene.chains, policy.prefix_rules(BLOCK_TOKENS), 100)
    expected = found(world, cache.run_at(trace.arrival_seconds[:-1]).tolist())
    rows = interval(world, 100.5)
    assert hit_tokens(world, rows) == pytest.approx(expected)
    assert column(rows, "evictions").sum() == cache.stats().evictions
    if policy == CachePolicy("hit-density"):
        assert hit_tokens(world, rows) != pytest.approx(hit_tokens(world, interval(world.under(PLAIN), 100.5)))


@given(traffic(), st.sampled_from(["shared", "reserved", "host"]), st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_least_recently_used_by_the_other_kernel_gives_the_rows_of_its_own(
    trace: Trace, placement: Any, seed: int
) -> None:
    """Under load, with warm-ups and a tier below: to the bit."""
    world = world_of(trace, PrefixConfig(placement=placement, below_gib=10 * BLOCK_BYTES / GIB))
    other = world.under(CachePolicy("lfu"))
    other.rules = prefix_rules(Lru(), BLOCK_TOKENS)
    rng = np.random.default_rng(seed)
    wanted = [KnobSettings(rng.uniform(1, 40) * BLOCK_BYTES, ttl, rng.uniform()) for ttl in (0.5, 5.0, 1e3)]
    np.testing.assert_array_equal(world.replay_static(wanted, 4), other.replay_static(wanted, 4))


@given(traffic(), st.sampled_from(OTHERS), st.sampled_from(["shared", "reserved", "host"]), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_whatever_is_done_to_it_a_lane_stays_whole(
    trace: Trace, policy: CachePolicy, placement: Any, seed: int
) -> None:
    """As in test_prefix: settings that jump at random; a fork goes on exactly like its original, down to what it has
    learned; and the leaves are those that may go."""
    world = under(world_of(trace, PrefixConfig(placement=placement, below_gib=10 * BLOCK_BYTES / GIB)), policy)
    chains, lanes, rng = world.scene.chains, world.lanes(2), np.random.default_rng(seed)
    rows = np.empty((2, STATS))
    for index in range(len(world)):
        fork(world.play, lanes, 0, 1)
        setting = np.array([rng.uniform(0, 40) * BLOCK_BYTES, rng.choice([0.5, 5.0, 1e3]), rng.uniform()])
        for lane in range(2):
            world.play.run_interval(world.scene, lanes, lane, index, setting, rows[lane])
        np.testing.assert_array_equal(rows[0], rows[1])
        for name in (*PREFIX.owned, *Notes._fields):
            np.testing.assert_array_equal(getattr(lanes, name)[0], getattr(lanes, name)[1], err_msg=name)
        state = ChainState(*(getattr(lanes, name)[0] for name in ChainState._fields))
        check_leaves(SimpleNamespace(state=state, notes=notes_at(lanes, 0), chains=chains))
        assert 0 <= lanes.taken[0, 0] <= (state.pins > 0).sum()


def busy(placement: Any, policy: CachePolicy, seed: int = 1) -> World:
    rng = np.random.default_rng(seed)
    requests, blocks = [], [*range(8)]
    for number, time in enumerate(np.sort(rng.uniform(0, END, 120))):
        blocks = [*blocks[: rng.integers(1, 8)], *(100 * number + np.arange(4))]
        requests.append((float(time) if number else 0.0, blocks, len(blocks) * BLOCK_TOKENS, int(rng.integers(1, 40))))
    world = world_of(prompts(*requests), PrefixConfig(placement=placement, below_gib=4 * BLOCK_BYTES / GIB))
    return under(world, policy)


@pytest.mark.parametrize("policy", FEW, ids=str)
@pytest.mark.parametrize("placement", ["shared", "host"])
def test_the_reference_on_itself_saves_exactly_nothing_from_any_checkpoint(placement: str, policy: CachePolicy) -> None:
    world = busy(placement, policy)
    reference = Reference(world, KnobSettings(12.0 * BLOCK_BYTES, 5.0, 0.5), (0, 1, 2))
    control = LaneControl(reference, observation_scale(world, reference, range(len(world))), 3, 2)
    for lane in range(3):
        control.reset(lane, reference.checkpoint(lane))
    for _ in range(2):
        assert control.step(np.zeros((3, 3))).tolist() == [0.0, 0.0, 0.0]


def test_in_a_shared_pool_what_was_used_twice_stays() -> None:
    """2,000 tokens. Blocks 1 and 2 are used twice, 3 to 5 once, and later; the long prompt leaves room for 2 blocks
    beside its 1,400 + 400 tokens, and takes in none of its own, or all but what there is room for."""
    requests = (
        (0.0, [1, 2], 200, 1),
        (1.0, [1, 2], 200, 1),
        (2.0, [3, 4, 5], 300, 1),
        (5.0, [*range(10, 24)], 1_400, 400),
        (20.0, [1, 2], 200, 1),
    )
    world = world_of(prompts(*requests), PrefixConfig(placement="shared"))
    plain, other = (interval(world.under(policy), 100)[2] for policy in (PLAIN, CachePolicy("lfu")))
    assert plain[COLUMN["token_hit_ratio"]] == 0.0
    assert other[COLUMN["token_hit_ratio"]] == pytest.approx(199 / 200)  # the last token is always computed


def test_worlds_under_other_policies_share_all_but_the_cache() -> None:
    world = world_of(long_traffic(60))
    other = world.under(CachePolicy("lfu", "second-hit"))
    assert world.under(PLAIN) is world
    assert (world.play, type(world.lanes(1))) == (PREFIX, PrefixLanes)
    assert other.scene is world.scene
    assert other.traffic is world.traffic
    fresh = World(replace(world.problem, policy=CachePolicy("lfu", "second-hit")))
    np.testing.assert_array_equal(interval(fresh, 20), interval(other, 20))
    assert (total_usd(interval(other, 20)) != total_usd(interval(world, 20))).any()
    np.testing.assert_array_equal(interval(other.under(PLAIN), 20), interval(world, 20))


def test_a_ring_of_uses_is_no_longer_than_there_are_uses() -> None:
    world = world_of(long_traffic(60))
    assert world.under(CachePolicy("lfu")).lanes(1).kind.shape == (1, 61)  # one a request
    assert world.under(CachePolicy("hit-density")).lanes(1).kind.shape == (1, len(world.scene.chains.node))


def test_the_policy_is_fitted_with_the_static_setting() -> None:
    world, training = busy("host", PLAIN), range(2)
    some = policies_called(("lru", "lfu", "gdsf"), kind="prefix")
    fitted = fit_best_policy(world, some, training)
    alone = {policy: fit_best_static(world.under(policy), training) for policy in some}
    assert dict(fitted.each) == alone
    assert fitted.fit == alone[fitted.policy]


def test_a_kind_of_cache_has_policies_of_its_own() -> None:
    known = "expected of lru, lru-2, lru-3, lfu, gdsf, hit-density in a prefix cache"
    trace = long_traffic(10)
    with pytest.raises(InputError, match=f"eviction_policy: got 'w-tinylfu', {known}"):
        world_of(trace, policy=CachePolicy("w-tinylfu"))
    with pytest.raises(InputError, match=f"eviction_policy: got 'w-tinylfu', {known}"):
        world_of(trace).under(CachePolicy("w-tinylfu"))
    with pytest.raises(InputError, match="admission: got 'tinylfu', expected of all, second-hit in a prefix cache"):
        world_of(trace).under(CachePolicy("lru", "tinylfu"))
    with pytest.raises(
        InputError, match=r"eviction_policy: got 'hit-density', expected of lru, .* in a response cache"
    ):
        World(problem(policy=CachePolicy("hit-density")))
    with pytest.raises(InputError, match=r"eviction_policy: got 'mru', expected of lru, .*hit-density"):
        CachePolicy("mru")
    assert [one.eviction for one in policies_called("all", kind="prefix")] == list(PREFIX_EVICTIONS)
    with pytest.raises(InputError, match=r"eviction_policy: got 'lfu-lru', expected of lru, .* in a prefix cache"):
        policies_called(("lru", "lfu-lru"), kind="prefix")
