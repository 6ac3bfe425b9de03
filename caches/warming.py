"""Warming a tier ahead of requests, off their path: candidates in order, at a bounded rate, in stages.

What a lower tier has is copied; the rest is asked of the backend where that is allowed. The first stage is a small part
of what is to be warmed: only when enough of it was asked for, and the hit ratio has not fallen, does the next begin,
since what is warmed pushes out what is least recently touched. While the cache is busy nothing is warmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from caches.errors import InputError, SetpointError
from caches.hot_keys import Candidate
from caches.invalidation import Invalidations, Passage
from caches.keys.request_key import RequestKey
from caches.tiers.tier import Tier, TierError
from caches.warm_uses import WarmUses

PAUSE_SECONDS = 1.0  # between two looks whether it is still busy


class NotRenewed(SetpointError):
    """The backend had no answer to keep, or could not be asked."""


Renew = Callable[[RequestKey], Awaitable[object]]


@dataclass(frozen=True)
class WarmRule:
    """stages: shares of the candidates, ascending to 1. per_second: candidates. gate_seconds: between two stages.
    least_used: share of the entries of a stage, of those that were warmed now or before, which have to be hit for the
    next to begin; a stage without any has no say. most_lost: of the hit ratio, over a gate. patience_seconds: of being
    busy, after which it gives up. backend_calls: at once."""

    stages: tuple[float, ...] = (0.05, 0.2, 1.0)
    per_second: float = 200.0
    gate_seconds: float = 10.0
    least_used: float = 0.0
    most_lost: float = 0.02
    patience_seconds: float = 60.0
    backend_calls: int = 1

    def __post_init__(self) -> None:
        if (
            not self.stages
            or list(self.stages) != sorted({*self.stages})
            or not 0 < self.stages[0] <= self.stages[-1] == 1
        ):
            raise InputError(f"stages: got {self.stages}, expected shares above 0, ascending to 1")
        for name in ("per_second", "backend_calls"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name}: got {getattr(self, name)}, expected above 0")
        for name in ("gate_seconds", "least_used", "most_lost", "patience_seconds"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name}: got {getattr(self, name)}, expected 0 or more")


@dataclass(frozen=True)
class Warmed:
    """there: held already. copied: from a lower tier. renewed: by the backend. left: not to be had, or refused by the
    tier. paused_seconds: while it was busy. stopped: why it ended early; None where it went through all candidates."""

    there: int = 0
    copied: int = 0
    renewed: int = 0
    left: int = 0
    paused_seconds: float = 0.0
    stopped: str | None = None


def _free(key: RequestKey) -> Passage:
    """Where nothing is ever invalidated."""
    return Passage(Invalidations((), lambda _: None), key, copied=True)


@dataclass(frozen=True)
class Surroundings:
    """clock: Unix time. busy: whether P99 or the backend's load is too high now. hit_ratio: of the last while; None
    where nothing was asked. renew: a backend call whose answer is stored, raises NotRenewed; None where warming may not
    cause any. uses: what is told of requests, so that it knows which warmed entries they hit. told: of how far it is,
    at each step. passage: of a copy on its way up, the stack's."""

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[object]]
    busy: Callable[[], bool]
    hit_ratio: Callable[[], float | None]
    renew: Renew | None = None
    uses: WarmUses = field(default_factory=WarmUses)
    told: Callable[[Warmed], object] = lambda _: None
    passage: Callable[[RequestKey], Passage] = _free


async def warm(
    upper: Tier,
    lower: Sequence[Tier],
    candidates: Sequence[Candidate],
    around: Surroundings,
    rule: WarmRule = WarmRule(),
) -> Warmed:
    """Goes through the candidates in their order, stage by stage."""
    run = _Run(upper, lower, around, rule)
    try:
        return await run.through(candidates)
    finally:
        await run.end()


class _Run:
    def __init__(self, upper: Tier, lower: Sequence[Tier], around: Surroundings, rule: WarmRule) -> None:
        self._upper, self._lower, self._around, self._rule = upper, lower, around, rule
        self._result, self._stage = Warmed(), list[RequestKey]()
        self._room = asyncio.Semaphore(rule.backend_calls)
        self._calls: set[asyncio.Task[None]] = set()

    async def through(self, candidates: Sequence[Candidate]) -> Warmed:
        done = 0
        for stage in self._rule.stages:
            upto = max(done, round(stage * len(candidates)))
            if done and upto > done:
                reason = await self._gate()
                if reason is not None:
                    return replace(self._result, stopped=reason)
            self._stage = []
            for candidate in candidates[done:upto]:
                if not await self._quiet():
                    return replace(self._result, stopped=f"it was busy for {self._rule.patience_seconds:g} s")
                await self._warm(candidate.key)
                await self._around.sleep(1.0 / self._rule.per_second)
            await self._answered()
            done = upto
        return self._result

    async def end(self) -> None:
        """Gives up the calls on their way."""
        for call in self._calls:
            call.cancel()
        await self._answered()

    async def _answered(self) -> None:
        calls = list(self._calls)
        await asyncio.gather(*calls, return_exceptions=True)
        for call in calls:
            if not call.cancelled():
                call.result()  # what is no NotRenewed is a bug

    async def _gate(self) -> str | None:
        """Why not to go on."""
        before = self._around.hit_ratio()
        await self._around.sleep(self._rule.gate_seconds)
        after = self._around.hit_ratio()
        if before is None or after is None:
            return "nothing was asked for, so nothing is known of the hit ratio"
        if before - after > self._rule.most_lost:
            return f"the hit ratio fell from {before:.3f} to {after:.3f}"
        used = self._around.uses.share_hit(self._stage)
        if used is not None and used < self._rule.least_used:
            return f"{used:.1%} of what was warmed was asked for, less than {self._rule.least_used:.1%}"
        return None

    async def _quiet(self) -> bool:
        """Waits while it is busy; False where that takes too long."""
        waited = 0.0
        while self._around.busy():
            if waited >= self._rule.patience_seconds:
                return False
            await self._around.sleep(PAUSE_SECONDS)
            waited += PAUSE_SECONDS
            self._say(paused_seconds=self._result.paused_seconds + PAUSE_SECONDS)
        return True

    async def _warm(self, key: RequestKey) -> None:
        outcome = await self._from_below(key)
        if outcome == "missing" and self._around.renew is not None:
            await self._room.acquire()
            call = asyncio.create_task(self._renew(self._around.renew, key))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        else:
            self._count("left" if outcome == "missing" else outcome, key)

    async def _from_below(self, key: RequestKey) -> str:
        """The name of the count that it adds to, or "missing" where no tier has it."""
        now = self._around.clock()
        try:
            if await self._upper.holds(key, now):
                return "there"
            for tier in self._lower:
                if await tier.holds(key, now):
                    outcome = await self._copied(tier, key, now)
                    if outcome != "missing":
                        return outcome
        except TierError:
            return "left"  # it is no request: whoever asks for this key next will see how the tier is
        return "missing"

    async def _copied(self, tier: Tier, key: RequestKey, now: float) -> str:
        """As `_from_below`. An invalidation in between keeps it out."""
        with self._around.passage(key) as passage:
            found = await tier.lookup(key, now)
            if found is None or found.similarity < 1.0:
                return "missing"
            taken: list[bool] = []

            async def keep() -> None:
                taken.append(await self._upper.warm(found.stored_by(key), found.answer, now))

            await passage.keep(keep)
        return "copied" if any(taken) else "left"

    async def _renew(self, renew: Renew, key: RequestKey) -> None:
        try:
            await renew(key)
        except NotRenewed:
            self._count("left", key)
        else:
            self._count("renewed", key)
        finally:
            self._room.release()

    def _count(self, outcome: str, key: RequestKey) -> None:
        if outcome in {"copied", "renewed"}:
            self._around.uses.warmed(key)
        if self._around.uses.knows(key):  # also from a warm-up before this one: a closed gate stays closed
            self._stage.append(key)
        self._say(**{outcome: getattr(self._result, outcome) + 1})

    def _say(self, **changed: float) -> None:
        self._result = replace(self._result, **changed)  # type: ignore[arg-type]  # counts stay whole
        self._around.told(self._result)
