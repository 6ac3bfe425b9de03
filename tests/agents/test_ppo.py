from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from stable_baselines3.common.vec_env import VecEnv

from agents.learning import REWARD_LIMIT, hidden_entries
from agents.ppo import ActorPolicy, SB3Lanes, Trained, actor_of, averaged, build, train
from agents.ppo_config import PPOConfig, preset
from agents.rollout import roll_out
from agents.study import Split, Study, open_study
from caches.errors import Mismatch
from envs.observation import SIZE
from envs.world import World
from tests.envs.worlds import SETTINGS, problem, random_trace

SMALL = PPOConfig(
    total_steps=256,
    lanes=4,
    steps_per_update=8,
    batch_size=16,
    epochs=2,
    learning_rate=1e-2,
    exploration=0.12,
    hidden=(8, 8),
    horizon=6,
    starts=3,
    evaluate_every=2,
)


@pytest.fixture(scope="module")
def study() -> Study:
    return open_study(World(problem(random_trace(0, 30))), Split(0.5, 0.2), SETTINGS, SMALL.horizon, SMALL.starts)


def trained(study: Study, config: PPOConfig = SMALL, checkpoint: Path | None = None, seed: int = 0) -> Trained:
    environment = study.environment(config.lanes, seed)
    return train(study.reference, study.scale, environment, study.validation, config, seed, None, checkpoint)


def assert_same_actor(one: Trained, other: Trained) -> None:
    for (weight, bias), (other_weight, other_bias) in zip(one.actor.weights, other.actor.weights, strict=True):
        np.testing.assert_array_equal(weight, other_weight)
        np.testing.assert_array_equal(bias, other_bias)


def test_untrained_it_is_exactly_the_reference(study: Study) -> None:
    actor = actor_of(build(study.environment(4, 0), SMALL, 0))
    wild = np.random.default_rng(0).uniform(-5, 5, (50, SIZE)).astype(np.float32)
    assert (actor.act_batch(wild) == 0.0).all()
    told = roll_out(study.reference, study.scale, [ActorPolicy("ppo", actor)], study.test)
    np.testing.assert_array_equal(told.rows[0], told.reference_rows)


def test_the_numpy_actor_equals_the_learner(study: Study) -> None:
    model = build(study.environment(4, 0), SMALL, 0)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.normal_(0.0, 0.5)
    actor = actor_of(model)
    seen = np.random.default_rng(1).uniform(-5, 5, (200, SIZE)).astype(np.float32)
    expected = np.array([model.predict(one, deterministic=True)[0] for one in seen])
    np.testing.assert_allclose([actor.act(one) for one in seen], expected, atol=1e-6)
    assert np.abs(expected).max() == 1.0  # clipping is part of it
    assert np.abs(expected).min() < 0.9


def test_lanes_speak_to_stable_baselines(study: Study) -> None:
    """Ends and last observations are those of the environment underneath, rewards too up to the limit."""
    rewarded = []
    lanes, twin = SB3Lanes(study.environment(4, 3)), study.environment(4, 3)
    assert isinstance(lanes, VecEnv)
    np.testing.assert_array_equal(lanes.reset(), twin.reset()[0])
    for action in np.random.default_rng(0).uniform(-1, 1, (20, 4, 3)).astype(np.float32):
        seen, rewards, dones, infos = lanes.step(action)
        expected, expected_rewards, _, truncated, info = twin.step(action)
        np.testing.assert_array_equal(seen, expected)
        limited = np.clip(expected_rewards, -REWARD_LIMIT, REWARD_LIMIT)
        np.testing.assert_array_equal(rewards, limited.astype(np.float32))
        rewarded.extend(expected_rewards)
        np.testing.assert_array_equal(dones, truncated)
        for lane in range(4):
            if truncated[lane]:
                assert infos[lane]["TimeLimit.truncated"]
                np.testing.assert_array_equal(infos[lane]["terminal_observation"], info["final_obs"][lane])
            else:
                assert infos[lane] == {}
    assert min(rewarded) < -REWARD_LIMIT  # the limit was put to the test


def test_hidden_features_have_no_influence_on_learner_and_actor(study: Study) -> None:
    """Trained without them, the actor does the same whatever they say, and the learner gets zeros there."""
    blind = SMALL.model_copy(update={"whatif_features": False})
    hidden = hidden_entries(blind)
    lanes = SB3Lanes(study.environment(4, 3), hidden)
    assert (lanes.reset()[:, hidden] == 0.0).all()
    for _ in range(8):
        seen, _, dones, infos = lanes.step(np.zeros((4, 3), np.float32))
        assert (seen[:, hidden] == 0.0).all()
        assert all((infos[lane]["terminal_observation"][hidden] == 0.0).all() for lane in np.flatnonzero(dones))
    told = trained(study, blind)
    wild = np.random.default_rng(0).uniform(-1, 1, (50, SIZE)).astype(np.float32)
    zeroed = np.where(hidden, np.float32(0.0), wild)
    assert np.abs(told.actor.weights[-1][0]).max() > 0.0
    np.testing.assert_array_equal(told.actor.act_batch(wild), told.actor.act_batch(zeroed))
    assert told.looks != trained(study).looks


def test_without_the_difference_the_reward_is_minus_the_cost(study: Study) -> None:
    """In mean costs of a reference interval; the same lanes pay the saving otherwise."""
    lanes, twin = SB3Lanes(study.environment(4, 3), difference=False), study.environment(4, 3)
    lanes.reset()
    twin.reset()
    for action in np.random.default_rng(0).uniform(-1, 1, (10, 4, 3)).astype(np.float32):
        _, rewards, _, _ = lanes.step(action)
        _, _, _, _, info = twin.step(action)
        expected = -info["usd"] / study.scale.interval_usd
        np.testing.assert_array_equal(rewards, np.clip(expected, -REWARD_LIMIT, REWARD_LIMIT).astype(np.float32))
    assert trained(study, SMALL.model_copy(update={"difference_reward": False})).looks != trained(study).looks


def test_networks_are_averaged_over_updates() -> None:
    """A weight of 3/4 on the past: 0, then 0.75 x 0 + 0.25 x 8 = 2, then 0.75 x 2 + 0.25 x 4 = 2.5."""
    values = [np.full((1, 1), value, np.float32) for value in (0.0, 8.0, 4.0)]
    average = None
    for value in values:
        average = averaged(average, ((value, value[0]),), 0.75)
    assert average is not None
    assert average[0][0].item() == 2.5
    assert average[0][1].item() == 2.5


def test_without_averaging_the_last_network_is_looked_at(study: Study) -> None:
    """One update more or less, the same network: what is kept then is what was looked at, not an average."""
    plain = trained(study, SMALL.model_copy(update={"averaging": 0.0}))
    assert plain.looks[0] == trained(study).looks[0]
    assert plain.looks[1:] != trained(study).looks[1:]
    assert [look.reward for look in plain.looks] == [look.reward for look in trained(study).looks]


def test_a_dead_band_is_part_of_the_actor_that_is_kept(study: Study) -> None:
    told = trained(study, SMALL.model_copy(update={"dead_band": 0.1}))
    assert told.actor.dead_band == 0.1
    assert trained(study).actor.dead_band == SMALL.dead_band


def test_training_is_repeatable_and_differs_by_seed(study: Study) -> None:
    one, again, other = trained(study), trained(study), trained(study, seed=1)
    assert one.looks == again.looks
    assert_same_actor(one, again)
    assert one.looks != other.looks


def test_it_looks_before_the_first_update_and_after_the_last(study: Study) -> None:
    told = trained(study)
    # 32 steps an update: 8 updates; a look before the 1st, 3rd, 5th and 7th, and one at the end
    assert [(look.steps, look.update) for look in told.looks] == [(0, 0), (64, 2), (128, 4), (192, 6), (256, 8)]
    assert told.looks[0].saving == 0.0
    assert told.looks[0].exploration == pytest.approx(SMALL.exploration, rel=1e-6)
    assert not told.stopped_early


def test_it_keeps_the_actor_that_did_best_on_validation_traffic(study: Study) -> None:
    told = trained(study)
    safe = [look.saving for look in told.looks if look.excess == 0.0]
    assert told.best.excess == 0.0
    assert told.best.saving == max(safe) < max(look.saving for look in told.looks)  # what saves most breaks constraints
    again = roll_out(study.reference, study.scale, [ActorPolicy("ppo", told.actor)], study.validation)
    assert 1.0 - again.usd.sum() / again.reference_usd.sum() == pytest.approx(told.best.saving, abs=1e-12)


def test_it_stops_when_validation_traffic_no_longer_improves(study: Study) -> None:
    """A step size of next to nothing: the first look stays the best, and two more are enough."""
    config = SMALL.model_copy(update={"learning_rate": 1e-30, "patience": 2, "total_steps": 3_200})
    told = trained(study, config)
    assert told.stopped_early
    assert told.looks[-1].steps < 300
    assert told.best is told.looks[0]


def test_progress_ends_at_the_total(study: Study) -> None:
    calls: list[tuple[int, int]] = []
    environment = study.environment(SMALL.lanes, 0)
    train(study.reference, study.scale, environment, study.validation, SMALL, 0, lambda *call: calls.append(call))
    assert calls == [(32 * update, 256) for update in range(len(calls))]


def test_a_finished_training_comes_back_from_its_checkpoint(study: Study, tmp_path: Path) -> None:
    first = trained(study, checkpoint=tmp_path)
    again = trained(study, checkpoint=tmp_path)
    assert_same_actor(first, again)
    assert again.best == first.best
    assert again.looks[: len(first.looks)] == first.looks


def test_a_training_goes_on_for_longer_from_its_checkpoint(study: Study, tmp_path: Path) -> None:
    first = trained(study, checkpoint=tmp_path)
    longer = trained(study, SMALL.model_copy(update={"total_steps": 512}), checkpoint=tmp_path)
    assert longer.looks[: len(first.looks)] == first.looks
    assert longer.looks[-1].steps == 512
    assert longer.looks[-1].update == 16


def test_a_restored_learner_is_the_one_that_was_saved(study: Study, tmp_path: Path) -> None:
    """Weights, optimiser and spread of the action: one more update from either gives the same network."""
    trained(study, checkpoint=tmp_path)
    config = SMALL.model_copy(update={"total_steps": 288})
    ends = []
    for name in ("a", "b"):
        copy = tmp_path / name
        copy.mkdir()
        for file in tmp_path.iterdir():
            if file.is_file():
                (copy / file.name).write_bytes(file.read_bytes())
        ends.append(trained(study, config, checkpoint=copy))
    assert ends[0].looks == ends[1].looks
    assert ends[0].looks[-1].exploration != pytest.approx(SMALL.exploration, rel=1e-6)


def test_a_checkpoint_is_arrays_and_json_and_nothing_that_runs(study: Study, tmp_path: Path) -> None:
    trained(study, checkpoint=tmp_path)
    files = sorted(tmp_path.rglob("*"))
    assert [file.suffix for file in files] == [".safetensors", ".json"]
    for file in files:
        head = file.read_bytes()[:4]
        assert not head.startswith((b"PK", b"\x80"))  # neither zip, which torch writes, nor a pickle


def test_a_checkpoint_of_other_settings_is_refused_with_both(study: Study, tmp_path: Path) -> None:
    trained(study, checkpoint=tmp_path)
    with pytest.raises(Mismatch, match=r"'clip_range': \(0\.2, 0\.3\)"):
        trained(study, SMALL.model_copy(update={"clip_range": 0.3}), checkpoint=tmp_path)


def test_the_seed_preset_is_the_published_one() -> None:
    told = preset("seed")
    assert (told.learning_rate, told.clip_range, told.batch_size, told.epochs) == (3e-5, 0.1, 512, 10)
    assert told.lanes * told.steps_per_update == 2_048
    assert preset("default") == PPOConfig()
