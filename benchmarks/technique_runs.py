"""One run of the benchmark of techniques: a gateway with given settings, its clients, and what came out."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from api.gateway.app import create_gateway
from api.gateway.building import built
from api.gateway.config import ServeConfig
from benchmarks.technique_backend import SMALLER_SLOTS, SMALLER_WORK, SimulatedBackend, put_behind
from benchmarks.technique_client import Clients, Judged
from benchmarks.technique_time import clocks_of, in_leaping_time
from benchmarks.technique_traffic import Settings, Traffic
from envs.reward import Prices

DEADLINE_SECONDS = 30.0
BASE: Settings = {
    "gateway": {"upstream": "http://backend", "deadline_seconds": DEADLINE_SECONDS},
    "tiers": {"disk": {"enabled": False}},
}
PRICES = Prices()
WRONG_USD, FAILED_USD = PRICES.stale_answer_usd, PRICES.slow_request_usd


@dataclass(frozen=True)
class Outcome:
    """Of one run. wrong, stale, failed, instead, slow: shares of the requests. usd, gpu_usd, calls: for each 1,000 of
    them, the first with all that is priced. cpu_micros: processor time for each request."""

    hit_ratio: float
    wrong: float
    stale: float
    failed: float
    instead: float
    slow: float
    p99_seconds: float
    usd: float
    gpu_usd: float
    calls: float
    cpu_micros: float


def merged(*layers: Settings) -> dict[str, Any]:
    """Tables of tables; what comes later wins. Lists are values."""
    whole: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            under = whole.get(name)
            if isinstance(value, Mapping):  # a table of its own, also where nothing is merged
                whole[name] = merged(under if isinstance(under, Mapping) else {}, value)
            else:
                whole[name] = value
    return whole


def run(traffic: Traffic, settings: Settings) -> Outcome:
    """settings: of the technique, over those of the workload."""
    told = merged(BASE, traffic.settings, settings)
    if "token_rate" in told.get("resilience", {}):
        told["resilience"]["token_rate"]["tokens_per_second"] = traffic.tokens_per_second
    config = ServeConfig.model_validate(told)
    gc.collect()
    return in_leaping_time(_run(traffic, config))


async def _run(traffic: Traffic, config: ServeConfig) -> Outcome:
    loop = asyncio.get_running_loop()
    with clocks_of(loop) as clocks:
        made = built(config, "techniques", {}, clocks)
        backend = SimulatedBackend(traffic, clocks.ticks, traffic.slots)
        smaller = SimulatedBackend(traffic, clocks.ticks, SMALLER_SLOTS, SMALLER_WORK, has_troubles=False)
        put_behind(made.service.client, backend)
        resilience = made.service.resilience
        if resilience is not None and resilience.fallback is not None and resilience.fallback.client is not None:
            put_behind(resilience.fallback.client, smaller)
        app = create_gateway(made.service)
        clients = Clients(app, traffic, clocks.ticks, reports=config.freshness.feedback)
        async with app.router.lifespan_context(app):
            began = time.process_time()
            await clients.replay()
            cpu_seconds = time.process_time() - began
    spent = backend.gpu_seconds + smaller.gpu_seconds
    return _outcome(clients.judged, spent, backend.calls + smaller.calls, cpu_seconds)


def _outcome(judged: Judged, gpu_seconds: float, calls: int, cpu_seconds: float) -> Outcome:
    requests = len(judged.latencies)
    gpu_usd = gpu_seconds * PRICES.gpu_usd_per_hour / 3_600.0
    usd = (
        gpu_usd
        + judged.stale * PRICES.stale_answer_usd
        + judged.wrong * WRONG_USD
        + judged.failed * FAILED_USD
        + judged.slow * PRICES.slow_request_usd
    )
    return Outcome(
        judged.hits / requests,
        judged.wrong / requests,
        judged.stale / requests,
        judged.failed / requests,
        judged.instead / requests,
        judged.slow / requests,
        float(np.quantile(judged.latencies, 0.99)),
        1_000.0 * usd / requests,
        1_000.0 * gpu_usd / requests,
        1_000.0 * calls / requests,
        1e6 * cpu_seconds / requests,
    )
