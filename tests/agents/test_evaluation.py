"""Numbers of an evaluation, derived by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import orjson
import pytest

from agents.clairvoyant import Clairvoyant, Way
from agents.evaluation import count_changes, evaluate, headroom, savings
from agents.learning_curve import steps_until_within
from agents.looks import Look
from agents.results import BoundSearch, Evaluation
from agents.summary import NONE, behaviour, causes, comparison, sentences
from agents.tracks import Track
from agents.uncertainty import Resampling
from caches.errors import InputError
from envs.interval import violations
from envs.reward import Constraints
from tests.agents.bundles import SPACE
from tests.agents.tracks_by_hand import TRAFFIC, four_tracks, ground, track

QUICK = Resampling(resamples=200)


def evaluated(tracks: list[Track]) -> Evaluation:
    return evaluate(tracks, TRAFFIC, ground(), QUICK)


def test_headroom_is_the_share_of_the_bounds_saving() -> None:
    assert headroom(8.0, 6.0, 4.0) == 0.5
    assert headroom(8.0, 9.0, 4.0) == -0.25
    assert headroom(8.0, 3.0, 4.0) == 1.25  # a policy may beat static settings
    assert headroom(8.0, 8.0, 8.0) is None


def test_changes_are_intervals_not_knobs_and_the_first_move_counts() -> None:
    """Moves: two knobs at once; nothing; half a percent; exactly one percent; two percent."""
    before = np.array([0.5, 0.5, 0.5])
    positions = np.array([[0.6, 0.4, 0.5], [0.6, 0.4, 0.5], [0.605, 0.4, 0.5], [0.615, 0.4, 0.5], [0.615, 0.4, 0.52]])
    assert count_changes(positions, before) == 2
    assert count_changes(positions[1:], before) == 2


def test_constant_saving_has_an_interval_without_width() -> None:
    """2 USD instead of 3 in every interval of 500 requests: 2 USD per 1,000, a third."""
    found = savings(np.full(30, 1.0), np.full(30, 3.0), np.full(30, 500.0), QUICK)
    assert found.block_intervals == 4
    usd = found.usd_per_1000
    assert (usd.low, usd.mean, usd.high) == (2.0, 2.0, 2.0)
    assert found.percent is not None
    assert found.percent.low == pytest.approx(100 / 3)
    assert found.percent.high == pytest.approx(100 / 3)


def test_a_percentage_of_nothing_is_no_data() -> None:
    assert savings(np.zeros(4), np.zeros(4), np.ones(4), QUICK).percent is None


def test_cost_saving_and_headroom_of_each_policy() -> None:
    result = evaluated(four_tracks())
    assert (result.requests, result.intervals) == (1000, 4)
    by_name = {policy.name: policy for policy in result.policies}
    assert {name: policy.usd_per_1000 for name, policy in by_name.items()} == {
        "default": 10.0,
        "best static": 8.0,
        "PPO seed 0": 6.0,
        "PPO seed 1": 7.0,
        "clairvoyant bound": 4.0,
    }
    assert {name: policy.headroom_captured for name, policy in by_name.items()} == {
        "default": -0.5,
        "best static": None,
        "PPO seed 0": 0.5,
        "PPO seed 1": 0.25,
        "clairvoyant bound": None,
    }
    assert by_name["best static"].saving is None
    first = by_name["PPO seed 0"].saving
    assert first is not None
    assert first.percent is not None
    assert (first.usd_per_1000.mean, first.percent.mean, first.percent.low) == (2.0, 25.0, 25.0)
    assert by_name["clairvoyant bound"].changes is not None
    assert by_name["PPO seed 1"].version == 11


def test_seeds_together() -> None:
    """25 % and 12.5 %: mean 18.75, deviation 8.8388, and 12.7062 is the point of t with one degree of freedom."""
    learned = evaluated(four_tracks()).learned
    assert learned is not None
    assert learned.seeds == (0, 1)
    assert learned.usd_per_1000.mean == 6.5
    percent = learned.saving_percent
    assert percent is not None
    assert percent.mean == 18.75
    assert percent.low == pytest.approx(18.75 - 12.7062 * 8.8388 / 2**0.5, abs=1e-2)
    assert learned.headroom_captured is not None
    assert learned.headroom_captured.mean == 0.375
    assert learned.saving.usd_per_1000.mean == 1.5


def test_equal_to_best_static_is_exactly_no_saving() -> None:
    """Three seeds: the mean of three equal numbers is not always that number."""
    costs = [0.1, 0.7, 1 / 3, 0.123456789]
    tracks = [track("best static", "best static", costs), *(track(f"PPO seed {i}", "learned", costs) for i in range(3))]
    learned = evaluated(tracks).learned
    assert learned is not None
    usd = learned.saving.usd_per_1000
    assert (usd.low, usd.mean, usd.high) == (0.0, 0.0, 0.0)
    assert learned.headroom_captured is None
    assert any("exactly what best static costs" in sentence for sentence in sentences(evaluated(tracks)))


def test_ratios_constraints_and_causes() -> None:
    """700 hits of 1,000; P99 above 2 s once; stale ratio above 0.05 twice; an interval without data breaks nothing."""
    best = track(
        "best static",
        "best static",
        [1.0] * 4,
        memory=0.5,
        hits=[50.0, 250.0, 350.0, 50.0],
        token_hit_ratio=[0.2, 0.4, np.nan, 0.6],
        p99_ttft_seconds=[1.0, 2.0, 2.5, np.nan],
        stale_ratio=[0.06, 0.05, 0.07, np.nan],
    )
    only = evaluated([best]).policies[0]
    assert only.hit_ratio == 0.7
    assert only.token_hit_ratio == pytest.approx(0.4)
    assert only.median_p99_ttft_seconds == 2.0
    assert only.violated_intervals == {"p99_ttft": 1, "stale_ratio": 2}
    assert only.violations_per_1000_intervals == {"p99_ttft": 250.0, "stale_ratio": 500.0}
    assert (only.unsafe_intervals, only.unsafe_per_1000_intervals) == (2, 500.0)  # one broke both
    assert only.usd_by_cause_per_1000 == {"compute": 4.0, "warmup": 0.0, "memory": 2.0, "staleness": 0.0, "slow": 0.0}
    assert only.usd_per_1000 == 6.0


def test_token_hit_ratio_is_weighted_by_tokens() -> None:
    best = track("best static", "best static", [1.0] * 4, token_hit_ratio=[1.0, 0.0, 0.0, 0.0])
    weighing = dataclasses.replace(ground(), tokens=np.array([3.0, 1.0, 0.0, np.nan]))
    assert evaluate([best], TRAFFIC, weighing, QUICK).policies[0].token_hit_ratio == 0.75


def test_changes_per_day_and_per_thousand() -> None:
    """Two of four hourly intervals: 12 a day. cache_size leaves the reference, stays, and comes back."""
    moved = track("PPO seed 0", "learned", [1.0] * 4)
    assert moved.settings is not None
    settings = moved.settings.copy()
    settings[1:3, 0] = SPACE.cache_size.value(0.9)
    best = track("best static", "best static", [1.0] * 4)
    result = evaluated([best, dataclasses.replace(moved, settings=settings)]).policies
    still, changes = result[0].changes, result[1].changes
    assert still is not None
    assert still.intervals == 0
    assert changes is not None
    assert (changes.intervals, changes.per_1000_intervals, changes.per_day) == (2, 500.0, 12.0)


def test_violations_compare_with_the_limits_strictly() -> None:
    rows = track("x", "default", [0.0, 0.0], p99_ttft_seconds=[2.0, 2.0001], stale_ratio=[0.05, 0.05]).rows
    found = violations(rows, Constraints(p99_ttft_seconds=2.0, stale_ratio=0.05))
    assert found["p99_ttft"].tolist() == [False, True]
    assert not found["stale_ratio"].any()


def test_test_traffic_without_requests_is_refused() -> None:
    empty = track("best static", "best static", [0.0] * 4, requests=[0.0] * 4)
    with pytest.raises(InputError, match="no requests in intervals 80 to 84"):
        evaluated([empty])


def test_fewer_than_five_seeds_and_little_traffic_are_warned_of() -> None:
    warnings = evaluated(four_tracks()).warnings
    assert "Only 2 learned policies were judged" in warnings[0]
    assert "holds 4 intervals" in warnings[1]
    many = [*four_tracks(), *(track(f"PPO seed {i}", "learned", [1.5] * 4) for i in range(2, 5))]
    assert not any("Only" in warning for warning in evaluated(many).warnings)


def test_as_dict_is_json_with_null_for_no_data() -> None:
    body = orjson.loads(orjson.dumps(evaluated(four_tracks()).as_dict()))
    assert body["policies"][1]["saving"] is None
    assert body["policies"][0]["token_hit_ratio"] is None
    assert body["setting"]["assumptions"] == ["Made up."]
    assert body["learned"]["seeds"] == [0, 1]


def test_sentences_say_what_it_costs_and_how_sure_that_is() -> None:
    said = " ".join(sentences(evaluated(four_tracks())))
    assert "At the default settings the cache costs 10 USD per 1,000 requests here." in said
    assert "(cache_size 191 MiB, ttl_seconds 10 min, warmup_ratio 0.25) costs 8, 20.00 % less than the default." in said
    assert "as a mean of 2 seeds, 6.5 USD per 1,000 requests, 18.75 % less than best static (" in said
    assert "9 USD a day saved" in said  # 1.5 USD in four hours
    assert "PPO is not shown to add anything here" in said  # two seeds that differ say little
    assert "saves 50.00 % over best static; of this headroom 0.38 is captured" in said


def test_sentences_say_where_learning_is_no_use() -> None:
    tracks = [
        track("best static", "best static", [2.0] * 4),
        track("random", "baseline", [1.9] * 4),
        track("hill climber", "baseline", [2.0] * 4),
        *(track(f"PPO seed {i}", "learned", [2.5] * 4, p99_ttft_seconds=[3.0, 1.0, 1.0, 1.0]) for i in range(5)),
    ]
    said = " ".join(sentences(evaluated(tracks)))
    assert "PPO adds nothing here: it costs more than best static" in said
    assert "Without learning, random and hill climber are at least as cheap." in said
    assert "p99_ttft is violated in up to 1 of 4 intervals by a learned policy, in 0 by best static." in said


def test_the_cheapest_of_all_is_named_learned_or_not() -> None:
    """The learned cost 6 and 7, a mean of 6.5: the lucky seed is no policy that anybody could have chosen."""
    said = " ".join(sentences(evaluated(four_tracks())))
    assert "the cheapest is PPO, mean of 2 seeds, at 6.5 USD per 1,000 requests." in said
    rival = track("what-if controller", "baseline", [1.6] * 4)
    said = " ".join(sentences(evaluated([*four_tracks(), rival])))
    assert "the cheapest is what-if controller, at 6.4 USD per 1,000 requests." in said
    one = [*four_tracks()[:3], track("per-interval static bound", "ghost bound", [0.1] * 4)]
    assert "the cheapest is PPO, at 6 USD per 1,000 requests." in " ".join(sentences(evaluated(one)))


def test_a_judged_rule_is_called_by_its_name() -> None:
    """The seeds beside it count as one policy."""
    rule = dataclasses.replace(track("what-if controller", "default", [1.6] * 4), role="learned", version=3)
    seeds = [dataclasses.replace(one, role="baseline") for one in four_tracks()[2:4]]
    result = evaluated([track("best static", "best static", [2.0] * 4), rule, *seeds])
    said = " ".join(sentences(result))
    assert "The what-if controller costs 6.4 USD per 1,000 requests, 20.00 % less than best static" in said
    assert "the cheapest is what-if controller, at 6.4 USD" in said
    assert [row[0] for row in comparison(result).rows] == [
        "best static",
        "what-if controller (version 3)",
        "PPO seed 0 (version 10)",
        "PPO seed 1 (version 11)",
    ]
    dear = dataclasses.replace(rule, rows=track("x", "default", [2.5] * 4).rows)
    said = " ".join(sentences(evaluated([track("best static", "best static", [2.0] * 4), dear])))
    assert "The what-if controller adds nothing here: it costs more than best static" in said


def test_the_cheapest_that_keeps_the_constraints_is_named_too() -> None:
    """One interval of four is unsafe, 10 in 1,000 are tolerated."""
    setting = dataclasses.replace(TRAFFIC, constraints={"max_unsafe_per_1000": 10.0})
    rival = track("what-if controller", "baseline", [1.0] * 4, p99_ttft_seconds=[3.0, 1.0, 1.0, 1.0])
    best = track("best static", "best static", [2.0] * 4)
    said = " ".join(sentences(evaluate([best, rival], setting, ground(), QUICK)))
    assert "what-if controller, at 4 USD per 1,000 requests, which breaks constraints in 250.0 of 1,000" in said
    assert "Of what keeps them, it is best static, at 8." in said
    unsafe = dataclasses.replace(best, rows=rival.rows)
    said = " ".join(sentences(evaluate([unsafe, rival], setting, ground(), QUICK)))
    assert "Nothing that can be run keeps the constraints in all but 10 of 1,000 intervals." in said


def test_only_what_can_be_run_captures_headroom_and_by_the_clairvoyant_bound() -> None:
    """The ghost bound is cheaper still, but nothing could follow it."""
    ghosts = track("per-interval static bound", "ghost bound", [0.5] * 4)
    by_name = {policy.name: policy for policy in evaluated([*four_tracks(), ghosts]).policies}
    assert by_name["PPO seed 0"].headroom_captured == 0.5
    assert by_name["per-interval static bound"].headroom_captured is None
    assert by_name["per-interval static bound"].changes is None


def test_what_the_bound_means_and_how_well_it_is_known_is_noted() -> None:
    """4 USD for 1,000 requests, 4.1 at half the width: 2.5 % apart."""
    bound = four_tracks()[-1]
    assert bound.settings is not None
    search = Clairvoyant(Way(bound.settings, bound.rows), full_usd=4.0, half_usd=4.1, sweeps=3, settled=False)
    result = evaluate(four_tracks(), TRAFFIC, ground(), QUICK, ["A rival is missing."], search)
    assert result.bound == BoundSearch(4.0, 4.0, pytest.approx(4.1), pytest.approx(2.5), 3, False)
    said = " ".join(result.notes)
    assert "two searches, one half as wide and begun at best static, ended 2.50 % apart" in said
    assert "was ended after 3 sweeps, when the work allowed was done" in said
    assert "A rival is missing." in said
    assert "per-interval static bound" not in said
    assert "clairvoyant" not in " ".join(evaluated(four_tracks()).notes)


def test_how_fast_it_was_learned_is_shown() -> None:
    seeds = [dataclasses.replace(track(f"PPO seed {i}", "learned", [1.0] * 4), learned_within=3_000) for i in (0, 1)]
    result = evaluated([track("best static", "best static", [2.0] * 4), *seeds])
    assert behaviour(result).by_column()["learned within"] == [NONE, "3,000", "3,000", "3,000"]
    assert result.policies[1].learned_within == 3_000


def look(steps: int, saving: float, excess: float = 0.0) -> Look:
    return Look(steps, update=0, reward=0.0, saving=saving, exploration=0.5, excess=excess)


def test_steps_until_within_a_share_of_what_is_saved_in_the_end() -> None:
    """The best look saves 0.2, and its actor is the one that is kept; 0.198 is within 1 % of that, 0.197 is not."""
    looks = [look(0, 0.0), look(100, 0.197), look(200, 0.198), look(300, 0.1), look(400, 0.2), look(500, 0.15)]
    assert steps_until_within(looks) == 200
    assert steps_until_within(looks, 0.02) == 100
    assert steps_until_within(looks, 0.0) == 400
    assert steps_until_within([look(0, 0.0), look(100, -0.1)]) == 0
    assert steps_until_within([look(0, -0.2), look(100, -0.1)]) == 100
    unsafe_at_first = [look(0, 0.3, 0.01), look(100, 0.2, 0.002), look(200, 0.1), look(300, 0.05)]
    assert steps_until_within(unsafe_at_first) == 200
    with pytest.raises(InputError, match="looks: got none"):
        steps_until_within([])


def test_a_sure_saving_is_called_one() -> None:
    tracks = [track("best static", "best static", [2.0] * 4)]
    tracks += [track(f"PPO seed {i}", "learned", [1.0 + 0.01 * i] * 4) for i in range(5)]
    assert any("above zero within its 95 % intervals" in sentence for sentence in sentences(evaluated(tracks)))


def test_tables_have_the_mean_of_seeds_before_the_seeds() -> None:
    result = evaluated(four_tracks())
    table = comparison(result)
    assert [row[0] for row in table.rows] == [
        "default",
        "best static",
        "learned, mean of 2 seeds",
        "PPO seed 0 (version 10)",
        "PPO seed 1 (version 11)",
        "clairvoyant bound",
    ]
    assert table.by_column()["USD/1,000"] == ["10", "8", "6.5", "6", "7", "4"]
    assert table.by_column()["saves %"] == ["-25.00", NONE, "18.75", "25.00", "12.50", "50.00"]
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert table.by_column()["unsafe/1,000"] == ["0.0"] * 6
    names = ("p99_ttft violated/1,000", "stale_ratio violated/1,000", "learned within")
    assert behaviour(result).columns[-3:] == names
    assert behaviour(result).rows[2] == ("learned, mean of 2 seeds", "0.0000", NONE, NONE, "0.0", "0.0", NONE)
    assert causes(result).rows[1] == ("best static", "8", "0", "0", "0", "0", "8")
