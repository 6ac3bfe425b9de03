"""The section of the settings that the watch for changes of regime goes by."""

from __future__ import annotations

from pydantic import BaseModel, model_validator

from envs.units import described
from tuner.sections import SECTION


class RegimeConfig(BaseModel):
    """When traffic counts as no longer what it was, and what is done then."""

    model_config = SECTION

    delta: float = described(
        1e-4, "Bound on the chance of a false alarm, per watched feature (ADWIN).", "probability", gt=0, lt=1
    )
    block_seconds: float = described(3600.0, "Intervals are averaged over this long.", "s", gt=0)
    season_seconds: float = described(
        86_400.0,
        "After which traffic repeats: a block is compared with that of a season before; 0: with none.",
        "s",
        ge=0,
    )
    calm_blocks: int = described(
        48, "Blocks of changes from which it learns how much traffic varies, before it says anything.", "blocks", ge=8
    )
    kept_blocks: int = described(336, "Blocks that it looks back on.", "blocks", ge=16)
    hold_intervals: int = described(
        6, "Intervals after a change of regime in which settings are held.", "intervals", ge=0
    )
    retrain_intervals: int = described(
        144, "Intervals after it when a training on the new traffic is asked for.", "intervals", ge=1
    )

    @model_validator(mode="after")
    def _times_are_in_order(self) -> RegimeConfig:
        if self.hold_intervals >= self.retrain_intervals:
            raise ValueError("hold_intervals below retrain_intervals")
        if self.kept_blocks * self.block_seconds < self.season_seconds + self.calm_blocks * self.block_seconds:
            raise ValueError("kept_blocks that hold a season and the calm blocks after it")
        return self
