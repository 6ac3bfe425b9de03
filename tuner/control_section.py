"""The section of the settings that the control loop goes by."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, model_validator

from envs.units import described
from tuner.sections import SECTION


class ControlConfig(BaseModel):
    """The daemon beside a live cache: which cache, how often, and how far it may go by itself."""

    model_config = SECTION

    gateway: str = described(
        "http://127.0.0.1:8080", "URL of the gateway whose cache is tuned.", "URL", min_length=1, repr=False
    )
    key_env: str | None = described(
        None, "Environment variable with an API key of the gateway, of an operator; not set: none is sent.", "name"
    )
    cache: str = described("gateway", "What the ledger and the metrics call the cache.", "name", min_length=1)
    ledger: str = described(
        "sqlite:///setpoint.db",
        "Where decisions are kept; a relative SQLite path starts at the working directory.",
        "URI",
    )
    interval_seconds: float | None = described(
        None, "Length of a control interval; not set: trace.interval_seconds.", "s", gt=0
    )
    mode: Literal["shadow", "canary", "live"] = described(
        "shadow",
        "shadow: policies decide and nothing is applied. canary: the champion acts, and a challenger gets a growing "
        "share of the keys, but a person promotes it. live: a challenger that is proven is promoted.",
        "name",
    )
    poll_seconds: float = described(
        1.0, "How often the daemon looks whether an interval is over or something is asked of it.", "s", gt=0
    )
    lease_intervals: float = described(
        2.0, "How long a daemon that says nothing stays the active one, in intervals.", "intervals", ge=1
    )
    refresh_seconds: float = described(30.0, "How often the registry is asked for new policies.", "s", gt=0)
    keep_days: float = described(
        400.0, "How long intervals and decisions are kept in the ledger; those of experiments for longer.", "days", gt=0
    )
    access_log: Path | None = described(
        None,
        "Folder of the gateway's access log, to train on when traffic has changed; not set: that is left to people.",
        "path",
    )
    timeout_seconds: float = described(2.0, "Longest time to wait for the cache's answer.", "s", gt=0)
    metrics_port: int | None = described(
        None, "Port of the daemon's metrics for Prometheus; 0: any free one; not set: none.", "number", ge=0, le=65_535
    )
    metrics_host: str = described(
        "127.0.0.1",
        "Address of that page; it tells settings and costs to everybody who reaches it.",
        "name",
        min_length=1,
    )

    @model_validator(mode="after")
    def _polls_often_enough(self) -> ControlConfig:
        if self.interval_seconds is not None and self.poll_seconds > self.interval_seconds / 2:
            raise ValueError("poll_seconds of at most half an interval")
        return self
