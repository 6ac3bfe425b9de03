"""Proximal policy optimisation, through stable-baselines3: the only file that imports it or torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv

from agents.actor import Actor
from agents.policy import Sight
from agents.ppo_config import PPOConfig
from agents.rollout import roll_out
from caches.errors import Mismatch
from envs.observation import ObservationScale
from envs.vector_env import ReplayVectorEnv
from envs.world import Reference

Array = NDArray[Any]
Progress = Callable[[int, int], None]


# Learning clips the reward of one interval to half of a mean interval's cost: a rare overload costs many times that,
# and a single one would drown what the other thousand intervals teach. Judging counts all the money.
REWARD_LIMIT = 5.0


class SB3Lanes(VecEnv):
    """ReplayVectorEnv with stable-baselines3's manners."""

    def __init__(self, env: ReplayVectorEnv) -> None:
        self.env, self.render_mode = env, None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self._actions: Array = np.zeros((env.num_envs, 3), np.float32)

    def reset(self) -> NDArray[np.float32]:
        observations, _ = self.env.reset()
        return observations

    def step_async(self, actions: Array) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[np.float32], Array, Array, list[dict[str, Any]]]:
        observations, rewards, _, truncated, info = self.env.step(self._actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for lane in np.flatnonzero(truncated):
            infos[lane] = {"terminal_observation": info["final_obs"][lane], "TimeLimit.truncated": True}
        return observations, np.clip(rewards, -REWARD_LIMIT, REWARD_LIMIT).astype(np.float32), truncated, infos

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


@dataclass(frozen=True)
class Look:
    """One look at validation traffic. saving: share of the reference's cost there."""

    steps: int
    update: int
    reward: float
    saving: float
    exploration: float


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
        SB3Lanes(env),
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
    """The deterministic part of the policy, in numpy."""
    layers = [layer for layer in model.policy.mlp_extractor.policy_net if isinstance(layer, torch.nn.Linear)]
    linear = [*layers, cast(torch.nn.Linear, model.policy.action_net)]
    return Actor(tuple((_numpy(layer.weight), _numpy(layer.bias)) for layer in linear))


def _numpy(tensor: torch.Tensor) -> Array:
    return np.asarray(tensor.detach().numpy().copy())


class _Watch(BaseCallback):
    """Looks at validation traffic after every few updates, keeps the best actor, stops when it no longer improves."""

    def __init__(
        self,
        config: PPOConfig,
        look: Callable[[Actor], float],
        progress: Progress | None,
        checkpoint: Path | None,
    ) -> None:
        super().__init__()
        self.config, self.look, self.progress, self.checkpoint = config, look, progress, checkpoint
        self.looks: list[Look] = []
        self.best: tuple[Look, Actor] | None = None
        self.updates, self.stopped_early, self.rewards = 0, False, [0.0]

    def _on_step(self) -> bool:
        self.rewards.append(float(np.mean(self.locals["rewards"])))
        return not self.stopped_early

    def _on_rollout_start(self) -> None:
        if self.updates % self.config.evaluate_every == 0:
            self.look_now()
        self.updates += 1
        if self.progress is not None:
            self.progress(self.num_timesteps, self.config.total_steps)

    def look_now(self) -> None:
        model = cast(PPO, self.model)
        actor = actor_of(model)
        spread = float(cast(torch.Tensor, model.policy.log_std).detach().exp().mean())
        look = Look(self.num_timesteps, self.updates, float(np.mean(self.rewards)), self.look(actor), spread)
        self.rewards = [look.reward]
        self.looks.append(look)
        if self.best is None or look.saving > self.best[0].saving:
            self.best = (look, actor)
        since = [past.saving for past in self.looks].index(self.best[0].saving)
        self.stopped_early = len(self.looks) - 1 - since >= self.config.patience
        if self.checkpoint is not None:
            save_checkpoint(model, self, self.checkpoint)


def train(
    reference: Reference,
    scale: ObservationScale,
    env: ReplayVectorEnv,
    validation: range,
    config: PPOConfig,
    seed: int,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> Trained:
    """Trains on the env's episodes, looking at `validation` (marked in the reference, disjoint from them).

    checkpoint: a folder to leave the learner's state in at every look, and to go on from if it holds one. Going on
    starts new episodes, so it is not the same to the digit as never having stopped.
    """
    model = build(env, config, seed)

    def look(actor: Actor) -> float:
        result = roll_out(reference, scale, [ActorPolicy("ppo", actor)], validation)
        return float(1.0 - result.usd.sum() / result.reference_usd.sum())

    watch = _Watch(config, look, progress, checkpoint)
    if checkpoint is not None and (checkpoint / CHECKPOINT_FILE).exists():
        load_checkpoint(model, watch, checkpoint)
    left = config.total_steps - model.num_timesteps
    if left > 0:
        model.learn(left, callback=watch, reset_num_timesteps=False)
    watch.init_callback(model)
    watch.num_timesteps = model.num_timesteps
    watch.look_now()
    assert watch.best is not None
    return Trained(watch.best[1], watch.best[0], watch.looks, watch.stopped_early)


CHECKPOINT_FORMAT, CHECKPOINT_FILE = 1, "checkpoint.json"


def save_checkpoint(model: PPO, watch: _Watch, folder: Path) -> None:
    """The learner's whole state as arrays and JSON; no pickle. Written beside and renamed, arrays first."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {f"policy.{name}": _numpy(value) for name, value in model.policy.state_dict().items()}
    for index, moments in model.policy.optimizer.state_dict()["state"].items():
        arrays |= {f"adam.{index}.{name}": _numpy(value) for name, value in moments.items()}
    if watch.best is not None:
        for index, (weight, bias) in enumerate(watch.best[1].weights):
            arrays |= {f"best.{index}.weight": weight, f"best.{index}.bias": bias}
    arrays["torch_random"] = _numpy(torch.get_rng_state())
    body = {
        "format": CHECKPOINT_FORMAT,
        "config": watch.config.model_dump(mode="json"),
        "steps": model.num_timesteps,
        "updates": watch.updates,
        "looks": [asdict(look) for look in watch.looks],
        "best": None if watch.best is None else watch.looks.index(watch.best[0]),
    }
    arrays_file = f"arrays-{model.num_timesteps}.safetensors"
    save_file({name: np.ascontiguousarray(value) for name, value in arrays.items()}, folder / arrays_file)
    partial = folder / "checkpoint.json.partial"
    partial.write_text(json.dumps(body | {"arrays": arrays_file}))
    partial.replace(folder / CHECKPOINT_FILE)
    for stale in folder.glob("arrays-*.safetensors"):
        if stale.name != arrays_file:
            stale.unlink()


def load_checkpoint(model: PPO, watch: _Watch, folder: Path) -> None:
    """Puts a learner back where `save_checkpoint` found it. Mismatch when it was saved under another configuration."""
    body = json.loads((folder / CHECKPOINT_FILE).read_text())
    config = watch.config.model_dump(mode="json")
    saved = body["config"] | {"total_steps": config["total_steps"]}  # training for longer is what going on is for
    if body["format"] != CHECKPOINT_FORMAT or saved != config:
        changed = {key: (saved.get(key), config[key]) for key in config if saved.get(key) != config[key]}
        raise Mismatch(f"{folder}: the checkpoint was made with other settings (saved, now): {changed}")
    arrays = load_file(folder / body["arrays"])
    policy = {name[7:]: torch.from_numpy(value) for name, value in arrays.items() if name.startswith("policy.")}
    model.policy.load_state_dict(policy)
    optimizer = model.policy.optimizer.state_dict()
    for name, value in arrays.items():
        if name.startswith("adam."):
            _, index, moment = name.split(".")
            optimizer["state"].setdefault(int(index), {})[moment] = torch.from_numpy(value)
    model.policy.optimizer.load_state_dict(optimizer)
    torch.set_rng_state(torch.from_numpy(arrays["torch_random"]))
    model.num_timesteps, watch.updates = body["steps"], body["updates"]
    watch.looks = [Look(**look) for look in body["looks"]]
    if body["best"] is not None:
        layers = sum(name.startswith("best.") for name in arrays) // 2
        weights = tuple((arrays[f"best.{i}.weight"], arrays[f"best.{i}.bias"]) for i in range(layers))
        watch.best = (watch.looks[body["best"]], Actor(weights))
