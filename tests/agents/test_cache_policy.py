"""The cache's policy around a control policy: fitted once, kept in the bundle, judged and refused by it."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from agents.actor import Actor
from agents.baselines.best_policy import fit_best_policy
from agents.baselines.best_static import fit_best_static
from agents.baselines.whatif_fit import controller_for
from agents.bundle import MANIFEST_FILE, PolicyBundle
from agents.bundle_policy import BundlePolicy
from agents.clairvoyant import Search, Sweep, clairvoyant
from agents.judge import judge
from agents.rollout import roll_out
from agents.study import Split, Study, open_study
from agents.tracks import Champion, Contender, Depth, require_fit, study_for
from agents.uncertainty import Resampling
from agents.whatif import WhatIf
from caches.errors import InputError, Mismatch
from caches.knobs import KNOB_NAMES, Knob, KnobSettings
from caches.policies.pair import PLAIN, CachePolicy, policies_called
from envs.control import ACTION_SHAPE
from envs.ghosts import ghost_grid
from envs.interval import STATS, total_usd
from envs.observation import OBSERVATION_VERSION, SIZE
from envs.observation import SETTINGS as OBSERVED
from envs.reward import Constraints
from envs.world import World
from tests.agents.test_judge import SHA256, bundle_of, static_bundle
from tests.envs.worlds import KNOBS, SETTINGS, problem, random_trace

SPLIT = Split(0.5, 0.2)
SIEVE = CachePolicy("sieve")
FREE = Constraints(p99_ttft_seconds=1e6, stale_ratio=1.0)


def study_under(policy: CachePolicy, intervals: int = 40) -> Study:
    trace = replace(random_trace(0, intervals), sha256=SHA256)
    world = World(problem(trace, constraints=FREE, policy=policy))
    return open_study(world, SPLIT, SETTINGS, horizon=1, starts=1)


def test_the_policy_is_fitted_with_the_static_setting() -> None:
    world, training = World(problem(random_trace(4, 16, 20.0), constraints=FREE)), range(8)
    some = policies_called(("lru", "sieve", "lfu"), ("all", "second-hit"))
    found = fit_best_policy(world, some, training)
    assert [policy for policy, _ in found.each] == list(some)
    alone = {policy: fit_best_static(world.under(policy), training) for policy in some}
    assert dict(found.each) == alone
    assert found.fit.usd == min(fit.usd for fit in alone.values())
    assert found.fit == alone[found.policy]
    np.testing.assert_array_equal(found.grid.rows, ghost_grid(world.under(found.policy)).rows)
    usd = total_usd(found.world.replay_static([found.fit.settings], 8))
    assert found.fit.usd == pytest.approx(float(usd.sum()), rel=1e-12)


def test_one_policy_is_fitted_as_it_always_was() -> None:
    world, training = World(problem(random_trace(4, 16, 20.0))), range(8)
    found = fit_best_policy(world, (PLAIN,), training)
    assert found.world is world
    assert found.fit == fit_best_static(world, training)
    with pytest.raises(InputError, match="policies: got none"):
        fit_best_policy(world, (), training)


def test_a_policy_that_keeps_the_constraints_beats_a_cheaper_one_that_does_not() -> None:
    tight = Constraints(p99_ttft_seconds=1.0005, stale_ratio=0.2, max_unsafe_per_1000=130.0)
    ranks = []
    for seed in range(6):
        world = World(problem(random_trace(seed, 16, 20.0), constraints=tight))
        found = fit_best_policy(world, policies_called(("lru", "gdsf", "lfu")), range(12))
        excess = [max(fit.unsafe_per_1000 - 130.0, 0.0) for _, fit in found.each]
        assert max(found.fit.unsafe_per_1000 - 130.0, 0.0) == min(excess)
        ranks.append(found.fit.usd == min(fit.usd for _, fit in found.each))
    assert set(ranks) == {True, False} or all(ranks)


@pytest.mark.parametrize("policy", [SIEVE, CachePolicy("lru", "tinylfu")], ids=str)
def test_rules_and_bound_work_under_the_policy(policy: CachePolicy) -> None:
    study = study_under(policy)
    grid = ghost_grid(study.world)
    controller = controller_for(study, WhatIf(memory=0.6, margin=0.003, charge=0.0))
    rolled = roll_out(study.reference, study.scale, [controller], study.test, grid=grid)
    lanes, rows = study.world.lanes(1), np.empty((study.test.stop, STATS))
    for index in range(study.test.stop):
        inside = index >= study.test.start
        settings = rolled.settings[0, index - study.test.start] if inside else SETTINGS.as_array()
        study.world.play.run_interval(study.world.scene, lanes, 0, index, settings, rows[index])
    np.testing.assert_array_equal(rolled.rows[0], rows[study.test.start :])
    quick = Search(width=2, window=6, sweeps=(Sweep(4, 1.0, (1, None)),))
    bound = clairvoyant(study, [], grid, quick)
    assert bound.way.usd <= float(study.reference.usd[study.test.start : study.test.stop].sum())
    assert bound.way.usd <= float(rolled.usd.sum()) * 1.2


def test_a_bundle_keeps_the_policy_of_its_cache(tmp_path: Path) -> None:
    plain = static_bundle(SETTINGS)
    other = replace(plain, policy=CachePolicy("s3-fifo", "second-hit"))
    other.save(tmp_path / "b")
    assert PolicyBundle.load(tmp_path / "b").policy == other.policy
    assert other.sha256 != plain.sha256
    plain.save(tmp_path / "b")
    assert "policy" not in orjson.loads((tmp_path / "b" / MANIFEST_FILE).read_bytes())["bundle"]
    assert PolicyBundle.load(tmp_path / "b").policy == PLAIN


def test_a_bundle_of_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    replace(static_bundle(SETTINGS), policy=SIEVE).save(tmp_path / "b")
    manifest = tmp_path / "b" / MANIFEST_FILE
    document = orjson.loads(manifest.read_bytes())
    document["bundle"]["policy"]["eviction"] = "crystal-ball"
    manifest.write_bytes(orjson.dumps(document))
    with pytest.raises(InputError, match="eviction_policy: got 'crystal-ball', expected of lru"):
        PolicyBundle.load(tmp_path / "b")


def test_a_bundle_is_judged_only_under_its_own_policy() -> None:
    study = study_under(SIEVE)
    bundle = bundle_of(study, 1, policy=SIEVE)
    assert study_for(study.world, SPLIT, bundle).reference.settings == SETTINGS
    with pytest.raises(Mismatch, match="policy of the cache: the bundle has 'sieve', this program has 'lru'"):
        require_fit(bundle, study.world.under(PLAIN))


def test_a_champion_of_another_policy_is_judged_with_its_own_cache() -> None:
    study = study_under(SIEVE)
    learned = [Contender(BundlePolicy("PPO", bundle_of(study, 1, policy=SIEVE)), 1, 1)]
    champion = Champion(9, static_bundle(SETTINGS))
    judged = judge(study, learned, champion, Resampling(resamples=200), depth=Depth.QUICK)
    rows = next(track.rows for track in judged.tracks if track.role == "champion")
    plain = study.world.under(PLAIN).replay_static([SETTINGS], len(study.world))[0]
    np.testing.assert_array_equal(rows, plain[study.test.start : study.test.stop])
    assert judged.evaluation.setting.cache_policy == "sieve"
    assert judged.evaluation.notes[-2:] == (
        "The cache runs under sieve, whatever its settings.",
        "The champion is shown with the cache that it was made for, under lru.",
    )


FOURTH = Knob("semantic_threshold", "cosine", 0.8, 1.0, 0.9, 0.1, "linear")


def test_a_bundle_of_four_knobs_is_refused_by_a_program_of_three(tmp_path: Path) -> None:
    """As docs/policies.md says of a fourth knob."""
    static_bundle(SETTINGS).save(tmp_path / "b")
    manifest = tmp_path / "b" / MANIFEST_FILE
    document = orjson.loads(manifest.read_bytes())
    document["bundle"]["knob_space"][FOURTH.name] = asdict(FOURTH)
    document["bundle"]["reference"][FOURTH.name] = 0.9
    body = orjson.dumps(document["bundle"], option=orjson.OPT_SORT_KEYS)
    document["sha256"] = hashlib.sha256(body).hexdigest()  # as that program would write it
    manifest.write_bytes(orjson.dumps(document))
    with pytest.raises(InputError, match="got contents with sha256"):
        PolicyBundle.load(tmp_path / "b")
    with pytest.raises(InputError, match="actor: got 4 outputs, expected 3, one per knob"):
        Actor(((np.zeros((4, SIZE), np.float32), np.zeros(4, np.float32)),))


@pytest.mark.parametrize("missing", KNOB_NAMES)
def test_a_bundle_that_lacks_a_knob_is_refused_naming_it(tmp_path: Path, missing: str) -> None:
    """As one of three knobs would be by a program of four."""
    static_bundle(SETTINGS).save(tmp_path / "b")
    manifest = tmp_path / "b" / MANIFEST_FILE
    document = orjson.loads(manifest.read_bytes())
    del document["bundle"]["knob_space"][missing]
    manifest.write_bytes(orjson.dumps(document))
    with pytest.raises(InputError, match=rf"knob_space.{missing}"):
        PolicyBundle.load(tmp_path / "b")


def test_a_fourth_knob_needs_a_new_observation_by_its_size() -> None:
    """What docs/policies.md lists follows from KNOB_NAMES, or is held to it here."""
    assert len(KNOB_NAMES) == ACTION_SHAPE[0] == len(OBSERVED)
    assert OBSERVED == KNOB_NAMES
    study = study_under(PLAIN)
    bundle = bundle_of(study, 1)
    with pytest.raises(Mismatch, match=r"observation size: the bundle has .*, this program has"):
        bundle.require(observation_version=OBSERVATION_VERSION, observation_size=SIZE + 9, knob_space=KNOBS)
    with pytest.raises(Mismatch, match="observation version: the bundle has '1', this program has '2'"):
        bundle.require(observation_version="2", observation_size=SIZE, knob_space=KNOBS)
    with pytest.raises(TypeError):
        type(KNOBS)(*KNOBS.knobs, FOURTH)  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"eviction_policy: got 0\.9, expected a name, or None"):
        KnobSettings(*SETTINGS.as_array(), 0.9)
    with pytest.raises(TypeError):
        KnobSettings(*SETTINGS.as_array(), None, 0.9)  # type: ignore[call-arg]
