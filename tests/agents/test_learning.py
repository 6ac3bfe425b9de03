"""PPO learns: where the best setting alternates with the clock it comes close to the known optimum, in seconds."""

from __future__ import annotations

import time

import numpy as np
import pytest

from agents.baselines.best_static import fit_best_static
from agents.ppo import ActorPolicy, train
from agents.ppo_config import PPOConfig
from agents.rollout import roll_out
from agents.study import Split, open_study
from envs.interval import total_usd
from envs.world import World
from tests.agents.alternating import INTERVALS_A_DAY, KNOBS, optimum_usd, problem_of

CPU_SECONDS = 30.0
CONFIG = PPOConfig(
    total_steps=100_000,
    lanes=64,
    steps_per_update=16,
    batch_size=1024,
    epochs=8,
    learning_rate=2e-3,
    discount=0.5,
    exploration=0.15,
    hidden=(32, 32),
    horizon=3 * INTERVALS_A_DAY,
    evaluate_every=5,
    patience=100,
)


@pytest.fixture(scope="module")
def world() -> World:
    return World(problem_of())


def test_no_setting_beats_the_optimum(world: World) -> None:
    """It is over all settings: two thousand others, drawn at random, cost at least as much in each interval."""
    rng = np.random.default_rng(0)
    drawn = [KNOBS.settings(position) for position in rng.uniform(0.0, 1.0, (2_000, 3))]
    usd = total_usd(world.replay_static(drawn, INTERVALS_A_DAY))
    assert (usd >= optimum_usd(world)[:INTERVALS_A_DAY] - 1e-9).all()


def test_ppo_reaches_nine_tenths_of_the_optimum_in_under_thirty_seconds(world: World) -> None:
    """On days it never saw, of what the best static setting costs more than the optimum, it saves nine tenths."""
    split = Split(2 / 3, 1 / 6)
    training, _, test = world.timeline.split(split.train, split.validation)
    fit = fit_best_static(world, training)
    begin = time.process_time()
    study = open_study(world, split, fit.settings, CONFIG.horizon, CONFIG.starts)
    environment = study.environment(CONFIG.lanes, seed=0)
    trained = train(study.reference, study.scale, environment, study.validation, CONFIG, seed=0)
    took = time.process_time() - begin
    rollout = roll_out(study.reference, study.scale, [ActorPolicy("ppo", trained.actor)], study.test)
    optimum = optimum_usd(world)[test.start : test.stop].sum()
    static, learnt = rollout.reference_usd.sum(), rollout.usd[0].sum()
    assert static > 1.15 * optimum  # there is something to learn
    assert (static - learnt) / (static - optimum) >= 0.9
    assert took < CPU_SECONDS
    assert trained.looks[0].saving == 0.0  # untrained it is the best static setting
