"""Imitation: networks that do what another policy does, as the start of training.

The teacher is followed over training traffic from many starts side by side, with some noise on what is done, not on
what is learnt. The student's mistakes lead it where the teacher never was, so in a second round the student drives and
the teacher only says what it would wish there (S. Ross, G. Gordon, D. Bagnell, A reduction of imitation learning and
structured prediction to no-regret online learning, AISTATS 2011). The critic learns what the student earned in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agents.actor import Actor
from agents.baselines.fitting import choose
from agents.baselines.schedule_fit import fit_schedule
from agents.baselines.whatif_fit import fit_whatif
from agents.learning import Layers, Start, blinded, hidden_entries, learning_reward
from agents.policy import ControlPolicy
from agents.ppo_config import PPOConfig
from agents.rollout import look_around
from agents.study import Study
from envs.control import LaneControl
from envs.ghosts import GhostGrid, joined
from envs.interval import total_usd

Array = NDArray[Any]
MakeTeacher = Callable[[], ControlPolicy]

HELD_OUT = 0.2  # the last share of training intervals, on which the regression stops early
UNKNOWN_TAIL = 0.05  # a return is used when at most this share of its weight lies beyond the episode's end


@dataclass(frozen=True)
class Demonstrations:
    """What was seen and wished for. observations: float32 (n, SIZE). wishes: (n, 3) in [-1, 1]. returns: (n,),
    discounted sum of rewards from there on, NaN near the end of an episode. intervals: (n,), where it was."""

    observations: NDArray[np.float32]
    wishes: Array
    returns: Array
    intervals: Array

    def __add__(self, other: Demonstrations) -> Demonstrations:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Demonstrations(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class Regression:
    """How networks are fitted. patience: passes over the samples without improvement on those held out."""

    learning_rate: float = 2e-3
    batch_size: int = 256
    passes: int = 200
    patience: int = 15


def imitate_best(study: Study, grid: GhostGrid, config: PPOConfig, seed: int) -> Start:
    """Does what `best_teacher` does; where that one never moves, this is the reference setting."""
    chosen = best_teacher(study, grid)
    return imitate(study, lambda: deepcopy(chosen), config, seed, grid)


def best_teacher(study: Study, grid: GhostGrid) -> ControlPolicy:
    """The what-if controller, or the schedule of hours where that is cheaper on validation traffic."""
    teachers: list[ControlPolicy] = [fit_whatif(study, grid), fit_schedule(study, grid)]
    return teachers[choose(study, grid, teachers).index]


def imitate(study: Study, teacher: MakeTeacher, config: PPOConfig, seed: int, grid: GhostGrid | None = None) -> Start:
    """Networks of the shape that `config` says, from the study's training episodes. grid: shown to the teacher.

    Equal seeds give equal networks.
    """
    hidden = hidden_entries(config)
    told = demonstrate(study, teacher, config, seed, grid)
    student = _student(told, study, config, seed)
    corrected = demonstrate(study, teacher, config, seed + 1, grid, student)
    return Start(_student(told + corrected, study, config, seed), _critic(corrected, study, config, seed, hidden))


def value_of(study: Study, actor: Actor, config: PPOConfig, seed: int) -> Layers | None:
    """A critic for a policy that is there already, from what it earns over the study's training episodes; None where
    those are too short to tell."""
    told = demonstrate(study, _Silent, config, seed, None, actor)
    return _critic(told, study, config, seed, hidden_entries(config))


class _Silent:
    """Wishes for nothing; stands where only the student counts."""

    name = "silent"

    def reset(self, seed: int) -> None:
        """Nothing to forget."""

    def act(self, sight: object) -> NDArray[np.float64]:
        return np.zeros(3)


def demonstrate(
    study: Study,
    teacher: MakeTeacher,
    config: PPOConfig,
    seed: int,
    grid: GhostGrid | None = None,
    student: Actor | None = None,
) -> Demonstrations:
    """One episode from each of the study's starts. student: who acts; by default the teacher does. What is done is
    what was decided plus noise of deviation `config.exploration`."""
    starts, horizon = study.episodes.starts, study.episodes.horizon
    control, noise = study.control(len(starts), horizon), np.random.default_rng(seed)
    teachers = [teacher() for _ in starts]
    for lane, start in enumerate(starts):
        control.reset(lane, study.reference.checkpoint(start))
        teachers[lane].reset(seed + lane)
    shown = None if grid is None else joined(grid, study.reference)
    seen, wished, earned, where = [], [], [], []
    for _ in range(horizon):
        sights = look_around(control, shown)
        wishes = np.clip([one.act(sight) for one, sight in zip(teachers, sights, strict=True)], -1.0, 1.0)
        observations = np.stack([sight.observation for sight in sights])
        decided = wishes if student is None else student.act_batch(observations)
        seen.append(observations)
        wished.append(wishes)
        where.append(control.index.copy())
        earned.append(_step(control, decided + noise.normal(0.0, config.exploration, wishes.shape), config))
    returns = discounted(np.array(earned), config.discount)
    return Demonstrations(np.concatenate(seen), np.concatenate(wished), returns.ravel(), np.concatenate(where))


def discounted(rewards: Array, discount: float) -> Array:
    """Discounted sums of the rewards from each step on, shape (steps, lanes); NaN where too much of the sum would lie
    beyond the last step."""
    returns, following = np.empty_like(rewards), np.zeros(rewards.shape[1])
    for step in reversed(range(len(rewards))):
        following = returns[step] = rewards[step] + discount * following
    tail = len(rewards) if discount == 1.0 else math.ceil(math.log(UNKNOWN_TAIL) / math.log(discount))
    returns[max(len(rewards) - tail, 0) :] = np.nan
    return returns


def regress(
    inputs: Array, targets: Array, held: NDArray[np.bool_], hidden: tuple[int, ...], seed: int, how: Regression
) -> tuple[Layers, float]:
    """Layers of a tanh network by least squares, and its mean squared error on the samples held out.

    inputs: (n, entries). targets: (n, outputs). held: (n,). hidden: widths. It begins at zero everywhere and keeps what
    was best on the samples held out.
    """
    torch.set_num_threads(1)  # nets this small gain nothing from two and lose much beside other work
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _network((inputs.shape[1], *hidden, targets.shape[1]))
        return _fit(network, _tensors(inputs, targets, ~held), _tensors(inputs, targets, held), how)


def _fit(network: torch.nn.Sequential, learnt: Any, held: Any, how: Regression) -> tuple[Layers, float]:
    optimizer = torch.optim.Adam(network.parameters(), how.learning_rate)
    best, least, since = _layers(network), _error(network, *held), 0
    for _ in range(how.passes):
        for batch in torch.split(torch.randperm(len(learnt[0])), how.batch_size):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(network(learnt[0][batch]), learnt[1][batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        error = _error(network, *held)
        since = 0 if error < least else since + 1
        if since == 0:
            best, least = _layers(network), error
        if since >= how.patience:
            break
    return best, least


def _network(widths: tuple[int, ...]) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.Tanh()]
    last = layers[-2]
    assert isinstance(last, torch.nn.Linear)
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.zeros_(last.bias)
    return torch.nn.Sequential(*layers[:-1])


def _layers(network: torch.nn.Sequential) -> Layers:
    linear = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
    return tuple((layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()) for layer in linear)


def _error(network: torch.nn.Sequential, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    with torch.no_grad():
        return float(torch.nn.functional.mse_loss(network(inputs), targets))


def _tensors(inputs: Array, targets: Array, chosen: NDArray[np.bool_]) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        torch.from_numpy(inputs[chosen].astype(np.float32)),
        torch.from_numpy(targets[chosen].astype(np.float32)),
    )


def _step(control: LaneControl, actions: Array, config: PPOConfig) -> Array:
    saved = control.step(np.clip(actions, -1.0, 1.0))
    return learning_reward(saved, total_usd(control.rows), control.scale.interval_usd, config.difference_reward)


def _held(told: Demonstrations, study: Study) -> NDArray[np.bool_]:
    training = study.training
    return np.asarray(told.intervals >= training.stop - max(int(HELD_OUT * len(training)), 1))


def _student(told: Demonstrations, study: Study, config: PPOConfig, seed: int) -> Actor:
    hidden = hidden_entries(config)
    seen = np.where(hidden, np.float32(0.0), told.observations)
    layers, _ = regress(seen, told.wishes, _held(told, study), config.hidden, seed, Regression())
    return Actor(blinded(layers, hidden))


def _critic(
    told: Demonstrations, study: Study, config: PPOConfig, seed: int, hidden: NDArray[np.bool_]
) -> Layers | None:
    known = np.isfinite(told.returns)
    held = _held(told, study)
    if not (known & held).any() or not (known & ~held).any():
        return None
    seen = np.where(hidden, np.float32(0.0), told.observations)[known]
    layers, _ = regress(seen, told.returns[known, None], held[known], config.hidden, seed, Regression())
    return layers
