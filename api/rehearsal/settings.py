"""What the parts of a rehearsal are told, so that a live cache is the one that a policy was trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from agents.bundle import PolicyBundle
from api.gateway.config import ServeConfig
from api.gateway.warming_settings import WarmingSettings
from caches.errors import InputError
from caches.policies.pair import CachePolicy
from envs.world import Problem
from tuner.config import TunerConfig
from tuner.problem import under_bundle

KEY_VARIABLE = "REHEARSAL_BACKEND_KEY"  # the emulator takes any
POLL_SECONDS, REFRESH_SECONDS = 0.05, 1.0  # of the wall
ALMOST_NONE = 0.999  # decay of a popularity that has to have a half-life


def for_bundle(config: TunerConfig, bundle: PolicyBundle) -> TunerConfig:
    """Beside a cache that was made with the policy that the bundle was made for, and can be brought under all that it
    chooses between. Raises Mismatch where the settings do not name the first."""
    config = under_bundle(config, bundle)
    names = tuple(policy.eviction for policy in bundle.choices) or bundle.policy.eviction
    return config.model_copy(update={"cache": config.cache.model_copy(update={"eviction_policy": names})})


def gateway_config(
    problem: Problem, upstream: str, speed: float, offered: Sequence[CachePolicy] | None = None
) -> ServeConfig:
    """One tier in memory, with the ranges and the defaults of the problem's knobs, under the problem's policy, and
    nothing below it. It warms what the problem's warm-up would, once in an interval. offered: what it can be brought
    under, the problem's among them; None: anything."""
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
                    "eviction_policy": problem.policy.eviction,
                    "eviction_policies": None if offered is None else [policy.eviction for policy in offered],
                    "admission": problem.policy.admission,
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
    told = {"gateway": gateway, "ledger": f"sqlite:///{ledger}", "mode": "live", "cache": "rehearsal"}
    paced = {"poll_seconds": POLL_SECONDS, "refresh_seconds": REFRESH_SECONDS, "metrics_port": None}
    plain = {"access_log": None, "key_env": None}
    return config.model_copy(
        update={
            "control": config.control.model_copy(update=told | paced | plain),
            "signals": config.signals.model_copy(update={"prometheus": None}),
        }
    )
