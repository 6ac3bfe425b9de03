"""The what-if controller where it chooses the eviction policy as well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from agents.baselines.best_policy import fit_best_policy
from agents.baselines.simple import Static
from agents.baselines.whatif_fit import controller_for, fit_choosing, fit_whatif
from agents.bundle import MANIFEST_FILE, PolicyBundle
from agents.bundle_policy import BundlePolicy
from agents.evaluation import count_changes
from agents.judge import judge
from agents.policy import Ghosts, Sight
from agents.rollout import roll_out
from agents.rules import arrays_of
from agents.study import Split, Study, open_study
from agents.tracks import Champion, Contender, Depth
from agents.uncertainty import Resampling
from agents.whatif import WhatIf, WhatIfController
from caches.errors import InputError
from caches.knobs import Knob, KnobSettings, KnobSpace
from caches.policies.pair import CachePolicy, policies_called
from envs.ghosts import choice_grid, ghost_grid
from envs.interval import STATS, total_usd
from envs.reward import Constraints
from envs.world import World
from tests.agents.sights import sight_of
from tests.agents.test_judge import SHA256, static_bundle
from tests.envs.worlds import INTERVAL_SECONDS, PRICES, problem
from traces.trace import Trace, TraceInfo

FREE = Constraints(p99_ttft_seconds=1e6, stale_ratio=1.0)
TWO = policies_called(("lru", "lfu"))
HOME, FAR = (0.5, 0.5, 0.5), (0.5, 0.25, 0.5)
PLAIN = WhatIf(memory=0.5, margin=0.1, charge=0.0, horizon=4, unsafe_memory=0.5)
NARROW = KnobSpace(  # so that the eviction policy alone matters
    Knob("cache_size", "bytes", 1_000.0, 1_010.0, 1_005.0, 1.0, "log"),
    Knob("ttl_seconds", "seconds", 90.0, 100.0, 100.0, 1.0, "log"),
    Knob("warmup_ratio", "share", 0.0, 0.001, 0.0, 1.0, "linear"),
)
FROZEN = NARROW.default()
FRESH = PRICES.model_copy(update={"stale_answer_usd": 0.0})
PHASE = 10  # intervals


# --- by hand ----------------------------------------------------------------------------------------------------------


def controller(options: WhatIf = PLAIN) -> WhatIfController:
    return WhatIfController(np.array(HOME), np.full(3, 0.25), 0.0, options, TWO)


def seen(usd: list[list[float]], choice: int = 0, unsafe: list[list[bool]] | None = None) -> Sight:
    """Costs at HOME and FAR under the first policy, then under the second."""
    broken = np.zeros(np.shape(usd), bool) if unsafe is None else np.array(unsafe)
    ghosts = Ghosts(np.array([HOME, FAR, HOME, FAR]), np.array(usd), broken, np.array([0, 0, 1, 1]))
    return replace(sight_of(HOME, interval=len(usd[0]), ghosts=ghosts), choice=choice)


def test_it_goes_where_and_under_what_it_was_cheapest() -> None:
    policy = controller()
    assert policy.propose(seen([[1.0], [0.9], [0.8], [0.5]])).tolist() == list(FAR)
    assert (policy.choice, policy.target.tolist()) == (1, [*FAR, 1.0])
    policy.reset(0)
    assert policy.propose(seen([[1.0], [0.5], [0.8], [0.9]])).tolist() == list(FAR)
    assert policy.choice == 0


def test_a_change_of_the_policy_is_charged_as_a_full_range() -> None:
    """Charge 1 of 4 intervals: a quarter of a cost. Saving 0.3 at once leaves 0.05 an interval; back again as much."""
    charged = replace(PLAIN, charge=1.0, margin=0.04)
    policy = controller(charged)
    assert policy.propose(seen([[1.0], [1.0], [0.7], [1.0]])).tolist() == list(HOME)
    assert policy.choice == 1
    assert controller(replace(charged, margin=0.051)).propose(seen([[1.0], [1.0], [0.7], [1.0]])).tolist() == list(HOME)
    strict = controller(replace(charged, margin=0.051))
    strict.propose(seen([[1.0], [1.0], [0.7], [1.0]]))
    assert strict.choice == 0
    policy.propose(replace(seen([[0.5, 0.5], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]], choice=1), interval=2))
    assert policy.choice == 0


def test_the_way_to_a_ghost_begins_at_home_under_its_own_policy() -> None:
    """Half the way to FAR under the second policy: half of what FAR saves there, so 0.75 against 1."""
    half = replace(PLAIN, reach=0.5, margin=0.2499)
    usd = [[1.0], [1.0], [1.0], [0.5]]
    policy = controller(half)
    assert policy.propose(seen(usd)).tolist() == [0.5, 0.375, 0.5]
    assert policy.choice == 1
    assert controller(replace(half, margin=0.25)).propose(seen(usd)).tolist() == list(HOME)


def test_unsafe_policies_are_out() -> None:
    policy = controller()
    policy.propose(seen([[1.0], [0.8], [0.1], [0.1]], unsafe=[[False], [False], [True], [True]]))
    assert policy.choice == 0
    assert policy.target.tolist() == [*FAR, 0.0]


def test_one_without_choices_looks_at_its_own_policy_only() -> None:
    alone = WhatIfController(np.array(HOME), np.full(3, 0.25), 0.0, PLAIN)
    assert alone.propose(seen([[1.0], [0.9], [0.1], [0.1]])).tolist() == list(HOME)
    assert alone.target.tolist() == list(HOME)


def test_what_it_remembers_is_checked() -> None:
    policy = controller()
    policy.recall(np.array([*FAR, 1.0]))
    assert (policy.choice, policy.target.tolist()) == (1, [*FAR, 1.0])
    with pytest.raises(InputError, match="expected 4 finite numbers"):
        policy.recall(np.array(FAR))
    for odd in (2.0, 0.5, -1.0):
        with pytest.raises(InputError, match=f"target: got choice {odd:g}, expected 0 to 1"):
            policy.recall(np.array([*FAR, odd]))


# --- in a world -------------------------------------------------------------------------------------------------------


def turning() -> Trace:
    """Ten intervals of four lasting keys, asked for twice in a row, among much that comes once; then ten in which ever
    new keys are asked for twice, with seven others in between; a cache holds ten. Counting uses is right in the first,
    and keeps what is over in the second."""
    rng = np.random.default_rng(3)
    key: list[int] = []
    for phase in range(6):
        new = 1_000 * (phase + 1)
        if phase % 2 == 0:
            for turn in range(240):
                key += [turn % 4, turn % 4, *(new + 5 * turn + one for one in range(4))]
        else:
            for turn in range(600):
                key += [new + turn, new + max(turn - 4, 0)]
    time = np.sort(rng.uniform(0.0, 6 * PHASE * INTERVAL_SECONDS, len(key)))
    time[0], time[-1] = 0.0, 6 * PHASE * INTERVAL_SECONDS
    dense, key_array = np.unique(key, return_inverse=True)
    return Trace(
        info=TraceInfo("turning", "by hand", start_unix_seconds=1_000_000.0),
        arrival_seconds=time,
        key=key_array.astype(np.int32),
        size_bytes=np.full(len(key), 100, np.int32),
        num_keys=len(dense),
        prompt_tokens=np.full(len(key), 100, np.int32),
        output_tokens=np.full(len(key), 20, np.int32),
        sha256=SHA256,
    )


@pytest.fixture(scope="module")
def study() -> Study:
    world = World(problem(turning(), constraints=FREE, knobs=NARROW, prices=FRESH))
    grid = ghost_grid(world)
    opened = open_study(world, Split(0.4, 0.3), FROZEN, horizon=5, starts=2, grid=grid)
    return replace(opened, every=choice_grid(world, TWO, FROZEN, {TWO[0]: (grid.usd, grid.unsafe)}))


def test_ghosts_under_each_policy_are_those_of_its_own_world(study: Study) -> None:
    every, size = study.every, len(ghost_grid(study.world).settings) + 1
    assert every is not None
    assert every.choices == TWO
    assert every.policy.tolist() == [0] * size + [1] * size
    for number, policy in enumerate(TWO):
        own = World(replace(study.world.problem, policy=policy))
        mine = every.policy == number
        np.testing.assert_array_equal(every.usd[mine][:-1], ghost_grid(own).usd)
        np.testing.assert_array_equal(every.usd[mine][-1], total_usd(own.replay_static([FROZEN], len(own))[0]))
        np.testing.assert_array_equal(every.positions[mine][-1], NARROW.positions(FROZEN))


def test_its_way_is_the_kernel_under_what_it_chose(study: Study) -> None:
    """And beside it others go as if nobody chose."""
    policies = [
        Static("still", FROZEN, FROZEN, NARROW),
        controller_for(study, WhatIf(0.6, 0.003, 0.0), TWO),
        controller_for(study, WhatIf(0.6, 0.003, 0.0)),
    ]
    told = roll_out(study.reference, study.scale, policies, study.test, 0, study.grid, study.every)
    alone = roll_out(study.reference, study.scale, policies[::2], study.test, 0, study.grid)
    np.testing.assert_array_equal(told.rows[::2], alone.rows)
    assert {0, 1} == set(told.choice[1].tolist())
    assert not told.choice[::2].any()

    world = study.world.choosing(TWO)
    lanes, rows = world.lanes(1), np.empty((study.test.stop, STATS))
    for index in range(study.test.stop):
        step = index - study.test.start
        values, choice = (FROZEN.as_array(), 0) if step < 0 else (told.settings[1, step], told.choice[1, step])
        settings = np.append(values, choice)
        world.play.run_interval(world.scene, lanes, 0, index, settings, rows[index])
    np.testing.assert_array_equal(told.rows[1], rows[study.test.start :])


def test_choosing_pays_where_neither_policy_is_always_right(study: Study) -> None:
    assert study.grid is not None
    fixed = fit_whatif(study, study.grid)
    chosen = fit_choosing(study, study.grid, fixed)
    assert chosen.choices == TWO
    told = roll_out(study.reference, study.scale, [fixed, chosen], study.test, 0, study.grid, study.every)
    assert told.usd[1].sum() < 0.97 * told.usd[0].sum()
    lfu = World(replace(study.world.problem, policy=TWO[1]))
    there = open_study(lfu, Split(0.4, 0.3), FROZEN, horizon=5, starts=2, grid=ghost_grid(lfu))
    assert there.grid is not None
    other = fit_whatif(there, there.grid)
    rows = roll_out(there.reference, there.scale, [other], there.test, 0, there.grid).usd
    assert told.usd[1].sum() < rows.sum()
    assert fit_choosing(replace(study, every=None), study.grid, fixed) is fixed


def test_choices_have_to_be_those_of_the_ghosts(study: Study) -> None:
    other = controller_for(study, PLAIN, policies_called(("lru", "sieve")))
    with pytest.raises(InputError, match="got choices lru, sieve, expected those of the ghosts: lru, lfu"):
        roll_out(study.reference, study.scale, [other], study.test, 0, study.grid, study.every)
    with pytest.raises(InputError, match="expected those of the ghosts: none"):
        roll_out(study.reference, study.scale, [other], study.test, 0, study.grid)


# --- as a bundle, and judged ------------------------------------------------------------------------------------------


def bundle_of(study: Study, rule: WhatIfController) -> PolicyBundle:
    static = replace(static_bundle(FROZEN), knob_space=NARROW)
    return replace(static, kind="whatif", scale=study.scale, weights=arrays_of(rule), choices=rule.choices)


def test_a_bundle_keeps_the_choices(tmp_path: Path, study: Study) -> None:
    rule = controller_for(study, PLAIN, TWO)
    bundle = bundle_of(study, rule)
    bundle.save(tmp_path / "b")
    again = PolicyBundle.load(tmp_path / "b")
    assert again.sha256 == bundle.sha256
    assert again.choices == TWO
    policy = BundlePolicy("it", again)
    assert (policy.choices, policy.choice) == (TWO, 0)
    policy.recall([*FAR, 1.0])
    assert (policy.choice, policy.memory()) == (1, [*FAR, 1.0])
    replace(bundle, choices=()).save(tmp_path / "c")
    assert "choices" not in orjson.loads((tmp_path / "c" / MANIFEST_FILE).read_bytes())["bundle"]


def test_choices_of_another_kind_or_around_another_policy_are_refused(study: Study) -> None:
    bundle = bundle_of(study, controller_for(study, PLAIN, TWO))
    with pytest.raises(InputError, match="choices: got lru, lfu in a policy of kind 'static'"):
        replace(static_bundle(FROZEN), knob_space=NARROW, choices=TWO)
    for odd in (TWO[::-1], TWO[:1]):
        with pytest.raises(InputError, match="in a what-if controller several, of which lru is the first"):
            replace(bundle, choices=odd)
    with pytest.raises(InputError, match="eviction_policy: got 'sieve', expected none beside policy"):
        replace(bundle, reference=replace(FROZEN, eviction_policy="sieve"))


def test_it_is_judged_with_its_choices(study: Study) -> None:
    assert study.grid is not None
    bundle = bundle_of(study, fit_choosing(study, study.grid, fit_whatif(study, study.grid)))
    learned = [Contender(BundlePolicy("what-if controller", bundle), None, 1)]
    judged = judge(
        replace(study, every=None), learned, Champion(7, bundle), Resampling(resamples=200), depth=Depth.QUICK
    )
    mine, champion = judged.track(1), next(track for track in judged.tracks if track.role == "champion")
    np.testing.assert_array_equal(mine.rows, champion.rows)
    assert mine.choices == TWO
    assert mine.choice is not None
    counts = np.bincount(mine.choice)
    told = f"chooses the eviction policy: lru in {counts[0]}, lfu in {counts[1]} of the 18 intervals."
    assert f"what-if controller {told}" in judged.evaluation.notes
    best = next(one for one in judged.evaluation.policies if one.role == "learned")
    assert best.saving is not None
    assert best.saving.usd_per_1000.mean > 0


def test_a_change_of_the_policy_is_a_change_of_settings() -> None:
    still, before = np.tile(HOME, (4, 1)), np.array(HOME)
    assert count_changes(still, before) == 0
    assert count_changes(still, before, np.array([0, 1, 1, 0])) == 2
    assert count_changes(still, before, np.array([1, 1, 1, 1])) == 1
    moved = still.copy()
    moved[1:] = FAR
    assert count_changes(moved, before, np.array([0, 1, 1, 0])) == 2


def test_the_fit_of_the_best_policy_keeps_what_each_grid_cost() -> None:
    world = World(problem(turning(), constraints=FREE, knobs=NARROW, prices=FRESH))
    found = fit_best_policy(world, TWO, range(20))
    for policy, (usd, unsafe) in found.costs.items():
        grid = ghost_grid(world.under(policy))
        np.testing.assert_array_equal(usd, grid.usd)
        np.testing.assert_array_equal(unsafe, grid.unsafe)
    assert set(found.costs) == set(TWO)
    assert isinstance(found.fit.settings, KnobSettings)
    assert CachePolicy() in found.costs
