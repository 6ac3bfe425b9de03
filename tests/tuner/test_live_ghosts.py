"""Live ghosts beside training's: the same features at a rate of 1, and within their own errors below."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.policies.pair import PLAIN, CachePolicy
from caches.target import Arm, Plan, Split
from envs.control import observation_scale
from envs.ghosts import ghost_grid, joined
from envs.interval import total_usd
from envs.journal import places
from envs.observation import whatif_table
from envs.traffic import DRIFT, ENTROPY, NEW_KEY, ONE_HIT, OUTPUT, PROMPT, REQUESTS
from envs.world import Reference, World
from tests.envs.test_ghost_lanes import by_appearance
from tests.envs.worlds import INTERVAL_SECONDS, KNOBS, SETTINGS, problem, random_trace
from tests.tuner.ghost_traffic import ALONE, HERE, asked, everything, handed, intervals, popular, rules_of
from tuner.keys.ghosts import LiveGhosts
from tuner.keys.stream import Pending
from tuner.keys.view import Viewpoint
from tuner.loop.sight import AVERAGES, averaged

SMALL = World(problem(by_appearance(random_trace(3, 20, 30.0)), entry_overhead_bytes=20))


@pytest.mark.parametrize("policy", [PLAIN, CachePolicy("s3-fifo"), CachePolicy("gdsf", "second-hit")], ids=str)
def test_at_a_rate_of_one_everything_is_as_in_training(policy: CachePolicy) -> None:
    """To the last bit: traffic, reference, neighbours, grid, and the averages that policies observe."""
    world = SMALL.under(policy)
    reference = Reference(world, SETTINGS, ())
    grid = joined(ghost_grid(world), reference)
    scale = observation_scale(world, reference, range(12))
    table = whatif_table(reference.ghost_usd, reference.usd, scale)
    ghosts = LiveGhosts(rules_of(world.problem), [HERE])
    averages = np.zeros(AVERAGES)
    for index, found in enumerate(intervals(world, ghosts, everything(world))):
        seen = ghosts.seen(HERE)
        np.testing.assert_array_equal(seen.traffic, world.traffic[index])
        assert seen.reference_usd == reference.usd[index]
        np.testing.assert_array_equal(seen.ghost_usd, reference.ghost_usd[:, index])
        assert seen.ghosts is not None
        np.testing.assert_array_equal(seen.ghosts.positions, grid.positions)
        np.testing.assert_array_equal(seen.ghosts.usd, grid.usd[:, : index + 1])
        np.testing.assert_array_equal(seen.ghosts.unsafe, grid.unsafe[:, : index + 1])
        averages = averaged(averages, seen, scale)
        np.testing.assert_array_equal(averages, table[index + 1])
        errors = ghosts.errors(HERE)
        assert errors.reference_usd == 0.0
        assert not errors.ghost_usd.any()
        assert not np.nan_to_num(found.traffic_error).any()
        assert (found.rate, found.late, found.notes) == (1.0, 0, ())
    assert grid.unsafe.any()
    assert (grid.usd.std(axis=0) > 0).all()


def test_a_tenth_of_the_keys_is_off_as_far_as_it_says() -> None:
    """Of twelve samples of some 350 keys each. What a neighbour of another size saves is known better than what either
    costs, and nothing is off on one side only. The arms' ghosts may follow 400 requests here."""
    wanted = popular(4_000, 24_000, 10)
    world, knobs = World(wanted), wanted.knobs
    reference, view = Reference(world, knobs.default(), ()), Viewpoint(knobs, knobs.default())
    plan = Plan(Split(), knobs.default(), knobs.default())
    off, saved, fresh, share = [], [], [], []
    for seed in range(12):
        ghosts = LiveGhosts(rules_of(wanted, rate=0.1, most_arm_requests=400), [view])
        for index, found in enumerate(intervals(world, ghosts, everything(world, seed), plan)):
            if index < 3:
                continue
            assert found.rate == 0.1
            assert found.arm_rate in (0.125, 0.0625)
            seen, errors = ghosts.seen(view), ghosts.errors(view)
            saving = (seen.reference_usd - seen.ghost_usd) - (reference.usd[index] - reference.ghost_usd[:, index])
            off.append((seen.reference_usd - reference.usd[index]) / errors.reference_usd)
            saved.append(saving[:4] / errors.saving_usd[:4])
            share.append(errors.reference_usd / reference.usd[index])
            counted = [REQUESTS, ENTROPY, DRIFT, ONE_HIT, PROMPT, OUTPUT]
            np.testing.assert_allclose(found.traffic[counted], world.traffic[index][counted], rtol=1e-9)
            fresh.append((found.traffic[NEW_KEY] - world.traffic[index][NEW_KEY]) / found.traffic_error[NEW_KEY])
    assert 0.02 < np.median(share) < 0.15
    for errors_of in (np.array(off), np.array(saved), np.array(fresh)):
        assert (abs(errors_of) < 2.0).mean() > 0.8
        assert (abs(errors_of) < 3.0).mean() > 0.93
        assert abs(errors_of.mean()) < 0.7
        assert errors_of.std() > 0.5  # the errors are not said to be larger than they are either


def test_the_control_arm_alone_is_the_cache_under_its_settings() -> None:
    expected = total_usd(SMALL.replay_static([SETTINGS], len(SMALL))[0])
    ghosts = LiveGhosts(rules_of(SMALL.problem), [Viewpoint(KNOBS, KNOBS.default())])
    found = [one.arms for one in intervals(SMALL, ghosts, everything(SMALL))]
    assert [list(arms) for arms in found] == [[Arm.CONTROL]] * len(SMALL)
    np.testing.assert_array_equal([arms[Arm.CONTROL].usd for arms in found], expected)


def test_each_arm_has_its_own_requests_and_its_share_of_the_rent() -> None:
    """A quarter of the keys. Where nobody asks for anything, the arms' costs are their shares of the rent."""
    batch = everything(SMALL)
    batch = replace(batch, treatment=places(batch.id * np.uint64(3)) < 0.25)
    plan = Plan(Split("salt", 0.25), replace(SETTINGS, warmup_ratio=0.0), KNOBS.default())
    ghosts = LiveGhosts(rules_of(SMALL.problem), [HERE])
    rent = 2_000.0 / 2**30 * INTERVAL_SECONDS / 3600.0 * 4_000.0
    for found in intervals(SMALL, ghosts, batch, plan):
        assert list(found.arms) == [Arm.CONTROL, Arm.TREATMENT]
        assert found.arms[Arm.CONTROL].usd > 0.75 * rent
        assert found.arms[Arm.TREATMENT].usd > 0.25 * rent
    ghosts.begin(1_000.0, INTERVAL_SECONDS)
    ghosts.feed(handed(asked([], [])))
    idle = ghosts.close(plan).arms
    assert idle[Arm.CONTROL].usd == pytest.approx(0.75 * rent)
    assert idle[Arm.TREATMENT].usd == pytest.approx(0.25 * rent)


def test_a_draft_goes_on_from_what_the_control_arm_holds() -> None:
    """Under the control's own settings it costs what the control costs, from its first interval on; and it ends."""
    ghosts = LiveGhosts(rules_of(SMALL.problem), [HERE])
    pending = Pending()
    pending.add(everything(SMALL))
    for index in range(len(SMALL)):
        ghosts.begin(SMALL.timeline.begin(index), INTERVAL_SECONDS)
        ghosts.feed(pending.take(SMALL.timeline.begin(index + 1)))
        drafts = {"same": SETTINGS, "other": replace(SETTINGS, cache_size=500.0)} if 4 <= index < 12 else {}
        found = ghosts.close(ALONE, drafts)
        assert list(found.drafts) == list(drafts)
        if drafts:
            assert found.drafts["same"] == found.arms[Arm.CONTROL]
            assert found.drafts["other"] != found.arms[Arm.CONTROL]
    ghosts.begin(1_000.0, INTERVAL_SECONDS)
    with pytest.raises(InputError, match="got the name control"):
        ghosts.close(ALONE, {"control": SETTINGS})


def test_what_comes_late_counts_as_come_at_the_beginning() -> None:
    """Key 1 is asked for at 3 s. Its request of 8 s is seen in the interval from 10 s on, and is of no new key."""
    ghosts = LiveGhosts(rules_of(problem()), [HERE])
    pending = Pending()
    pending.add(asked([1], [3.0]))
    ghosts.begin(0.0, 10.0)
    ghosts.feed(pending.take(10.0))
    ghosts.close(ALONE)
    pending.add(asked([2, 1], [12.0, 8.0]))
    ghosts.begin(10.0, 10.0)
    ghosts.feed(pending.take(20.0))
    found = ghosts.close(ALONE)
    assert found.late == 1
    assert found.traffic[[REQUESTS, NEW_KEY]].tolist() == [2.0, 0.5]


def test_tokens_are_assumed_until_an_answer_states_some() -> None:
    """1,000 of a prompt, and a token for 4 of 100 bytes, as the rules of these tests say."""
    ghosts = LiveGhosts(rules_of(problem()), [HERE])
    silent = replace(asked([1, 2], [1.0, 2.0]), prompt=np.zeros(2, np.int32), output=np.zeros(2, np.int32))
    told = []
    for index, batch in enumerate((silent, asked([1, 2], [11.0, 12.0]), replace(silent, time=silent.time + 20.0))):
        ghosts.begin(10.0 * index, 10.0)
        ghosts.feed(handed(batch))
        told.append(ghosts.close(ALONE).traffic[[PROMPT, OUTPUT]].tolist())
    assert told == [[1_000.0, 25.0], [50.0, 5.0], [0.0, 0.0]]


def test_too_many_keys_halve_the_rate_and_spoil_one_interval() -> None:
    """Two hundred keys in the second interval, of which 100 may be followed."""
    rules = rules_of(problem(), most_keys=100, most_arm_keys=100, horizon_seconds=1e9)
    ghosts = LiveGhosts(rules, [HERE])
    rng = np.random.default_rng(0)
    told = []
    for index, keys in enumerate((50, 200, 200, 200)):
        batch = asked(rng.permutation(keys), np.sort(rng.uniform(10.0 * index, 10.0 * index + 10.0, keys)))
        ghosts.begin(10.0 * index, 10.0)
        ghosts.feed(handed(batch))
        told.append(ghosts.close(ALONE))
    assert [one.traffic[REQUESTS] for one in told] == [50.0, 200.0, 200.0, 200.0]
    assert np.isnan(told[1].traffic[NEW_KEY])
    assert np.isnan(told[1].arms[Arm.CONTROL].usd)
    for name in ("the grid's ghosts", "the ghosts of arms"):
        note = f"The keys that {name} follow were halved, to a share of 0.5: there are more than 100."
        assert note in told[1].notes
    for rates in ([one.rate for one in told], [one.arm_rate for one in told]):
        assert rates == [1.0, ghosts.rate, ghosts.rate, ghosts.rate]
    assert ghosts.rate < 1.0
    assert max(max(one.keys, one.arm_keys) for one in told) <= 100
    seen = ghosts.seen(HERE)
    assert seen.ghosts is not None
    assert seen.ghosts.usd.shape[1] == 3  # what is not known is left out
    assert np.isfinite(seen.ghosts.usd).all()
    assert told[3].traffic[NEW_KEY] == 0.0
    assert told[3].traffic[ENTROPY] == pytest.approx(np.log2(200.0))


def test_too_many_requests_halve_the_rate_for_the_next_interval() -> None:
    ghosts = LiveGhosts(rules_of(problem(), most_requests=100), [HERE])
    batch = asked(np.arange(50).repeat(5), np.linspace(0.0, 9.0, 250))
    ghosts.begin(0.0, 10.0)
    ghosts.feed(handed(batch))
    found = ghosts.close(ALONE)
    assert found.rate == 1.0
    assert np.isfinite(found.traffic[ENTROPY])
    assert ghosts.rate == 0.25
    assert len(found.notes) == 2
    assert found.notes[0] == (
        "The keys that the grid's ghosts follow were halved, to a share of 0.5: they were asked for 250 times in an "
        "interval."
    )


def test_arms_are_followed_exactly_however_small_the_grids_sample() -> None:
    """A grid of a fourth of the keys, halved once more on the way. The arms, what policies wanted and the traffic are
    to the last bit what ghosts of all keys say, split or not; and the sample is by the keys' hashes."""
    batch = everything(SMALL)
    halves = Plan(Split("salt", 0.5), SETTINGS, KNOBS.default())
    split = replace(batch, treatment=places(batch.id * np.uint64(3)) < 0.5)
    for plan, traffic in ((ALONE, batch), (halves, split)):
        whole = LiveGhosts(rules_of(SMALL.problem), [HERE])
        sampled = LiveGhosts(rules_of(SMALL.problem, rate=0.25, most_requests=6), [HERE])
        pairs = zip(intervals(SMALL, whole, traffic, plan), intervals(SMALL, sampled, traffic, plan), strict=True)
        for index, (one, other) in enumerate(pairs):
            assert one.arms == other.arms
            assert all(estimate.error == 0.0 for estimate in other.arms.values())
            np.testing.assert_array_equal(one.traffic, other.traffic)
            begin, end = SMALL.timeline.begin(index), SMALL.timeline.begin(index + 1)
            mine = (traffic.time >= begin) & (traffic.time < end) & (places(traffic.id) < other.rate)
            assert other.sampled == mine.sum()
            assert (other.arm_rate, other.arm_keys) == (1.0, one.arm_keys)
        assert sampled.rate < 0.25


def test_arms_of_too_many_requests_follow_a_part_of_their_keys() -> None:
    """From the next interval on, and with an error from then on; the grid goes on."""
    ghosts = LiveGhosts(rules_of(problem(), most_arm_requests=200), [HERE])
    rng = np.random.default_rng(3)
    told = []
    for index in range(3):
        keys = rng.integers(0, 100, 250)
        ghosts.begin(10.0 * index, 10.0)
        ghosts.feed(handed(asked(keys, np.sort(rng.uniform(10.0 * index, 10.0 * index + 10.0, 250)))))
        told.append(ghosts.close(ALONE))
    assert told[0].notes == (
        "The keys that the ghosts of arms follow were halved, to a share of 0.5: they were asked for 250 times in an "
        "interval.",
    )
    assert [one.arm_rate for one in told] == [1.0, 0.5, 0.5]
    assert [one.rate for one in told] == [1.0, 1.0, 1.0]
    assert [one.arms[Arm.CONTROL].error > 0.0 for one in told] == [False, True, True]
    assert [one.traffic[REQUESTS] for one in told] == [250.0] * 3


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_whatever_comes_costs_are_known_or_said_not_to_be(seed: int) -> None:
    """Splits, drafts, viewpoints and floods of keys in any order: never more keys than allowed, the rate never grows,
    and what is known of an interval is never less than its rent."""
    rng = np.random.default_rng(seed)
    most, views = int(rng.choice([30, 100, 1_000])), [HERE, Viewpoint(KNOBS, KnobSettings(700.0, 5.0, 1.0))]
    most_arms = int(rng.choice([30, 100, 1_000]))
    bounds = {"most_keys": most, "most_arm_keys": most_arms, "most_requests": 400, "most_arm_requests": 300}
    ghosts = LiveGhosts(rules_of(problem(), horizon_seconds=25.0, **bounds), [HERE])
    rate, rent = 1.0, 1.0 / 2**30 * INTERVAL_SECONDS / 3600.0 * 4_000.0
    for index in range(8):
        ghosts.look_from([views[int(one)] for one in rng.permutation(2)[: rng.integers(1, 3)]])
        ghosts.begin(10.0 * index, INTERVAL_SECONDS)
        plan = Plan(Split("salt", float(rng.choice([0.0, 0.2, 1.0]))), SETTINGS, KNOBS.default())
        for _ in range(rng.integers(0, 4)):
            keys = rng.integers(0, rng.choice([10, 60, 400]), rng.integers(0, 150))
            batch = asked(keys, 10.0 * index + np.sort(rng.uniform(-5.0, 10.0, len(keys))))
            batch = replace(batch, treatment=places(batch.id * np.uint64(3)) < plan.split.treatment)
            ghosts.feed(handed(batch))
            ghosts.tend(10.0 * index)
        found = ghosts.close(plan, {"draft": KNOBS.default()} if rng.random() < 0.5 else {})
        assert found.keys <= most
        assert found.arm_keys <= most_arms
        assert found.rate <= rate
        rate = found.rate
        spoiled = np.isnan(found.arms[Arm.TREATMENT if plan.split.treatment == 1.0 else Arm.CONTROL].usd)
        for arm, one in found.arms.items():
            assert np.isnan(one.usd) if spoiled else one.usd >= 0.999 * plan.split.share(arm) * 2_000.0 * rent
        for draft in found.drafts.values():
            assert np.isnan(draft.usd) if spoiled else draft.usd >= 0.999 * 1_000.0 * rent
        assert not spoiled or any("halved" in note for note in found.notes)


def test_another_viewpoint_begins_with_what_the_nearest_settings_hold() -> None:
    """Until all of its settings were followed for an interval nothing is said of it; what both share goes on."""
    other = Viewpoint(KNOBS, KnobSettings(1_500.0, 15.0, 0.5))
    ghosts = LiveGhosts(rules_of(SMALL.problem), [HERE])
    for index, _ in enumerate(intervals(SMALL, ghosts, everything(SMALL))):
        seen = ghosts.seen(other)
        if index == 9:
            assert np.isnan(seen.reference_usd)
            assert seen.ghosts is None
            assert np.isnan(ghosts.errors(other).saving_usd).all()
            ghosts.look_from([HERE, other])
        if index == 10:
            assert seen.reference_usd == pytest.approx(ghosts.seen(HERE).reference_usd, rel=0.5)
            assert seen.ghosts is not None
            assert seen.ghosts.usd.shape == (len(other.grid()), 1)
            mine = ghosts.seen(HERE).ghosts
            assert mine is not None
            assert mine.usd.shape[1] == 11
            ghosts.look_from([other])
        if index == 11:
            assert ghosts.seen(HERE).ghosts is None
    reference = Reference(SMALL, other.reference, ())
    assert ghosts.seen(other).reference_usd == pytest.approx(float(reference.usd[-1]), rel=0.02)


def test_intervals_follow_one_another() -> None:
    ghosts = LiveGhosts(rules_of(problem()), [HERE])
    assert np.isnan(ghosts.seen(HERE).traffic).all()
    ghosts.begin(0.0, 10.0)
    with pytest.raises(InputError, match="got one while that at"):
        ghosts.begin(10.0, 10.0)
    with pytest.raises(InputError, match="viewpoints: got none"):
        ghosts.look_from([])


@pytest.mark.parametrize("change", [{"rate": 0.0}, {"rate": 1.5}, {"most_keys": 0}, {"horizon_seconds": 0.0}])
def test_rules_that_make_no_sense_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(change))}: got"):
        rules_of(problem(), **change)
