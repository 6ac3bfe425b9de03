"""The section of the settings that says where signals come from."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pydantic import BaseModel, Field, field_validator

from caches.errors import InputError
from tuner.sections import SECTION
from tuner.signals import SIGNALS

EVERY = "all"  # in `labels`: for every query


class SignalsConfig(BaseModel):
    """What a Prometheus knows of the cache and its backends. What a preset asks, and how, is on the page of signal
    presets; any query can be written anew under `queries`."""

    model_config = SECTION

    prometheus: str | None = Field(
        None,
        description="Where it answers, as http://127.0.0.1:9090; not set: no such signals.",
        json_schema_extra={"unit": "URL"},
        repr=False,  # there may be a password in it
    )
    token_env: str | None = Field(
        None,
        min_length=1,
        description="Environment variable with a bearer token for it, if it asks for one.",
        json_schema_extra={"unit": "name"},
    )
    preset: tuple[str, ...] = Field(
        ("setpoint",),
        description="Presets to ask; of a signal that several have, the first in this list counts.",
        json_schema_extra={"unit": "list"},
    )
    queries: dict[str, str] = Field(
        {},
        description="Queries in PromQL by the name of their signal, in place of a preset's. An empty one: not asked.",
        json_schema_extra={"unit": "table"},
    )
    labels: dict[str, str] = Field(
        {},
        description="""Matchers for `$labels` by preset, as `vllm = 'job="vllm"'`; those of `all` are added to each.""",
        json_schema_extra={"unit": "table"},
    )
    window_seconds: float = Field(
        300.0,
        ge=1,
        description="What `$window` stands for: rates and quantiles are taken over it. At least four scrapes.",
        json_schema_extra={"unit": "s"},
    )
    timeout_seconds: float = Field(
        5.0, gt=0, description="Longest time for one reading of all signals.", json_schema_extra={"unit": "s"}
    )
    max_age_seconds: float | None = Field(
        None,
        gt=0,
        description="Older samples count as missing; not set: what the page of signals says for each.",
        json_schema_extra={"unit": "s"},
    )
    slots: int | None = Field(
        None,
        gt=0,
        description="What `$slots` stands for: sequences that run at once on one backend, as vLLM's `max-num-seqs`.",
        json_schema_extra={"unit": "sequences"},
    )
    required: tuple[str, ...] = Field(
        ("requests_per_second", "hit_ratio", "p99_ttft_seconds"),
        description="Signals whose absence is a failure of `setpoint signals check`.",
        json_schema_extra={"unit": "list"},
    )

    @field_validator("queries", "required")
    @classmethod
    def _known_signals(cls, names: Mapping[str, str] | tuple[str, ...]) -> Mapping[str, str] | tuple[str, ...]:
        unknown = [name for name in names if name not in SIGNALS]
        if unknown:
            raise ValueError(f"names of signals, of which {unknown[0]!r} is none: {', '.join(SIGNALS)}")
        return names

    def token(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """InputError where the variable is empty or not there."""
        if self.token_env is None:
            return None
        token = environ.get(self.token_env, "").strip()
        if not token:
            raise InputError(f"signals.token_env: got {self.token_env!r}, expected the name of a variable with a token")
        return token
