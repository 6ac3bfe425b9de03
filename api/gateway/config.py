"""The settings file of `setpoint serve`: one frozen object made of sections, and its reference page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, field_validator

from api.gateway.config_access_log import AccessLogConfig
from api.gateway.config_freshness import FreshnessConfig, Schedule
from api.gateway.config_knobs import SECTION, seconds
from api.gateway.config_resilience import ResilienceConfig
from api.gateway.config_streaming import StreamingConfig
from api.gateway.config_structure import StructureConfig
from api.gateway.config_tiers import TiersConfig
from api.gateway.config_tracing import TracingConfig
from api.gateway.config_tuning import TuningConfig
from api.gateway.config_warming import WarmingConfig
from api.gateway.settings import Role
from caches.guards.ladder import Rung
from caches.keys.fields import LEFT_OUT
from caches.keys.partitions import EXPECTED, NAME
from caches.keys.rules import KeyRules
from envs.units import described
from tuner.config_loader import load_config
from tuner.key_hash import KeyHash, each_once
from tuner.section_reference import section_reference


class KeyConfig(BaseModel):
    """An API key of this gateway, by its hash; a section for each. Where no client has one, everybody may use the API;
    where no viewer or operator has one, the endpoints under /v1/cache answer programs on this machine only."""

    model_config = SECTION

    sha256: KeyHash = described(..., "Hash of the key.", "name", repr=False)
    tenant: str = described(
        "default", "Whose requests it sends; tenants share nothing.", "name", pattern=f"^{NAME.pattern}$"
    )
    role: Role = described(
        Role.CLIENT,
        "client: OpenAI's API. viewer: counts, settings and metrics, to read. operator: what a viewer may, and to "
        "change settings and clear entries.",
        "name",
    )


class GatewayConfig(BaseModel):
    """The backend, where to listen, and limits."""

    model_config = SECTION

    upstream: str | tuple[str, ...] | None = described(
        None, "URL of the backend, with or without /v1; a list: several that answer alike.", "URL", repr=False
    )
    upstream_key_env: str | None = described(
        None, "Environment variable with the backend's key; not set: clients send theirs.", "name"
    )
    host: str = described("127.0.0.1", "Address to listen on.", "name")
    port: int = described(8080, "Port to listen on; 0: any free one.", "number", ge=0, le=65_535, strict=True)
    largest_body_bytes: int = described(16 * 2**20, "Largest request that is cached.", "bytes", gt=0, strict=True)
    deadline_seconds: float = seconds(600.0, "To the whole answer, or to the beginning of a stream.")
    idle_seconds: float = seconds(300.0, "Longest time without a byte from the backend.")
    connect_seconds: float = seconds(5.0, "Longest time to reach the backend.")
    connections: int = described(1_000, "To a backend at once; more requests wait.", "number", gt=0, strict=True)
    health_seconds: float = seconds(5.0, "Between two looks at how each of several backends is.")
    audit_log: Path | None = described(
        None, "File for who had what removed from the cache, as lines of JSON; not set: none.", "path"
    )
    keys: tuple[KeyConfig, ...] = described((), "API keys of this gateway, by their hashes.", "list")

    @field_validator("keys")
    @classmethod
    def _no_key_twice(cls, keys: tuple[KeyConfig, ...]) -> tuple[KeyConfig, ...]:
        return each_once(keys)


class NamespaceConfig(StructureConfig):
    """What holds in a namespace. NAME is its name, or the beginning of names and `*`, such as "support-*"; "*" is all
    others. A whole name counts before all, then the longest beginning; of the sections that fit, only that one counts.
    """

    model_config = SECTION

    tiers: tuple[str, ...] | None = described(
        None, "Names of the tiers that it uses, and no others; not set: all. An empty list caches nothing.", "list"
    )
    ttl_seconds: float | None = described(
        None,
        "Longest lifetime of its answers; not set: that of the tiers.",
        "s",
        gt=0,
        strict=True,
        allow_inf_nan=False,
    )
    admission: Literal["all", "second-hit"] | None = described(
        None, "Which of its answers are taken in; not set: what each tier says.", "name"
    )
    similarity_threshold: float | None = described(
        None, "Of hits by meaning, at the start; not set: that of the tier.", "similarity", ge=0, le=1, strict=True
    )
    wrong_hit_budget: float | None = described(
        None, "Of hits by meaning; not set: that of the tier.", "share", gt=0, le=1, strict=True
    )
    freshness: Schedule = described(
        "fixed", "How long its answers may be served, around `ttl_seconds` of their tier: see [freshness].", "name"
    )
    allow_sampled: bool = described(False, "Keep answers of a temperature above 0, or of none stated.", "")
    allow_seeded: bool = described(False, "Keep these where the request fixes a seed.", "")
    allow_stored: bool = described(False, "Keep answers of requests that ask the backend to store them.", "")
    openai_defaults: bool = described(False, "What is not stated means what OpenAI documents.", "")
    trim_text: bool = described(False, "White space at both ends of messages does not count.", "")
    left_out: tuple[str, ...] | None = described(
        None, "Fields of the body that do not count; not set: those of the page on keys.", "list"
    )

    degrade: tuple[Rung, ...] | None = described(
        None, "Who may answer in place of the backend, of stale, fallback, template; not set: all of them.", "list"
    )
    streams: bool = described(True, "Keep its streams while they come, where `[streaming]` is enabled.", "")

    def key_rules(self) -> KeyRules:
        """Raises InputError where left_out or folded_fields has a field that always counts."""
        return KeyRules(
            self.allow_sampled,
            self.allow_seeded,
            self.allow_stored,
            self.openai_defaults,
            self.trim_text,
            LEFT_OUT if self.left_out is None else frozenset(self.left_out),
            self.structure(),
        )


class ServeConfig(BaseModel):
    """Everything that a gateway is told."""

    model_config = SECTION

    gateway: GatewayConfig = GatewayConfig()
    tiers: TiersConfig = TiersConfig()
    access_log: AccessLogConfig = AccessLogConfig()
    warming: WarmingConfig = WarmingConfig()
    tuning: TuningConfig = TuningConfig()
    tracing: TracingConfig = TracingConfig()
    freshness: FreshnessConfig = FreshnessConfig()
    streaming: StreamingConfig = StreamingConfig()
    resilience: ResilienceConfig = ResilienceConfig()
    namespaces: dict[str, NamespaceConfig] = described({}, "Sections of namespaces.", "table")

    @field_validator("namespaces", mode="before")
    @classmethod
    def _names(cls, namespaces: Any) -> Any:
        for name in namespaces if isinstance(namespaces, dict) else ():
            if not NAMES.fullmatch(name):
                raise ValueError(f"names or beginnings of names and *, of {EXPECTED}")
        return namespaces


NAMES = re.compile(rf"(?:{NAME.pattern})\*?|\*")


def load_serve_config(file: Path | None, overrides: Mapping[str, object]) -> ServeConfig:
    """overrides: dotted key to value from options; None stands for an option that was not given.

    Raises InputError, naming file, key, value and what was expected. The environment is not read: it names keys of the
    tuner, and secrets, which have variables of their own.
    """
    return load_config(ServeConfig, file, {}, overrides)


def serve_reference() -> str:
    """The text of docs/gateway-settings.md."""
    return _INTRODUCTION + "".join(section_reference(ServeConfig, ""))


_INTRODUCTION = """# Settings of the gateway

`setpoint serve --config FILE` reads a TOML file. What it leaves out has the default below, and options on the command
line win over it. An unknown key is an error that names the nearest known one.

```toml
[gateway]
upstream = "http://127.0.0.1:8100"
upstream_key_env = "BACKEND_KEY"

[[gateway.keys]]
sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
tenant = "acme"

[tiers.redis]
url_env = "REDIS_URL"

[tiers.semantic]
similarity_threshold = 0.92
folder = "semantic"

[namespaces."support-*"]
tiers = ["memory", "redis"]
ttl_seconds = 86_400

[namespaces.experiments]
tiers = ["memory"]
allow_sampled = true
```

[The gateway](gateway.md) says what the parts do. Relative paths start at the working directory. This page is generated
from the code by `make docs`.
"""
