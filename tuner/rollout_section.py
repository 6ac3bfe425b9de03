"""The section of the settings that a rollout goes by."""

from __future__ import annotations

from itertools import pairwise

from pydantic import BaseModel, model_validator

from envs.units import described
from tuner.sections import SECTION


class RolloutConfig(BaseModel):
    """How a challenger gets from deciding without effect to all keys, and how long each step takes."""

    model_config = SECTION

    shares: tuple[float, ...] = described(
        (0.05, 0.2, 0.5, 1.0), "The challenger's share of the keys, step by step, up to 1.", "list"
    )
    step_intervals: tuple[int, ...] = described(
        (24, 24, 24, 12), "Intervals that each of these steps takes at least.", "list"
    )
    settle_intervals: int = described(
        3,
        "Intervals at the start of a step that do not count: caches of new sizes have yet to fill.",
        "intervals",
        ge=0,
    )
    shadow_intervals: int = described(
        24, "Intervals in which a challenger decides with nothing applied, before it is given keys.", "intervals", ge=0
    )
    cool_down_intervals: int = described(
        144, "Intervals after a rollback before a new version is tried.", "intervals", ge=0
    )

    @model_validator(mode="after")
    def _steps_go_up(self) -> RolloutConfig:
        if len(self.shares) < 2 or self.shares[0] <= 0.0 or self.shares[-1] != 1.0:
            raise ValueError("shares of at least two steps, above 0 and up to 1")
        if any(before >= after for before, after in pairwise(self.shares)):
            raise ValueError("shares that grow from step to step")
        if len(self.step_intervals) != len(self.shares) or min(self.step_intervals) < 1:
            raise ValueError(f"step_intervals of at least 1 for each of the {len(self.shares)} shares")
        return self
