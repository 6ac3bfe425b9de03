"""The sections of the settings that belong to no other package. Every field has default, unit and help."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from caches.errors import InputError
from caches.knobs import Knob, KnobSpace
from caches.policies.pair import ADMISSION_NAMES, EVERY, EVICTION_NAMES, CachePolicy, Kind, policies_called

SECTION = ConfigDict(frozen=True, extra="forbid")


class SplitConfig(BaseModel):
    """Shares of the trace's time span, in order of time. Policies are judged on `test` only."""

    model_config = SECTION

    train: float = Field(
        0.6, gt=0, lt=1, description="Policies are fitted on this part.", json_schema_extra={"unit": "share"}
    )
    validation: float = Field(
        0.2, gt=0, lt=1, description="Training stops early by this part.", json_schema_extra={"unit": "share"}
    )
    test: float = Field(0.2, gt=0, lt=1, description="Held out for the judgement.", json_schema_extra={"unit": "share"})

    @model_validator(mode="after")
    def _sums_to_one(self) -> SplitConfig:
        if abs(self.train + self.validation + self.test - 1.0) > 1e-9:
            raise ValueError("train + validation + test = 1")
        return self


class AssumeConfig(BaseModel):
    """What is assumed where a trace does not record it. Every report that used one of these says so."""

    model_config = SECTION

    prompt_tokens: int = Field(1020, gt=0, description="Length of a prompt.", json_schema_extra={"unit": "tokens"})
    bytes_per_token: float = Field(
        4.0, gt=0, description="Size of a response per output token.", json_schema_extra={"unit": "bytes"}
    )
    envelope_bytes: int | None = Field(
        None,
        ge=0,
        description="Set: sizes are this and bytes_per_token for each output token, in place of those recorded, as for "
        "keys that were recorded at another kind of cache.",
        json_schema_extra={"unit": "bytes"},
    )


class TraceConfig(BaseModel):
    """The traffic to learn from and how it is cut."""

    model_config = SECTION

    path: Path | None = Field(
        None,
        description="Trace file, in any format that `setpoint trace convert` reads.",
        json_schema_extra={"unit": "path"},
    )
    interval_seconds: float = Field(
        300.0, gt=0, description="Length of a control interval.", json_schema_extra={"unit": "s"}
    )
    split: SplitConfig = SplitConfig()
    assume: AssumeConfig = AssumeConfig()


class CacheSizeConfig(BaseModel):
    """Capacity of the cache, on a logarithmic scale. What is not set follows from the trace's footprint."""

    model_config = SECTION

    low: float | None = Field(
        None,
        gt=0,
        description="Smallest capacity; not set: a thousandth of the trace's distinct bytes.",
        json_schema_extra={"unit": "bytes"},
    )
    high: float | None = Field(
        None,
        gt=0,
        description="Largest capacity; not set: the trace's distinct bytes.",
        json_schema_extra={"unit": "bytes"},
    )
    default: float | None = Field(
        None,
        gt=0,
        description="Capacity before any tuning; not set: a tenth of the largest, in range.",
        json_schema_extra={"unit": "bytes"},
    )
    max_step: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Largest change per control interval.",
        json_schema_extra={"unit": "share of range"},
    )

    def knob(self, footprint_bytes: float) -> Knob:
        high = footprint_bytes if self.high is None else self.high
        low = min(footprint_bytes, high) / 1000 if self.low is None else self.low
        default = max(low, high / 10) if self.default is None else self.default
        return Knob("cache_size", "bytes", low, high, default, self.max_step, "log")


class TtlConfig(BaseModel):
    """Lifetime of an entry, on a logarithmic scale."""

    model_config = SECTION

    low: float = Field(10.0, gt=0, description="Shortest lifetime.", json_schema_extra={"unit": "s"})
    high: float = Field(604_800.0, gt=0, description="Longest lifetime.", json_schema_extra={"unit": "s"})
    default: float = Field(3600.0, gt=0, description="Lifetime before any tuning.", json_schema_extra={"unit": "s"})
    max_step: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Largest change per control interval.",
        json_schema_extra={"unit": "share of range"},
    )

    def knob(self) -> Knob:
        return Knob("ttl_seconds", "seconds", self.low, self.high, self.default, self.max_step, "log")


class WarmupConfig(BaseModel):
    """Share of the ranked warm-up candidates that is fetched ahead at the start of an interval."""

    model_config = SECTION

    low: float = Field(0.0, ge=0, le=1, description="Smallest share.", json_schema_extra={"unit": "share"})
    high: float = Field(1.0, ge=0, le=1, description="Largest share.", json_schema_extra={"unit": "share"})
    default: float = Field(0.0, ge=0, le=1, description="Share before any tuning.", json_schema_extra={"unit": "share"})
    max_step: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Largest change per control interval.",
        json_schema_extra={"unit": "share of range"},
    )

    def knob(self) -> Knob:
        return Knob("warmup_ratio", "share", self.low, self.high, self.default, self.max_step, "linear")


class KnobsConfig(BaseModel):
    """What may be tuned: range, default and largest step of each knob."""

    model_config = SECTION

    cache_size: CacheSizeConfig = CacheSizeConfig()
    ttl_seconds: TtlConfig = TtlConfig()
    warmup_ratio: WarmupConfig = WarmupConfig()

    def space(self, footprint_bytes: float) -> KnobSpace:
        """footprint_bytes: distinct bytes of the trace, for the parts of cache_size that are not set.

        Raises InputError where a range is empty or a default lies outside it.
        """
        return KnobSpace(self.cache_size.knob(footprint_bytes), self.ttl_seconds.knob(), self.warmup_ratio.knob())


class CacheConfig(BaseModel):
    """How the cache behaves, whatever its settings."""

    model_config = SECTION

    kind: Kind = Field(
        "response",
        description="What is cached: whole responses by key, or the keys and values of prompts by leading blocks.",
        json_schema_extra={"unit": "name"},
    )
    expiry: Literal["since_write", "since_touch"] = Field(
        "since_write",
        description="What an entry's age runs from; in a prefix cache always from the last touch.",
        json_schema_extra={"unit": "name"},
    )
    entry_overhead_bytes: int = Field(
        0,
        ge=0,
        description="Memory of an entry besides the response: key, metadata, embedding.",
        json_schema_extra={"unit": "bytes"},
    )
    warmup_candidates: int = Field(
        128,
        gt=0,
        description="Keys, or sessions of a prefix cache, ranked for warm-up at each interval.",
        json_schema_extra={"unit": "keys"},
    )
    popularity_decay: float = Field(
        0.7,
        gt=0,
        le=1,
        description="What a request still counts an interval later.",
        json_schema_extra={"unit": "ratio"},
    )
    eviction_policy: str | tuple[str, ...] = Field(
        "lru",
        description=f"Which entry goes when there is no room, of {', '.join(EVICTION_NAMES['response'])}, or in a "
        f"prefix cache which block, of {', '.join(EVICTION_NAMES['prefix'])}; or several as a list, or {EVERY} for "
        "each of them, of which `train` takes the cheapest and `whatif` compares all. Beside a live cache the first is "
        "the one that it was made with, and a policy may choose between all.",
        json_schema_extra={"unit": "name"},
    )
    admission: str = Field(
        "all",
        description=f"Which responses are taken in, of {', '.join(ADMISSION_NAMES['response'])}, or in a prefix cache "
        f"which blocks, of {', '.join(ADMISSION_NAMES['prefix'])}.",
        json_schema_extra={"unit": "name"},
    )

    @field_validator("eviction_policy")
    @classmethod
    def _eviction_is_known(cls, value: str | tuple[str, ...], info: ValidationInfo) -> str | tuple[str, ...]:
        names, known = (value,) if isinstance(value, str) else value, _of_kind(EVICTION_NAMES, info)
        if not names or not set(names) <= {*known, *((EVERY,) if isinstance(value, str) else ())}:
            raise ValueError(f"one of {', '.join(known)}, a list of them, or {EVERY}")
        return value

    @field_validator("admission")
    @classmethod
    def _admission_is_known(cls, value: str, info: ValidationInfo) -> str:
        known = _of_kind(ADMISSION_NAMES, info)
        if value not in known:
            raise ValueError(f"one of {', '.join(known)}")
        return value

    @property
    def policies(self) -> tuple[CachePolicy, ...]:
        """Those to choose from; one, as a rule. Beside a live cache the first is the one that it was made with."""
        return policies_called(self.eviction_policy, (self.admission,), self.kind)

    @property
    def policy(self) -> CachePolicy:
        """Raises InputError where there are several to choose from."""
        if len(self.policies) > 1:
            raise InputError(
                f"cache.eviction_policy: got {', '.join(map(str, self.policies))}, expected one: a cache is replayed "
                "under one policy"
            )
        return self.policies[0]

    def under(self, policy: CachePolicy) -> CacheConfig:
        """The same with that policy alone."""
        return self.model_copy(update={"eviction_policy": policy.eviction, "admission": policy.admission})


def _of_kind(names: Mapping[Kind, tuple[str, ...]], info: ValidationInfo) -> tuple[str, ...]:
    """Names of the kind of cache that was set; of response caches where that was no kind."""
    return names[info.data.get("kind", "response")]


class TrackingConfig(BaseModel):
    """Where runs, pictures and policies are kept."""

    model_config = SECTION

    uri: str = Field(
        "sqlite:///mlruns/mlflow.db",
        min_length=1,
        description="MLflow tracking store; a relative SQLite path starts at the working directory.",
        json_schema_extra={"unit": "URI", "variable": "MLFLOW_TRACKING_URI"},
    )
    experiment: str = Field(
        "setpoint",
        min_length=1,
        description="MLflow experiment of the runs.",
        json_schema_extra={"unit": "name"},
    )
    model: str = Field(
        "cache-policy",
        min_length=1,
        description="Registered model whose versions are policies.",
        json_schema_extra={"unit": "name"},
    )
    output: Path = Field(Path("out"), description="Folder for tables and pictures.", json_schema_extra={"unit": "path"})

    def resolved_uri(self, directory: Path) -> str:
        """The URI with a relative SQLite path made absolute, so that it holds in every process.

        directory: the working directory.
        """
        scheme, _, path = self.uri.partition(":///")
        if scheme != "sqlite" or path.startswith("/") or path in ("", ":memory:"):
            return self.uri
        return f"sqlite:///{(directory / path).resolve()}"


class RunConfig(BaseModel):
    """How a training or an evaluation runs."""

    model_config = SECTION

    seeds: tuple[int, ...] = Field(
        (0, 1, 2, 3, 4),
        min_length=1,
        description="One policy is trained per seed.",
        json_schema_extra={"unit": "list"},
    )
    workers: int = Field(
        2,
        ge=1,
        description="Seeds trained at the same time, each in its process.",
        json_schema_extra={"unit": "processes"},
    )
    ray: str | None = Field(
        None,
        description="Ray cluster to train and judge on: host:port, ray://host:port, auto, or local. Extra `ray`.",
        json_schema_extra={"unit": "address"},
    )
    threads: int = Field(
        1,
        ge=1,
        description="Threads of the numeric libraries in each process.",
        json_schema_extra={"unit": "threads"},
    )

    @model_validator(mode="after")
    def _seeds_are_distinct(self) -> RunConfig:
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError("distinct seeds, none below 0")
        return self
