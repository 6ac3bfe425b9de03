"""What the parts of a rehearsal are told, so that a live cache is the one that a policy was trained on."""

from __future__ import annotations

import math
from pathlib import Path

from api.gateway.config import ServeConfig
from api.gateway.warming_settings import WarmingSettings
from caches.errors import InputError
from envs.world import Problem
from tuner.config import TunerConfig

KEY_VARIABLE = "REHEARSAL_BACKEND_KEY"  # the emulator takes any
POLL_SECONDS, REFRESH_SECONDS = 0.05, 1.0  # of the wall
ALMOST_NONE = 0.999  # decay of a popularity that has to have a half-life


def gateway_config(problem: Problem, upstream: str, speed: float) -> ServeConfig:
    """One tier in memory, with the ranges and the defaults of the problem's knobs, and nothing below it. It warms what
    the problem's warm-up would, once in an interval."""
    size, ttl, warmup = problem.knobs.knobs
    usual, interval = WarmingSettings(), problem.interval_seconds
    decay = min(problem.popularity_decay, ALMOST_NONE)
    return ServeConfig.model_validate(
        {
            "gateway": {"upstream": upstream, "upstream_key_env": KEY_VARIABLE},
            "tiers": {
                "memory": {
                    "lowest_cache_size": math.floor(size.low),
                    "cache_size": round(size.default),
                    "highest_cache_size": math.ceil(size.high),
                    "lowest_ttl_seconds": ttl.low,
                    "ttl_seconds": ttl.default,
                    "highest_ttl_seconds": ttl.high,
                    "warmup_ratio": warmup.default,
                },
                "disk": {"enabled": False},
                "semantic": {"enabled": False},
            },
            "warming": {
                "from_backend": True,
                "every_seconds": interval / speed,
                "half_life_seconds": interval * math.log(0.5) / math.log(decay),
                "most_keys": problem.warmup_candidates,
                "per_second": usual.rule.per_second * speed,
                "gate_seconds": usual.rule.gate_seconds / speed,
            },
            "tuning": {"enabled": True},
        }
    )


def daemon_config(config: TunerConfig, gateway: str, ledger: Path) -> TunerConfig:
    """The settings with the plumbing of this machine; how it decides stays what it says. Raises InputError."""
    if config.cache.kind != "response":
        raise InputError(f"cache.kind: got {config.cache.kind!r}, expected 'response': a gateway caches answers")
    if not config.cache.policy.plain:
        raise InputError(
            f"cache.eviction_policy: got {config.cache.policy}, expected lru and admission all: the ghosts beside a "
            "rehearsal follow no other"
        )
    told = {"gateway": gateway, "ledger": f"sqlite:///{ledger}", "mode": "live", "cache": "rehearsal"}
    paced = {"poll_seconds": POLL_SECONDS, "refresh_seconds": REFRESH_SECONDS, "metrics_port": None}
    plain = {"access_log": None, "key_env": None}
    return config.model_copy(
        update={
            "control": config.control.model_copy(update=told | paced | plain),
            "signals": config.signals.model_copy(update={"prometheus": None}),
        }
    )
