"""Proximal policy optimisation, through stable-baselines3: the only file that imports it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv

from agents.actor import Actor, Layer
from agents.learning import Layers, Start, blinded, hidden_entries, learning_reward
from agents.looks import Look, Looks
from agents.policy import Sight
from agents.ppo_checkpoint import Learner, holds_checkpoint, load_checkpoint, numpy_of, save_checkpoint
from agents.ppo_config import PPOConfig
from agents.rollout import roll_out
from envs.observation import SIZE, ObservationScale
from envs.vector_env import ReplayVectorEnv
from envs.world import Reference

Array = NDArray[Any]
Progress = Callable[[int, int], None]


class SB3Lanes(VecEnv):
    """ReplayVectorEnv with stable-baselines3's manners.

    hidden: entries of the observation, bool (SIZE,), that the learner gets as zero. difference: what it is paid
    (agents.learning.learning_reward).
    """

    def __init__(self, env: ReplayVectorEnv, hidden: NDArray[np.bool_] | None = None, difference: bool = True) -> None:
        self.env, self.render_mode = env, None
        self.hidden = np.zeros(SIZE, np.bool_) if hidden is None else hidden
        self.difference = difference
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self._actions: Array = np.zeros((env.num_envs, 3), np.float32)

    def reset(self) -> NDArray[np.float32]:
        observations, _ = self.env.reset()
        return self._shown(observations)

    def step_async(self, actions: Array) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[np.float32], Array, Array, list[dict[str, Any]]]:
        observations, saved, _, truncated, info = self.env.step(self._actions)
        rewards = learning_reward(saved, info["usd"], self.env.control.scale.interval_usd, self.difference)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for lane in np.flatnonzero(truncated):
            last = self._shown(info["final_obs"][lane])
            infos[lane] = {"terminal_observation": last, "TimeLimit.truncated": True}
        return self._shown(observations), rewards.astype(np.float32), truncated, infos

    def _shown(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.where(self.hidden, np.float32(0.0), observations)

    def close(self) -> None:
        """Nothing is held open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.env, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError("lanes share one environment and have no attributes of their own")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError("lanes share one environment and have no methods of their own")

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))


@dataclass(frozen=True)
class ActorPolicy:
    """A trained actor as a control policy."""

    name: str
    actor: Actor

    def reset(self, seed: int) -> None:
        """Nothing to forget."""

    def act(self, sight: Sight) -> NDArray[np.float64]:
        return self.actor.act(sight.observation)


@dataclass
class Trained:
    """The actor that did best on validation traffic, and how training went. stopped_early: before total_steps."""

    actor: Actor
    best: Look
    looks: list[Look] = field(default_factory=list)
    stopped_early: bool = False


def build(env: ReplayVectorEnv, config: PPOConfig, seed: int) -> PPO:
    """A learner whose untrained mean action is exactly zero, the reference setting."""
    torch.set_num_threads(1)  # nets this small gain nothing from two and lose much beside other work
    model = PPO(
        "MlpPolicy",
        SB3Lanes(env, hidden_entries(config), config.difference_reward),
        learning_rate=config.learning_rate,
        n_steps=config.steps_per_update,
        batch_size=config.batch_size,
        n_epochs=config.epochs,
        gamma=config.discount,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip_range,
        policy_kwargs={
            "net_arch": list(config.hidden),
            "log_std_init": float(np.log(config.exploration)),
        },
        seed=seed,
        device="cpu",
    )
    model.set_logger(Logger(None, []))  # its own default leaves a folder in the system's temporary one every time
    head = cast(torch.nn.Linear, model.policy.action_net)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.zero_()
    return model


def actor_of(model: PPO) -> Actor:
    """The deterministic part of the policy, in numpy. What the learner did not see has no influence."""
    lanes = cast(SB3Lanes, model.get_env())
    return Actor(blinded(_numpy_layers(model), lanes.hidden))


def _numpy_layers(model: PPO) -> Layers:
    return tuple((numpy_of(layer.weight), numpy_of(layer.bias)) for layer in _policy_layers(model))


def begin_from(model: PPO, start: Start) -> None:
    """Puts the networks of a start in place of the untrained ones; without a critic that one stays untrained."""
    _fill(_policy_layers(model), start.actor.weights)
    if start.critic is not None:
        _fill(_value_layers(model), start.critic)


def _policy_layers(model: PPO) -> list[torch.nn.Linear]:
    hidden = [layer for layer in model.policy.mlp_extractor.policy_net if isinstance(layer, torch.nn.Linear)]
    return [*hidden, cast(torch.nn.Linear, model.policy.action_net)]


def _value_layers(model: PPO) -> list[torch.nn.Linear]:
    hidden = [layer for layer in model.policy.mlp_extractor.value_net if isinstance(layer, torch.nn.Linear)]
    return [*hidden, model.policy.value_net]


def _fill(layers: list[torch.nn.Linear], weights: Sequence[Layer]) -> None:
    with torch.no_grad():
        for layer, (weight, bias) in zip(layers, weights, strict=True):
            layer.weight.copy_(torch.from_numpy(weight.copy()))
            layer.bias.copy_(torch.from_numpy(bias.copy()))


def averaged(average: Layers | None, layers: Layers, weight: float) -> Layers:
    """The exponential average of layers after one more update; weight: of the past. float32 as the layers."""
    if average is None:
        return layers
    new = np.float32(1.0 - weight)
    return tuple(
        (old[0] + new * (now[0] - old[0]), old[1] + new * (now[1] - old[1]))
        for old, now in zip(average, layers, strict=True)
    )


class _Watch(BaseCallback):
    """Looks at validation traffic after every few updates, keeps the best actor, stops when it no longer improves.

    What is looked at is the average of the networks over the last updates (B. T. Polyak, A. B. Juditsky, Acceleration
    of stochastic approximation by averaging, SIAM J. Control and Optimization 30, 1992): single ones wobble around it.
    """

    def __init__(
        self,
        config: PPOConfig,
        look: Callable[[Actor], tuple[float, float]],
        progress: Progress | None,
        checkpoint: Path | None,
    ) -> None:
        super().__init__()
        self.config, self.look, self.progress, self.checkpoint = config, look, progress, checkpoint
        self.looks = Looks()
        self.average: Layers | None = None
        self.updates, self.stopped_early, self.rewards = 0, False, [0.0]

    def _on_step(self) -> bool:
        self.rewards.append(float(np.mean(self.locals["rewards"])))
        return not self.stopped_early

    def _on_rollout_start(self) -> None:
        self.take_in()
        if self.updates % self.config.evaluate_every == 0:
            self.look_now()
        self.updates += 1
        if self.progress is not None:
            self.progress(self.num_timesteps, self.config.total_steps)

    def take_in(self) -> None:
        """Early on the past weighs less, so that the untrained network is soon forgotten."""
        weight = min(self.config.averaging, self.updates / (self.updates + 9.0))
        self.average = averaged(self.average, _numpy_layers(cast(PPO, self.model)), weight)

    def look_now(self) -> None:
        model = cast(PPO, self.model)
        assert self.average is not None
        layers = blinded(self.average, cast(SB3Lanes, model.get_env()).hidden)
        actor = Actor(layers, dead_band=self.config.dead_band)
        spread = float(cast(torch.Tensor, model.policy.log_std).detach().exp().mean())
        saving, excess = self.look(actor)
        look = Look(self.num_timesteps, self.updates, float(np.mean(self.rewards)), saving, spread, excess)
        self.rewards = [look.reward]
        self.looks.add(look, actor)
        self.stopped_early = self.looks.without_improvement >= self.config.patience
        if self.checkpoint is not None:
            save_checkpoint(self.learner, self.config, self.checkpoint)

    @property
    def learner(self) -> Learner:
        policy = cast(PPO, self.model).policy
        return Learner(policy, policy.optimizer, self.looks, self.average, self.num_timesteps, self.updates)

    def restore(self, model: PPO, folder: Path) -> None:
        learner = Learner(model.policy, model.policy.optimizer, self.looks, None, 0, 0)
        load_checkpoint(learner, self.config, folder)
        model.num_timesteps, self.updates, self.average = learner.steps, learner.updates, learner.average


def train(
    reference: Reference,
    scale: ObservationScale,
    env: ReplayVectorEnv,
    validation: range,
    config: PPOConfig,
    seed: int,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    start: Start | None = None,
) -> Trained:
    """Trains on the env's episodes, looking at `validation` (marked in the reference, disjoint from them).

    start: where to begin in place of the reference setting; it is the first look. checkpoint: a folder to leave the
    learner's state in at every look, and to go on from if it holds one (then `start` is not used). Going on starts new
    episodes, so it is not the same to the digit as never having stopped.
    """
    model = build(env, config, seed)

    constraints = reference.world.problem.constraints

    def look(actor: Actor) -> tuple[float, float]:
        result = roll_out(reference, scale, [ActorPolicy("ppo", actor)], validation)
        excess = max(float(result.unsafe(constraints)[0]) - result.tolerated(constraints), 0.0)
        return float(1.0 - result.usd.sum() / result.reference_usd.sum()), excess

    watch = _Watch(config, look, progress, checkpoint)
    if checkpoint is not None and holds_checkpoint(checkpoint):
        watch.restore(model, checkpoint)
    elif start is not None:
        begin_from(model, start)
    left = config.total_steps - model.num_timesteps
    if left > 0:
        model.learn(left, callback=watch, reset_num_timesteps=False)
    watch.init_callback(model)
    watch.num_timesteps = model.num_timesteps
    if left > 0:
        watch.take_in()
    watch.look_now()
    best, actor = watch.looks.best
    return Trained(actor, best, watch.looks.looks, watch.stopped_early)
