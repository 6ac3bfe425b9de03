"""The sections of the gateway's settings that say what happens when a backend is slow, too busy or gone."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, model_validator

from api.gateway.config_knobs import SECTION, seconds, size
from caches.breaker import BreakerRule
from caches.guards.classes import ClassRule
from caches.guards.health import HealthRule
from caches.guards.ladder import OTHERS, TABLE, Rung, Why
from caches.guards.latency import LatencyRule
from caches.guards.token_rate import TokenRule
from envs.units import described

BURST_SECONDS = 10.0
STALE_BYTES = 128 * 2**20
MEANS = {
    Why.SLOW: "The backend is slow",
    Why.OVER_RATE: "Too many tokens a second are asked for",
    Why.CLASS: "The request is of a class that is kept back",
    Why.DOWN: "The backend is not there, or failed a moment ago",
    Why.FAILED: "The backend was asked, and failed or is too busy",
}


def _tokens(help: str) -> Any:
    return described(None, help, "tokens", gt=0, strict=True, allow_inf_nan=False)


def _when(why: Why) -> Any:
    rungs = tuple(Rung) if why is Why.SLOW else OTHERS
    return described(TABLE[why], f"{MEANS[why]}: who answers then, in order, of {', '.join(rungs)}.", "list")


class TokenRateConfig(BaseModel):
    """How many tokens a second may be asked of the backend, of prompts and answers; long requests are held
    back first."""

    model_config = SECTION

    tokens_per_second: float | None = _tokens("Of all requests; not set: any.")
    burst_tokens: float | None = _tokens("At once; not set: those of 10 s.")
    tenant_tokens_per_second: float | None = _tokens("Of one tenant; not set: any.")
    tenant_burst_tokens: float | None = _tokens("At once; not set: those of 10 s.")
    bytes_per_token: float = described(
        4.0, "Of a request's body, to estimate its prompt.", "bytes", gt=0, strict=True, allow_inf_nan=False
    )
    output_tokens: int = described(512, "Of a request that does not limit its answer.", "tokens", ge=0, strict=True)

    @property
    def whole(self) -> TokenRule | None:
        return _token_rule(self.tokens_per_second, self.burst_tokens)

    @property
    def tenant(self) -> TokenRule | None:
        return _token_rule(self.tenant_tokens_per_second, self.tenant_burst_tokens)

    @model_validator(mode="after")
    def _bursts_have_rates(self) -> TokenRateConfig:
        for burst, rate in (
            ("burst_tokens", "tokens_per_second"),
            ("tenant_burst_tokens", "tenant_tokens_per_second"),
        ):
            if getattr(self, burst) is not None and getattr(self, rate) is None:
                raise ValueError(f"{rate} beside {burst}")
        return self


class FailuresConfig(BaseModel):
    """When a backend counts as down, and for how long it is left alone."""

    model_config = SECTION

    failures: int = described(
        5, "In a row: broken connections, timeouts, statuses from 500 on.", "number", ge=1, strict=True
    )
    first_seconds: float = seconds(1.0, "It is left alone for so long, then one request tries it.")
    longest_seconds: float = seconds(60.0, "The pause doubles with each failed try, up to this.")

    @property
    def rule(self) -> BreakerRule:
        return BreakerRule(self.failures, self.first_seconds, self.longest_seconds)


class LatencyConfig(BaseModel):
    """When a backend counts as slow."""

    model_config = SECTION

    first_byte_p95_seconds: float = seconds(0.8, "Of streams, from the request to the first byte of the answer.")
    whole_p95_seconds: float | None = seconds(
        None, "Of answers in one piece, which last as long as they are; not set: any."
    )
    window_seconds: float = seconds(10.0, "The percentile is of the last one to two of these.")
    least_answers: int = described(20, "In that time, before anything is concluded.", "number", ge=1, strict=True)
    close_share: float = described(
        0.75, "It is well again after answers within this share of the limit.", "share", gt=0, le=1, strict=True
    )
    probes: int = described(3, "So many of them in a row.", "number", ge=1, strict=True)
    first_seconds: float = seconds(2.0, "It counts as slow for so long at least.")
    longest_seconds: float = seconds(60.0, "The pause doubles with each slow try, up to this.")

    def rule(self, limit_seconds: float | None) -> LatencyRule | None:
        if limit_seconds is None:
            return None
        breaker = BreakerRule(1, self.first_seconds, self.longest_seconds, self.probes)
        return LatencyRule(limit_seconds, self.window_seconds, self.least_answers, self.close_share, breaker)


class ClassConfig(BaseModel):
    """A class of prompts that is kept back alone where it makes the backend fail; a section for each. The first that
    fits counts."""

    model_config = SECTION

    name: str = described(..., "Of the class, in metrics.", "name", pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")
    patterns: tuple[str, ...] = described(
        (), "Regular expressions, any of which the text has; empty: any text.", "list"
    )
    least_tokens: float = described(0.0, "Of the prompt, as estimated.", "tokens", ge=0, allow_inf_nan=False)
    most_tokens: float | None = _tokens("Of the prompt; not set: any.")
    refused: bool = described(False, "Kept back always.", "")
    failures: int = described(3, "In a row, after which it is kept back for a while.", "number", ge=1, strict=True)
    p95_seconds: float | None = seconds(None, "It is also kept back where its answers take longer; not set: any.")


class ResilienceConfig(BaseModel):
    """What happens when the backend is slow, too busy or gone."""

    model_config = SECTION

    enabled: bool = described(False, "Whether any of this is there.", "")
    stale_grace_seconds: float | None = seconds(
        None, "An answer may be served for so long after its lifetime where there is no new one; not set: never."
    )
    stale_in: str = described(
        "memory",
        "Where such answers are kept: memory; disk, in a file beside that of the tier; or the name of a tier in Redis, "
        "on its server.",
        "name",
    )
    stale_size: int = size(STALE_BYTES, "Capacity for them.")
    fallback_model: str | None = described(None, "A smaller model, to answer in place of the one asked for.", "name")
    fallback_upstream: str | None = described(None, "Where it is; not set: at the same backend.", "URL", repr=False)
    fallback_key_env: str | None = described(
        None, "Environment variable with the key for that; not set: none is sent, and never a client's.", "name"
    )
    template: str | None = described(None, "A text to answer with when nothing else can; not set: an error.", "text")
    patience_seconds: float | None = seconds(
        None, "To the whole answer of the backend, or the beginning of a stream, before others answer; not set: any."
    )
    negative_seconds: float | None = seconds(
        None, "How long an error that lies in the request itself is repeated without the backend; not set: never."
    )
    when_slow: tuple[Rung, ...] = _when(Why.SLOW)
    when_over_rate: tuple[Rung, ...] = _when(Why.OVER_RATE)
    when_class: tuple[Rung, ...] = _when(Why.CLASS)
    when_down: tuple[Rung, ...] = _when(Why.DOWN)
    when_failed: tuple[Rung, ...] = _when(Why.FAILED)
    token_rate: TokenRateConfig = TokenRateConfig()
    failures: FailuresConfig = FailuresConfig()
    latency: LatencyConfig = LatencyConfig()
    classes: tuple[ClassConfig, ...] = described((), "Classes of prompts.", "list")
    depends_on: dict[str, tuple[str, ...]] = described(
        {}, "By the name of a tier, upstream or fallback: what it is of no use without.", "table"
    )

    @model_validator(mode="after")
    def _fallback_is_whole(self) -> ResilienceConfig:
        if self.fallback_model is None and self.fallback_upstream is not None:
            raise ValueError("fallback_model beside fallback_upstream")
        if self.fallback_upstream is None and self.fallback_key_env is not None:
            raise ValueError("fallback_upstream beside fallback_key_env")
        return self

    @property
    def table(self) -> dict[Why, tuple[Rung, ...]]:
        return {why: getattr(self, f"when_{why}") for why in Why}

    @property
    def health(self) -> HealthRule:
        """Of each backend; nothing is watched where this is off."""
        if not self.enabled:
            return HealthRule()
        latency = self.latency
        return HealthRule(
            self.failures.rule, latency.rule(latency.first_byte_p95_seconds), latency.rule(latency.whole_p95_seconds)
        )

    def class_rules(self) -> tuple[ClassRule, ...]:
        return tuple(
            ClassRule(
                one.name,
                one.patterns,
                one.least_tokens,
                one.most_tokens,
                one.refused,
                HealthRule(
                    BreakerRule(one.failures, self.failures.first_seconds, self.failures.longest_seconds),
                    whole=self.latency.rule(one.p95_seconds),
                ),
            )
            for one in self.classes
        )


def _token_rule(rate: float | None, burst: float | None) -> TokenRule | None:
    return None if rate is None else TokenRule(rate, BURST_SECONDS * rate if burst is None else burst)
