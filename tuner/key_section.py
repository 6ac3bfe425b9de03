"""The section of the settings that says where a daemon sees which keys the cache is asked for."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, model_validator

from envs.units import described
from tuner.sections import SECTION


class KeysConfig(BaseModel):
    """The key stream: the gateway's access log, as it is written. Ghost caches beside it tell policies what other
    settings would have cost, and an experiment how its arms differ by luck. Without one, what-if controllers hold."""

    model_config = SECTION

    stream: str | None = described(
        None, "Redis stream of the access log, as redis://host:6379/0?stream=NAME.", "URL", repr=False
    )
    stream_env: str | None = described(
        None, "Environment variable with that URL, if there is a password in it.", "name", min_length=1
    )
    folder: Path | None = described(None, "Folder of the access log, where it is written as Parquet files.", "path")
    past_intervals: int = described(
        288, "Control intervals of the past that ghosts are fed with at a start.", "intervals", ge=0, strict=True
    )
    rate: float = described(1.0, "Share of the keys that the grid of ghosts follows at first.", "share", gt=0, le=1)
    most_keys: int = described(
        100_000, "Keys that it follows at most; beyond, the share is halved.", "keys", gt=0, strict=True
    )
    most_requests: int = described(
        15_000, "Requests of these in an interval at most; beyond, the share is halved.", "requests", gt=0, strict=True
    )
    most_arm_keys: int = described(
        1_000_000,
        "Keys that the ghosts of an experiment's arms follow at most, which are all where there are no more.",
        "keys",
        gt=0,
        strict=True,
    )
    most_arm_requests: int = described(
        250_000, "Requests of these in an interval at most.", "requests", gt=0, strict=True
    )
    horizon_seconds: float = described(604_800.0, "When a key that nobody asks for is forgotten.", "s", gt=0)
    settle_seconds: float = described(
        20.0, "How long an answer may take to be in the log before ghosts are fed.", "s", ge=0
    )

    @model_validator(mode="after")
    def _one_source(self) -> KeysConfig:
        if sum(one is not None for one in (self.stream, self.stream_env, self.folder)) > 1:
            raise ValueError("one of stream, stream_env and folder")
        return self
