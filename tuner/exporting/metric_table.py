"""The metrics of the daemon: name, kind, unit, labels and meaning of each. docs/observability.md is held to this."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "setpoint_tuner_"


class Kind(StrEnum):
    """COUNTER: only grows, from 0 when the daemon began. STATE: 0 or 1."""

    COUNTER = "counter"
    GAUGE = "gauge"
    STATE = "state"
    INFO = "info"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Measure:
    """name: as Prometheus shows it, a histogram without its endings. labels: beside `cache`, which all have."""

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    help: str

    @property
    def all_labels(self) -> tuple[str, ...]:
        return ("cache", *self.labels)


def _measure(name: str, kind: Kind, unit: str, labels: str, help: str) -> Measure:
    return Measure(PREFIX + name, kind, unit, tuple(labels.split()), help)


_G, _C, _S = Kind.GAUGE, Kind.COUNTER, Kind.STATE
HIT_RATIO = _measure("hit_ratio", _G, "ratio", "arm", "Hits over requests in the last interval.")
P99_TTFT = _measure("p99_ttft_seconds", _G, "s", "arm", "P99 of the time to the first token in the last interval.")
P99_LATENCY = _measure("p99_latency_seconds", _G, "s", "arm", "P99 of the time to the whole answer in it.")
TTFT_OBJECTIVE = _measure("p99_ttft_objective_seconds", _G, "s", "", "Largest P99 of the time to the first token.")
LATENCY_OBJECTIVE = _measure("p99_latency_objective_seconds", _G, "s", "", "Largest P99 of the time to the answer.")
ENTROPY = _measure("entropy_bits", _G, "bits", "", "Shannon entropy of the keys asked for in the last interval.")
ENTROPY_CHANGE = _measure("entropy_change_bits", _G, "bits", "", "That, minus that of the interval before.")
DRIFT = _measure("drift_bits", _G, "bits", "", "Jensen-Shannon divergence of the keys from those before it, 0 to 1.")
REGRET = _measure(
    "regret_usd_per_1000_requests",
    _G,
    "USD",
    "",
    "What 1,000 requests cost lately beyond the cheapest fixed setting of the ghost grid; it can be below 0.",
)
COST_NOW = _measure("cost_usd_per_1000_requests", _G, "USD", "arm", "What 1,000 requests cost in the last interval.")
COST = _measure("cost_usd_total", _C, "USD", "arm cause", "What the intervals cost whose cost is known.")
REQUESTS = _measure("requests_total", _C, "requests", "arm", "Requests of these intervals.")
CACHE_SIZE = _measure("cache_size_bytes", _G, "bytes", "arm", "Capacity in the plan, stated for the whole cache.")
TTL = _measure("ttl_seconds", _G, "s", "arm", "Lifetime of an entry in the plan.")
WARMUP = _measure("warmup_ratio", _G, "ratio", "arm", "Share of the remembered requests to be fetched ahead.")
SHARE = _measure("share_ratio", _G, "ratio", "arm", "Share of the keys that is the arm's.")
CONFIRMED = _measure("plan_confirmed", _S, "", "", "1 where the cache has taken the plan.")
DECISIONS = _measure("decisions_total", _C, "decisions", "arm verdict", "Decisions, by the guardrails' verdict.")
GUARDRAIL = _measure("guardrail_active", _S, "", "arm guardrail", "1 where the guardrail does not allow a change.")
PHASE = _measure("phase", _S, "", "phase", "1 for the phase that the rollout is in.")
PAUSED = _measure("paused", _S, "", "", "1 while settings are held: by a person, or until a change of regime is over.")
LATCHED = _measure("rollback_latched", _S, "", "", "1 after a rollback, until it is released.")
ROLLBACKS = _measure("rollbacks_total", _C, "rollbacks", "", "Rollouts that were rolled back.")
LEASE = _measure("lease_held", _S, "", "", "1 where this daemon is the active one of the cache.")
FENCE = _measure("fence", _G, "number", "", "Number of this daemon's lease; it grows with each takeover.")
INTERVALS = _measure("intervals_total", _C, "intervals", "arm result", "Intervals that were recorded, or missed.")
LAST_GOOD = _measure("last_good_interval_timestamp_seconds", _G, "s", "", "Unix time when the last known one ended.")
INTERVAL = _measure("interval_seconds", _G, "s", "", "Length of a control interval.")
POLICY = _measure("policy_info", Kind.INFO, "", "arm policy version mode", "Who decides in the arm; always 1.")
TICK = _measure("tick_duration_seconds", Kind.HISTOGRAM, "s", "did", "What a tick of the control loop takes.")

MEASURES: tuple[Measure, ...] = (
    *(HIT_RATIO, P99_TTFT, P99_LATENCY, TTFT_OBJECTIVE, LATENCY_OBJECTIVE),
    *(ENTROPY, ENTROPY_CHANGE, DRIFT, REGRET, COST_NOW, COST, REQUESTS),
    *(CACHE_SIZE, TTL, WARMUP, SHARE, CONFIRMED),
    *(DECISIONS, GUARDRAIL, PHASE, PAUSED, LATCHED, ROLLBACKS, POLICY),
    *(LEASE, FENCE, INTERVALS, LAST_GOOD, INTERVAL, TICK),
)
