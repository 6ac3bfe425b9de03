from __future__ import annotations

import numpy as np

from caches.in_process import InProcessCache
from caches.policies.live.cache import live_cache
from caches.policies.settings import Admission, Eviction
from caches.shadow import kernel
from caches.shadow.cache import ShadowCache, requests_of
from tests.contracts.cache_contract import HIT, MISS, OTHER, Change, Request, Script, Told, WarmUp, latest
from tests.contracts.policy_contract import COSTS, LABELS, PolicyContract
from traces.trace import Operation

NAMES = {kernel.HIT: HIT, kernel.MISS: MISS, kernel.OTHER: OTHER}


def run_in_process(script: Script, eviction: Eviction, admission: Admission) -> Told:
    cache: InProcessCache[int, tuple[float]] = live_cache(
        script.capacity, script.ttl, script.expiry, None, eviction, admission
    )
    told = Told()
    for index, step in enumerate(script.steps):
        if isinstance(step, Change):
            cache.apply(step.capacity, step.ttl, step.time)
        elif isinstance(step, WarmUp):
            cache.apply(cache.capacity_bytes, cache.ttl_seconds, step.time)
            for _, request in latest(script, index, step.keys):
                if cache.could_miss(LABELS[request.key], step.time, step.until):
                    cache.warm(LABELS[request.key], (step.time,), request.size, step.time, cost=COSTS[request.key])
        else:
            outcome, age = _request(cache, step)
            told.outcomes.append(outcome)
            told.ages.append(age)
        told.after.append((cache.stats(), frozenset(LABELS.index(label) for label in cache.resident())))
    return told


def _request(cache: InProcessCache[int, tuple[float]], step: Request) -> tuple[str, float]:
    key, value, cost = LABELS[step.key], (step.time,), COSTS[step.key]
    if step.operation is Operation.WRITE:
        cache.write(key, value, step.size, step.time, step.ttl, cost)
        return OTHER, np.nan
    if step.operation is Operation.DELETE:
        cache.delete(key, step.time)
        return OTHER, np.nan
    found = cache.get(key, step.time, step.size)
    if found is not None:
        return HIT, step.time - found[0]
    cache.put(key, value, step.size, step.time, step.ttl, cost=cost)
    return MISS, np.nan


def run_shadow(script: Script, eviction: Eviction, admission: Admission) -> Told:
    wanted = script.requests
    requests = requests_of(
        np.array([LABELS[r.key] for r in wanted], np.int32),
        np.array([r.time for r in wanted]),
        np.array([r.size for r in wanted], np.int32),
        np.array([np.nan if r.ttl is None else r.ttl for r in wanted], np.float32),
        np.array([r.operation for r in wanted], np.uint8),
    )
    cost = np.array([COSTS[r.key] for r in wanted], np.float32)
    cache = ShadowCache(
        requests, max(LABELS) + 1, script.capacity, script.ttl, script.expiry, eviction, admission, cost
    )
    told = Told()
    for index, step in enumerate(script.steps):
        if isinstance(step, Change):
            cache.apply(step.capacity, step.ttl, step.time)
        elif isinstance(step, WarmUp):
            positions = np.array([p for p, _ in latest(script, index, step.keys)], np.int32)
            cache.warm(positions, step.time, step.until)
        else:
            outcomes = cache.run_recording(cache.position + 1)
            told.outcomes.append(NAMES[int(outcomes.outcome[0])])
            hit = outcomes.outcome[0] == kernel.HIT
            told.ages.append(float(outcomes.age_seconds[0]) if hit else np.nan)
        told.after.append((cache.stats(), frozenset(LABELS.index(k) for k in cache.resident_keys())))
    return told


class TestInProcess(PolicyContract):
    run = staticmethod(run_in_process)


class TestShadow(PolicyContract):
    run = staticmethod(run_shadow)
