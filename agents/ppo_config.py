"""Hyperparameters of PPO, apart from the learner so that reading settings does not import torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from envs.units import described


class PPOConfig(BaseModel):
    """Defaults learn well on the workloads of benchmarks/workloads.py."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    total_steps: int = described(300_000, "interval-steps of training", "steps", gt=0)
    lanes: int = described(64, "caches trained on side by side", "lanes", gt=0)
    steps_per_update: int = described(32, "steps of each lane between updates", "steps", gt=0)
    batch_size: int = described(512, "samples per gradient step", "samples", gt=1)
    epochs: int = described(10, "passes over the samples of an update", "passes", gt=0)
    learning_rate: float = described(1e-3, "Adam's step size", "1", gt=0)
    clip_range: float = described(0.2, "largest change of probability ratio", "1", gt=0)
    discount: float = described(0.95, "weight of the next interval's reward", "1", gt=0, le=1)
    gae_lambda: float = described(0.9, "generalised advantage estimation", "1", ge=0, le=1)
    exploration: float = described(0.05, "initial standard deviation of the action", "share of range", gt=0)
    hidden: tuple[int, ...] = described((64, 64), "widths of the hidden layers", "units")
    horizon: int = described(144, "longest episode", "intervals", gt=0)
    starts: int = described(16, "places in training traffic where episodes start", "places", gt=0)
    evaluate_every: int = described(10, "updates between looks at validation traffic", "updates", gt=0)
    patience: int = described(20, "looks without improvement before stopping early", "looks", gt=0)
    averaging: float = described(
        0.95,
        "weight of the past, per update, in the average of networks that is kept",
        "1",
        ge=0,
        lt=1,
    )
    dead_band: float = described(
        0.02, "wishes nearer than this to where a knob is leave it there", "share of range", ge=0, lt=1
    )
    whatif_features: bool = described(True, "whether the what-if entries of the observation are seen", "yes or no")
    imitation: bool = described(
        False, "whether training starts from imitating the what-if controller or the schedule of hours", "yes or no"
    )
    difference_reward: bool = described(
        True, "whether the reward is the saving against the reference; otherwise minus the cost", "yes or no"
    )


def preset(name: Literal["default", "seed"]) -> PPOConfig:
    """`seed`: the configuration published in the second design document (learning rate 3e-5, clip range 0.1, batch size
    512, 10 epochs), with updates of 2,048 samples."""
    if name == "seed":
        return PPOConfig(learning_rate=3e-5, clip_range=0.1, batch_size=512, epochs=10, lanes=64, steps_per_update=32)
    return PPOConfig()
