"""Whom to warm, and how many: of a tier with arms, for each arm by its own settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from caches.hot_keys import Candidate, HotKeys
from caches.keys.request_key import Partition, RequestKey
from caches.place import Place
from caches.target import Arm
from caches.tiers.split import SplitTier


@dataclass(frozen=True)
class Wanted:
    """share: of the remembered requests, best first. ttl_seconds: of what is warmed. whose: of requests; None for
    all."""

    share: float
    ttl_seconds: float
    whose: Callable[[RequestKey], bool] | None = None


async def wanted_of(top: Place) -> list[Wanted]:
    """None where nothing is to be warmed, or the tier could not be asked."""
    tier = top.tier
    if isinstance(tier, SplitTier):
        every = [
            Wanted(settings.warmup_ratio, settings.ttl_seconds, _of_arm(tier, arm))
            for arm, settings in tier.binding().items()
        ]
    else:
        settings = await top.ask(tier.settings)
        every = [] if settings is None else [Wanted(settings.warmup_ratio, settings.ttl_seconds)]
    return [one for one in every if one.share > 0]


def best_of(
    hot: HotKeys, now_seconds: float, wanted: Sequence[Wanted], among: Callable[[Partition], bool]
) -> list[Candidate]:
    """The candidates of all that is wanted, best first. May run in a thread beside requests."""
    found = [one for want in wanted for one in _best(hot, now_seconds, want, among)]
    return sorted(found, key=lambda one: -one.worth) if len(wanted) > 1 else found


def _best(hot: HotKeys, now: float, want: Wanted, among: Callable[[Partition], bool]) -> list[Candidate]:
    if want.whose is None:
        return hot.ranked(now, want.ttl_seconds, want.share, among)
    mine = [one for one in hot.ranked(now, want.ttl_seconds, 1.0, among) if want.whose(one.key)]
    return mine[: round(want.share * len(mine))]


def _of_arm(tier: SplitTier, arm: Arm) -> Callable[[RequestKey], bool]:
    return lambda key: tier.arm_of(key) is arm
