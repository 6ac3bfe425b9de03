"""Warming a tier ahead of requests, off their path: candidates in order, at a bounded rate, in stages.

What a lower tier has is copied; the rest is asked of the backend where that is allowed. The first stage is a small part
of what is to be warmed: only when the hit ratio has not fallen over it does the next begin, since what is warmed pushes
out what is least recently touched. While the cache is busy nothing is warmed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from caches.hot_keys import Candidate
from caches.keys.request_key import RequestKey
from caches.tiers.tier import Tier, TierError

Renew = Callable[[RequestKey], Awaitable[object]]


@dataclass(frozen=True)
class WarmRule:
    """stages: shares of the candidates, ascending to 1. per_second: candidates. gate_seconds: between two stages.
    most_lost: of the hit ratio, over a gate. patience_seconds: of being busy, after which it gives up."""

    stages: tuple[float, ...] = (0.05, 0.2, 1.0)
    per_second: float = 200.0
    gate_seconds: float = 10.0
    most_lost: float = 0.02
    patience_seconds: float = 60.0


@dataclass(frozen=True)
class Warmed:
    """there: held already. copied: from a lower tier. renewed: by the backend. left: not to be had, or refused by the
    tier. stopped: why it ended early; None where all candidates were gone through."""

    there: int = 0
    copied: int = 0
    renewed: int = 0
    left: int = 0
    stopped: str | None = None


@dataclass(frozen=True)
class Surroundings:
    """clock: Unix time. busy: whether P99 or the backend's load is too high now. hit_ratio: of the last while; None
    where nothing was asked. renew: a backend call whose answer is stored; None where warming may not cause any."""

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[object]]
    busy: Callable[[], bool]
    hit_ratio: Callable[[], float | None]
    renew: Renew | None = None


async def warm(
    upper: Tier,
    lower: Sequence[Tier],
    candidates: Sequence[Candidate],
    around: Surroundings,
    rule: WarmRule = WarmRule(),
) -> Warmed:
    """Goes through the candidates in their order, stage by stage."""
    done, result = 0, Warmed()
    for stage in rule.stages:
        upto = max(done, round(stage * len(candidates)))
        if done and upto > done:
            reason = await _gate(around, rule)
            if reason is not None:
                return replace(result, stopped=reason)
        for candidate in candidates[done:upto]:
            if not await _quiet(around, rule):
                return replace(result, stopped=f"it was busy for {rule.patience_seconds:g} s")
            what = await _warm_one(upper, lower, candidate, around)
            result = replace(result, **{what: getattr(result, what) + 1})
            await around.sleep(1.0 / rule.per_second)
        done = upto
    return result


async def _gate(around: Surroundings, rule: WarmRule) -> str | None:
    """Why not to go on."""
    before = around.hit_ratio()
    await around.sleep(rule.gate_seconds)
    after = around.hit_ratio()
    if before is None or after is None:
        return "nothing was asked for, so nothing is known of the hit ratio"
    if before - after > rule.most_lost:
        return f"the hit ratio fell from {before:.3f} to {after:.3f}"
    return None


async def _quiet(around: Surroundings, rule: WarmRule) -> bool:
    """Waits while it is busy; False where that takes too long."""
    waited = 0.0
    while around.busy():
        if waited >= rule.patience_seconds:
            return False
        await around.sleep(1.0)
        waited += 1.0
    return True


async def _warm_one(upper: Tier, lower: Sequence[Tier], candidate: Candidate, around: Surroundings) -> str:
    """The name of the count that it adds to."""
    key, now = candidate.key, around.clock()
    try:
        if await upper.holds(key, now):
            return "there"
        for tier in lower:
            found = await tier.lookup(key, now) if await tier.holds(key, now) else None
            if found is not None and found.similarity == 1.0:
                return "copied" if await upper.warm(key, found.answer, now) else "left"
    except TierError:
        return "left"  # it is no request: whoever asks for this key next will see how the tier is
    if around.renew is None:
        return "left"
    await around.renew(key)
    return "renewed"
