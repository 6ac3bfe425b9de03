"""Judging on a small real world: the tracks against independent replays, the evidence, what is refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from agents.actor import Actor
from agents.bundle import PolicyBundle
from agents.bundle_policy import BundlePolicy
from agents.evaluation import savings
from agents.figures import draw_causes, draw_cost, draw_settings, save_pictures
from agents.judge import Judgement, evidence, judge, require_held_out
from agents.provenance import Provenance, TracePart
from agents.rollout import roll_out
from agents.rules import arrays_of
from agents.study import Split, Study, open_study
from agents.tracks import RUNNABLE, Champion, Contender, Depth, require_fit, run_tracks, study_for
from agents.uncertainty import Resampling
from agents.whatif import WhatIf, WhatIfController
from caches.errors import Mismatch
from caches.knobs import KnobSettings, KnobSpace
from envs.ghosts import ghost_grid, grid_settings
from envs.interval import column, total_usd
from envs.observation import OBSERVATION_VERSION, SIZE
from envs.reward import Constraints
from envs.world import World
from tests.envs.worlds import KNOBS, SETTINGS, problem, random_trace

SPLIT = Split(0.5, 0.2)
OTHER = KnobSettings(600.0, 40.0, 0.0)
QUICK = Resampling(resamples=200)
SHA256 = "cd" * 32
OPTIONAL = "contextual bandit"  # where its package is installed
RIVALS = (
    "what-if controller",
    "target TTL",
    "elastic TTL",
    "formula TTL",
    "PID to P99",
    "hour-of-week schedule",
)


def actor(seed: int) -> Actor:
    """Seed 0 wishes for the reference, the others move."""
    rng = np.random.default_rng(seed)
    scale = 0.0 if seed == 0 else 0.5
    hidden = rng.normal(size=(8, SIZE)), rng.normal(size=8)
    last = scale * rng.normal(size=(3, 8)), scale * rng.normal(size=3)
    return Actor((hidden, last))


def bundle_of(study: Study, seed: int, **changes: object) -> PolicyBundle:
    weights: dict[str, NDArray[np.float32]] = {}
    for index, (weight, bias) in enumerate(actor(seed).weights):
        weights |= {f"actor.{index}.weight": weight, f"actor.{index}.bias": bias}
    parts = (("train", study.training), ("validation", study.validation), ("test", study.test))
    traffic = tuple(TracePart("random", SHA256, use, part.start, part.stop) for use, part in parts)  # type: ignore[arg-type]
    bundle = PolicyBundle(
        "ppo",
        study.world.problem.knobs,
        study.reference.settings,
        Provenance(traffic, seed),
        OBSERVATION_VERSION,
        SIZE,
        study.scale,
        weights,
    )
    return replace(bundle, **changes)  # type: ignore[arg-type]


def static_bundle(reference: KnobSettings, knobs: KnobSpace = KNOBS) -> PolicyBundle:
    return PolicyBundle("static", knobs, reference, Provenance((), 0))


@pytest.fixture(scope="module")
def study() -> Study:
    trace = replace(random_trace(0, 60), sha256=SHA256)
    constraints = Constraints(p99_ttft_seconds=1.0005, stale_ratio=0.2, max_unsafe_per_1000=120.0)
    return open_study(World(problem(trace, constraints=constraints)), SPLIT, SETTINGS, horizon=1, starts=1)


@pytest.fixture(scope="module")
def judged(study: Study) -> Judgement:
    learned = [Contender(BundlePolicy(f"PPO seed {s}", bundle_of(study, s)), s, s + 1) for s in range(3)]
    return judge(study, learned, Champion(9, static_bundle(OTHER)), QUICK)


def test_tracks_come_in_order_and_cover_the_test_traffic(judged: Judgement) -> None:
    assert [track.name for track in judged.tracks if track.name != OPTIONAL] == [
        "default",
        "best static",
        "random",
        "hill climber",
        *RIVALS,
        "PPO seed 0",
        "PPO seed 1",
        "PPO seed 2",
        "champion, version 9",
        "clairvoyant bound",
        "per-interval static bound",
    ]
    assert {len(track.rows) for track in judged.tracks} == {len(judged.study.test)} == {18}


def test_best_static_is_its_replay_from_the_start(judged: Judgement) -> None:
    replayed = judged.study.world.replay_static([SETTINGS], 60)[0, 42:]
    np.testing.assert_array_equal(judged.tracks[1].rows, replayed)


def test_an_actor_that_never_moves_is_best_static_to_the_last_bit(judged: Judgement) -> None:
    np.testing.assert_array_equal(judged.track(1).rows, judged.tracks[1].rows)
    result = next(policy for policy in judged.evaluation.policies if policy.version == 1)
    assert result.saving is not None
    usd = result.saving.usd_per_1000
    assert (usd.low, usd.mean, usd.high, result.headroom_captured) == (0.0, 0.0, 0.0, 0.0)
    assert result.changes is not None
    assert result.changes.intervals == 0


def test_the_default_leaves_the_reference_step_by_step(judged: Judgement) -> None:
    default = judged.tracks[0]
    assert default.settings is not None
    positions = np.array([KNOBS.positions(KnobSettings.from_array(row)) for row in default.settings])
    assert np.abs(positions[0] - KNOBS.positions(SETTINGS)).max() <= KNOBS.max_steps.max() + 1e-12
    np.testing.assert_allclose(default.settings[-1], KNOBS.default().as_array())


def test_a_static_champion_is_its_own_replay_not_ours(judged: Judgement) -> None:
    """From the state that its own reference left, in the same world, on the same intervals."""
    champion = judged.tracks[-3]
    replayed = judged.study.world.replay_static([OTHER], 60)[0, 42:]
    np.testing.assert_array_equal(champion.rows, replayed)


def test_the_bound_is_no_dearer_than_anything_that_can_be_run(judged: Judgement) -> None:
    """And it is a way that can be gone: from where the reference was, within range and largest steps."""
    bound = judged.tracks[-2]
    assert bound.usd.sum() <= min(track.usd.sum() for track in judged.tracks if track.role in RUNNABLE)
    assert bound.settings is not None
    assert bound.before == SETTINGS
    positions = np.array([KNOBS.positions(KnobSettings.from_array(row)) for row in bound.settings])
    moves = np.abs(np.diff(np.vstack((KNOBS.positions(SETTINGS), positions)), axis=0))
    assert (moves <= KNOBS.max_steps + 1e-9).all()
    assert judged.evaluation.bound is not None
    assert judged.evaluation.bound.usd_per_1000 == pytest.approx(judged.evaluation.policies[-2].usd_per_1000)
    assert judged.evaluation.bound.half_width_usd_per_1000 >= judged.evaluation.bound.usd_per_1000
    assert judged.evaluation.bound.settled


def test_a_champion_that_starts_better_off_is_no_cheaper_than_the_bound(study: Study) -> None:
    """Its reference left a full cache before the test traffic; ours, at the smallest size, an empty one."""
    world = study.world
    poor = open_study(world, SPLIT, KnobSettings(100.0, 1.0, 0.0), horizon=1, starts=1, grid=ghost_grid(world))
    judgement = judge(poor, [], Champion(9, static_bundle(SETTINGS)), QUICK)
    champion, bound, _ = judgement.tracks[-3:]
    assert bound.usd.sum() <= champion.usd.sum()
    assert (bound.role, bound.version) == ("bound", None)


def test_a_quick_look_leaves_out_what_takes_time(study: Study) -> None:
    judgement = judge(study, [], None, QUICK, depth=Depth.QUICK)
    assert [track.name for track in judgement.tracks] == [
        "default",
        "best static",
        "random",
        "hill climber",
        "per-interval static bound",
    ]
    assert judgement.evaluation.bound is None
    assert {policy.headroom_captured for policy in judgement.evaluation.policies} == {None}


def test_the_ghost_bound_is_the_cheapest_of_grid_and_reference_in_each_interval(judged: Judgement) -> None:
    every = [*grid_settings(KNOBS), SETTINGS]
    assert len(every) == 6 * 8 * 3 + 1
    replayed = total_usd(judged.study.world.replay_static(every, 60))[:, 42:]
    np.testing.assert_array_equal(judged.tracks[-1].usd, replayed.min(axis=0))


def test_evidence_pairs_candidate_and_champion(judged: Judgement) -> None:
    found = evidence(judged, version=2, champion=9)
    mine, rival = judged.track(2), judged.tracks[-3]
    expected = savings(rival.usd - mine.usd, rival.usd, column(mine.rows, "requests"), QUICK).usd_per_1000
    assert found.saving_over_champion is not None
    assert found.saving_over_champion.mean_usd_per_1000 == expected.mean
    assert found.saving_over_champion.low_usd_per_1000 == expected.low
    assert found.tolerated_violations == 2  # 120 in 1,000 of 18 intervals is 2.16
    assert (found.candidate, found.champion, found.intervals) == (2, 9, 18)
    assert set(found.violated_intervals or {}) == {"p99_ttft", "stale_ratio"}


def test_evidence_without_a_rival(judged: Judgement) -> None:
    assert evidence(judged, version=2, champion=None).saving_over_champion is None
    assert evidence(judged, version=2, champion=2).saving_over_champion is None


def test_a_rule_in_a_bundle_decides_as_the_rule(study: Study) -> None:
    """It moves here, and the rival of its name, which was fitted anew, makes way for it."""
    rule = WhatIfController(KNOBS.positions(SETTINGS), KNOBS.max_steps, 0.2, WhatIf(0.5, 0.0, 0.0))
    parts = {"kind": "whatif", "weights": arrays_of(rule), "observation_version": None, "observation_size": None}
    policy = BundlePolicy("what-if controller", bundle_of(study, 1, **parts))
    compared = run_tracks(study, [Contender(policy, None, 8, "baseline")])
    tracks = [track for track in compared.tracks if track.name == "what-if controller"]
    rolled = roll_out(study.reference, study.scale, [rule], study.test, grid=ghost_grid(study.world))
    assert [(track.role, track.version) for track in tracks] == [("baseline", 8)]
    np.testing.assert_array_equal(tracks[0].rows, rolled.rows[0])
    assert len(np.unique(rolled.settings[0], axis=0)) > 1


def test_the_same_seed_gives_the_same_judgement(study: Study, judged: Judgement) -> None:
    learned = [Contender(BundlePolicy("PPO seed 1", bundle_of(study, 1)), 1, 2)]
    first, again = (judge(study, learned, None, QUICK).evaluation for _ in range(2))
    assert first == again
    assert first.one("learned") == next(one for one in judged.evaluation.policies if one.version == 2)


def test_progress_counts_ghosts_and_then_the_search(study: Study) -> None:
    seen: list[tuple[int, int]] = []
    judge(study, [], None, QUICK, lambda done, total: seen.append((done, total)))
    assert seen[0] == (8, 244)
    assert (144, 244) in seen
    assert seen[-1] == (244, 244)
    assert seen == sorted(seen)


def test_a_bundle_is_judged_around_its_own_reference_and_scale(study: Study) -> None:
    bundle = bundle_of(study, 1, reference=OTHER, scale=replace(study.scale, entropy_bits=1.5))
    opened = study_for(study.world, SPLIT, bundle)
    assert opened.reference.settings == OTHER
    assert opened.scale.entropy_bits == 1.5
    assert opened.test == study.test


def test_a_champion_of_another_knob_space_is_refused(study: Study) -> None:
    wider = replace(KNOBS, cache_size=replace(KNOBS.cache_size, high=20_000.0))
    with pytest.raises(Mismatch, match=r"cache_size\.high: the bundle has 20000\.0, this program has 10000\.0"):
        judge(study, [], Champion(3, static_bundle(OTHER, wider)), QUICK)


def test_a_policy_for_other_intervals_is_refused(study: Study) -> None:
    bundle = bundle_of(study, 1, scale=replace(study.scale, interval_seconds=60.0))
    with pytest.raises(Mismatch, match=r"decides every 60 s, trace\.interval_seconds is 10"):
        require_fit(bundle, study.world)


@pytest.mark.parametrize(("use", "first", "end"), [("train", 0, 43), ("validation", 59, 60)])
def test_traffic_that_the_policy_learned_from_is_refused(study: Study, use: str, first: int, end: int) -> None:
    part = TracePart("random", SHA256, use, first, end)  # type: ignore[arg-type]
    message = rf"^version 4: its {use} intervals {first} to {end} of trace random overlap the test intervals 42 to 60"
    with pytest.raises(Mismatch, match=message):
        require_held_out(Provenance((part,)), study, "version 4")
    require_held_out(Provenance((replace(part, sha256="ef" * 32),)), study, "version 4")
    require_held_out(Provenance((replace(part, use="test"),)), study, "version 4")


def test_pictures_are_written_and_replaced_whole(judged: Judgement, tmp_path: Path) -> None:
    for _ in range(2):
        paths = save_pictures(judged, tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(path.name for path in paths)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_pictures_say_what_they_show(judged: Judgement) -> None:
    above, below = draw_cost(judged).axes
    labels = above.get_legend_handles_labels()[1]
    assert labels[0] in ("random", "hill climber", OPTIONAL, *RIVALS)
    assert labels[1:] == [
        "best static",
        "champion",
        "clairvoyant bound",
        "per-interval static bound",
        "3 learned policies, mean and range",
    ]
    panel = draw_settings(judged).axes[0]
    assert "clairvoyant bound" in panel.get_legend_handles_labels()[1]
    assert below.get_ylabel() == "USD saved since the start"
    assert [axes.get_ylabel() for axes in draw_settings(judged).axes] == ["cache_size", "ttl_seconds", "warmup_ratio"]
    bars = draw_causes(judged.evaluation).axes[0]
    names = [label.get_text() for label in bars.get_yticklabels()]
    assert [name for name in names if "learned" in name] == ["learned, mean of 3 seeds"]
    assert any("saves" in text.get_text() for text in bars.texts)


def test_a_judgement_without_learned_policies_can_be_drawn(study: Study) -> None:
    judgement = judge(study, [], None, QUICK, depth=Depth.QUICK)
    assert len(draw_cost(judgement).axes) == 2
    assert len(draw_settings(judgement).axes) == 3
    assert len(draw_causes(judgement.evaluation).axes[0].get_yticklabels()) == 5


def test_judging_does_not_need_torch() -> None:
    code = "import sys, api.cli.evaluate, api.cli.promote, api.cli.policies; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
