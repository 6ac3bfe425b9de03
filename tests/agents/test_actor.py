"""The numpy actor: equal to stable-baselines3's deterministic prediction, strict about shapes, and quick."""

from __future__ import annotations

import subprocess
import sys
import time

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from agents.actor import Actor, Scaler, actor_from, layers_of
from caches.errors import InputError
from envs.observation import SIZE, names
from tests.agents.bundles import layered_weights

OBSERVATION_SIZE = 6


class Drift(gymnasium.Env[np.ndarray, np.ndarray]):
    """Observations far from unit scale, so that normalisation matters; the reward is the first action."""

    observation_space = Box(-np.inf, np.inf, (OBSERVATION_SIZE,), np.float32)
    action_space = Box(-1.0, 1.0, (3,), np.float32)

    def _observe(self) -> np.ndarray:
        scales = np.array([0.01, 1, 30, 5, 2, 100])
        return (self.np_random.normal(size=OBSERVATION_SIZE) * scales + scales).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return self._observe(), {}

    def step(self, action):
        self.left -= 1
        return self._observe(), float(action[0]), False, self.left == 0, {}


@pytest.fixture(scope="module")
def trained() -> tuple[PPO, VecNormalize]:
    torch.set_num_threads(1)
    env = VecNormalize(DummyVecEnv([Drift]), norm_reward=False)
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=32, n_epochs=2, learning_rate=1e-2, seed=3)
    model.learn(256)
    return model, env


def exported(model: PPO, scaler: Scaler | None) -> Actor:
    state = {name: tensor.numpy() for name, tensor in model.policy.state_dict().items()}
    hidden = [name for name in state if name.startswith("mlp_extractor.policy_net") and "weight" in name]
    names = [*hidden, "action_net.weight"]
    return Actor(tuple((state[n], state[n.replace("weight", "bias")]) for n in names), scaler)


def test_act_equals_sb3_deterministic_predict(trained: tuple[PPO, VecNormalize]) -> None:
    model, _ = trained
    actor = exported(model, None)
    # A scale of 3 also drives some means past the clip at 1.
    observations = np.random.default_rng(0).normal(size=(300, OBSERVATION_SIZE), scale=3).astype(np.float32)
    expected, _ = model.predict(observations, deterministic=True)
    single = np.stack([actor.act(row) for row in observations])
    np.testing.assert_allclose(single, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(actor.act_batch(observations), expected, rtol=0, atol=1e-6)


def test_act_equals_sb3_with_observation_normalisation(trained: tuple[PPO, VecNormalize]) -> None:
    model, env = trained
    running = env.obs_rms
    actor = exported(model, Scaler(running.mean, np.sqrt(running.var + env.epsilon), env.clip_obs))
    raw = np.random.default_rng(1).normal(size=(300, OBSERVATION_SIZE), scale=200).astype(np.float32)
    expected, _ = model.predict(env.normalize_obs(raw), deterministic=True)
    np.testing.assert_allclose([actor.act(row) for row in raw], expected, rtol=0, atol=1e-6)


def test_mean_beyond_the_action_space_is_clipped() -> None:
    # One linear layer: means are 3x, x and -3x of the only entry; at 0.5 that is 1.5, 0.5 and -1.5.
    actor = Actor(((np.array([[3], [1], [-3]], np.float32), np.zeros(3, np.float32)),))
    action = actor.act(np.array([0.5], np.float32))
    assert action.dtype == np.float64
    assert action.tolist() == [1.0, 0.5, -1.0]


def test_hidden_layer_is_tanh_and_scaler_clips() -> None:
    # (9 - 1) / 2 = 4 is clipped to 2; hidden tanh(2); output bias 0.25 on the last knob only.
    hidden = (np.array([[1.0]], np.float32), np.zeros(1, np.float32))
    last = (np.array([[1.0], [0.5], [0.0]], np.float32), np.array([0, 0, 0.25], np.float32))
    actor = Actor((hidden, last), Scaler(np.array([1.0]), np.array([2.0]), clip=2.0))
    np.testing.assert_allclose(actor.act(np.array([9.0], np.float32)), [np.tanh(2), np.tanh(2) / 2, 0.25], rtol=1e-6)


def test_act_refuses_wrong_shape_and_non_finite_entries() -> None:
    actor = Actor(layers_of(layered_weights((4, 8, 3), 0)))
    with pytest.raises(InputError, match=r"got shape \(5,\), expected \(4,\)"):
        actor.act(np.zeros(5, np.float32))
    with pytest.raises(InputError, match=r"expected \(n, 4\)"):
        actor.act_batch(np.zeros(4, np.float32))
    with pytest.raises(InputError, match="not finite"):
        actor.act(np.array([0, np.nan, 0, 0], np.float32))


@pytest.mark.parametrize(
    ("w_shapes", "b_shapes", "message"),
    [
        ((), (), "no layers"),
        (((3, 4), (3, 2)), ((3,), (3,)), r"layer 1: got W \(3, 2\)"),
        (((3, 4),), ((2,),), r"layer 0: .*b \(2,\)"),
        (((2, 4),), ((2,),), "got 2 outputs, expected 3"),
    ],
)
def test_layers_that_do_not_fit_are_refused(w_shapes, b_shapes, message) -> None:
    layers = tuple((np.zeros(w, np.float32), np.zeros(b, np.float32)) for w, b in zip(w_shapes, b_shapes, strict=True))
    with pytest.raises(InputError, match=message):
        Actor(layers)


def test_weight_not_finite_is_refused() -> None:
    w = np.zeros((3, 2), np.float32)
    w[1, 1] = np.inf
    with pytest.raises(InputError, match="layer 0: got a weight that is not finite"):
        Actor(((w, np.zeros(3, np.float32)),))


def test_scaler_must_fit_the_actor_and_have_deviations_above_zero() -> None:
    with pytest.raises(InputError, match="got 2 entries, expected the actor's 4"):
        Actor(layers_of(layered_weights((4, 3), 0)), Scaler(np.zeros(2), np.ones(2)))
    with pytest.raises(InputError, match="above zero"):
        Scaler(np.zeros(2), np.array([1.0, 0.0]))


def test_layers_of_names_a_gap() -> None:
    weights = layered_weights((4, 8, 3), 0)
    del weights["actor.0.weight"]
    with pytest.raises(InputError, match="without gaps"):
        layers_of(weights)
    weights = layered_weights((4, 8, 3), 0)
    del weights["actor.1.bias"]
    with pytest.raises(InputError, match=r"actor\.1\.weight without actor\.1\.bias"):
        layers_of(weights)


def test_weights_cannot_be_changed_afterwards() -> None:
    weights = layered_weights((4, 3), 0)
    actor = Actor(layers_of(weights))
    before = actor.act(np.ones(4, np.float32))
    weights["actor.0.weight"][:] = 0
    assert actor.act(np.ones(4, np.float32)).tolist() == before.tolist()
    with pytest.raises(ValueError, match="read-only"):
        actor.weights[0][0][0, 0] = 1


def test_serving_imports_neither_torch_nor_mlflow() -> None:
    program = (
        "import sys, agents.actor, agents.bundle; "
        "print([m for m in ('torch', 'stable_baselines3', 'mlflow', 'gymnasium') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_decision_p99_is_below_one_millisecond() -> None:
    actor = Actor(layers_of(layered_weights((32, 64, 64, 3), 0)), Scaler(np.zeros(32), np.ones(32)))
    observation = np.ones(32, np.float32)
    seconds = []
    for _ in range(5_000):
        start = time.perf_counter()
        actor.act(observation)
        seconds.append(time.perf_counter() - start)
    assert np.quantile(seconds, 0.99) < 1e-3


def test_a_wish_within_the_dead_band_leaves_a_knob_where_it_is() -> None:
    """The wish is 0.1 for every knob; they are at 0.12, 0.1 + 0.05 and -0.2 from the reference. The observation holds
    twice that."""
    layers = ((np.zeros((3, SIZE), np.float32), np.full(3, 0.1, np.float32)),)
    seen = np.zeros(SIZE, np.float32)
    first = names().index("position_cache_size")
    seen[first : first + 3] = 2.0 * np.array([0.12, 0.15, -0.2])
    np.testing.assert_allclose(Actor(layers, dead_band=0.04).act(seen), [0.12, 0.1, 0.1], atol=1e-7)
    np.testing.assert_allclose(Actor(layers).act(seen), 0.1, atol=1e-7)
    np.testing.assert_array_equal(Actor(layers, dead_band=0.04).act_batch(seen[None])[0][0], seen[first] / 2.0)


def test_arrays_of_an_actor_lead_back_to_it() -> None:
    weights = layered_weights((SIZE, 8, 3), seed=0)
    for band in (0.0, 0.02):
        actor = Actor(layers_of(weights), dead_band=band)
        arrays = actor.arrays()
        assert set(arrays) == set(weights) | ({"dead_band"} if band else set())
        seen = np.random.default_rng(0).uniform(-1, 1, (20, SIZE)).astype(np.float32)
        np.testing.assert_array_equal(actor_from(arrays).act_batch(seen), actor.act_batch(seen))


@pytest.mark.parametrize("band", [-0.1, 1.0, float("nan")])
def test_a_bad_dead_band_is_named(band: float) -> None:
    with pytest.raises(InputError, match="dead_band: got"):
        Actor(layers_of(layered_weights((SIZE, 8, 3), seed=0)), dead_band=band)


def test_a_dead_band_needs_the_positions_to_be_observed() -> None:
    with pytest.raises(InputError, match=r"dead_band: got 5 entries to observe"):
        Actor(layers_of(layered_weights((5, 8, 3), seed=0)), dead_band=0.1)
    with pytest.raises(InputError, match=r"dead_band: got shape \(3,\)"):
        actor_from(layered_weights((SIZE, 8, 3), seed=0) | {"dead_band": np.zeros(3)})
