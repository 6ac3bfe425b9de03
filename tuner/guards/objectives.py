"""The section of the settings that guardrails go by."""

from __future__ import annotations

from functools import cached_property

from pydantic import BaseModel, field_validator

from caches.errors import InputError
from envs.interval import NAMES
from envs.reward import Constraints
from envs.units import described
from tuner.guards.freeze import Window, parse_window
from tuner.sections import SECTION
from tuner.signals import SIGNALS


class Objectives(BaseModel):
    """What must hold while settings are tuned live, and when nothing may change. A broken objective takes the
    challenger out; whatever cannot be known holds the settings where they are."""

    model_config = SECTION

    p99_ttft_seconds: float | None = described(
        None, "Largest P99 of the time to the first token; not set: that of [constraints].", "s", gt=0
    )
    p99_latency_seconds: float | None = described(
        None, "Largest P99 of the time to the whole answer; not set: no limit.", "s", gt=0
    )
    error_ratio: float = described(0.02, "Largest share of requests that end in an error.", "share", gt=0, le=1)
    stale_ratio: float | None = described(
        None,
        "Largest expected share of outdated answers among hits; not set: that of [constraints].",
        "share",
        gt=0,
        le=1,
    )
    wrong_hit_ratio: float | None = described(
        None,
        "Largest share of wrong answers among verified hits by meaning; not set: not watched.",
        "share",
        gt=0,
        le=1,
    )
    memory_bytes: float | None = described(
        None, "Most that the cache may hold; not set: the largest value of knobs.cache_size.", "bytes", gt=0
    )
    vram_ratio: float | None = described(
        None,
        "Largest share of GPU memory in use; not set: not watched, as for a cache that lies elsewhere.",
        "share",
        gt=0,
        le=1,
    )
    least_requests: int = described(
        100, "Requests of an arm in an interval below which nothing is concluded from it.", "requests", ge=1
    )
    required_signals: tuple[str, ...] = described(
        ("hit_ratio", "p99_ttft_seconds"), "Signals without which nothing is changed.", "list"
    )
    missing_share: float = described(0.25, "Largest share of signals that may be missing.", "share", ge=0, lt=1)
    outside_deviations: float = described(
        5.0,
        "How far an observation may lie outside the range of the policy's training, in deviations of training traffic.",
        "deviations",
        gt=0,
    )
    alike_ratio: float = described(
        0.1,
        "How much worse than the control arm still counts as alike, and so as not the challenger's fault.",
        "ratio",
        ge=0,
    )
    rollback_after: int = described(
        3, "Intervals in a row with a broken objective after which settings are rolled back.", "intervals", ge=1
    )
    severe_ratio: float = described(
        2.0, "This many times an objective, or more, is rolled back at once.", "ratio", gt=1
    )
    severe_requests: int = described(
        1000, "Requests of the arm in the interval that it takes for that.", "requests", ge=1
    )
    freeze: tuple[str, ...] = described(
        (), "When nothing may change, such as 'Mon-Fri 09:00-17:00 Europe/Berlin'.", "list"
    )

    @field_validator("freeze")
    @classmethod
    def _freeze_is_understood(cls, freeze: tuple[str, ...]) -> tuple[str, ...]:
        for text in freeze:
            try:
                parse_window(text)
            except InputError as error:
                raise ValueError(str(error).split("expected ", 1)[1]) from error
        return freeze

    @field_validator("required_signals")
    @classmethod
    def _signals_have_such_names(cls, required: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in required if name not in SIGNALS and name not in NAMES]
        if unknown:
            raise ValueError(f"names of signals, and {unknown[0]!r} is none (setpoint signals check lists them)")
        return required

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        return tuple(parse_window(text) for text in self.freeze)

    def within(self, constraints: Constraints) -> Objectives:
        """With what is not set and follows from the constraints filled in."""
        ttft, stale = self.p99_ttft_seconds, self.stale_ratio
        return self.model_copy(
            update={
                "p99_ttft_seconds": constraints.p99_ttft_seconds if ttft is None else ttft,
                "stale_ratio": constraints.stale_ratio if stale is None else stale,
            }
        )
