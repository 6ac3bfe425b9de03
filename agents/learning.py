"""What every learner here shares: what it may see, what it is paid, and where it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.actor import Actor, Layer
from agents.ppo_config import PPOConfig
from envs.observation import names

Array = NDArray[Any]
Layers = tuple[Layer, ...]

# Learning clips the reward of one interval to half of a mean interval's cost: a rare overload costs many times that,
# and a single one would drown what the other thousand intervals teach. Judging counts all the money.
REWARD_LIMIT = 5.0


@dataclass(frozen=True)
class Start:
    """Where training begins in place of the reference setting. critic: layers like an actor's with one output, the
    value of an observation; None begins with an untrained one."""

    actor: Actor
    critic: Layers | None = None


def hidden_entries(config: PPOConfig) -> NDArray[np.bool_]:
    """Entries of the observation that the learner gets as zero, shape (SIZE,)."""
    whatif = np.array([name.startswith("whatif_") for name in names()])
    return whatif & (not config.whatif_features)


def blinded(layers: Layers, hidden: NDArray[np.bool_]) -> Layers:
    """Layers on which hidden entries of the observation have no influence: their weights in the first are zero."""
    (weight, bias), *rest = layers
    return ((np.where(hidden, np.float32(0.0), weight), bias), *rest)


def learning_reward(saved: Array, usd: Array, interval_usd: float, difference: bool) -> Array:
    """What the learner is paid for intervals: the saving against the reference (saved, in units of envs.reward), or
    minus the cost in mean costs of a reference interval. Clipped to REWARD_LIMIT."""
    return np.clip(saved if difference else -usd / interval_usd, -REWARD_LIMIT, REWARD_LIMIT)
