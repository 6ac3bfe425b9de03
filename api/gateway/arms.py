"""The gateway's tuned tier as a live cache of two arms: what it does, what it is told, and what it counts.

All of it lies in this process's memory. After a restart the plan is the operator's own settings without a treatment
arm, and no fence has been seen; whoever tunes knows by `began_seconds`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from api.gateway.arm_counting import ArmCounting
from caches.clocks import Clocks
from caches.hot_keys import HotKeys
from caches.keys.request_key import Partition
from caches.knobs import KnobSpace
from caches.routing import Routing
from caches.stack import Stack
from caches.target import BalancedSalt, Counted, Fenced, Plan, Standing
from caches.tiers.split import SplitTier
from tuner.salts import balanced_salt


class LiveArms:
    def __init__(self, tier: SplitTier, stack: Stack | Routing, clocks: Clocks) -> None:
        self.tier, self._clock, self._fence = tier, clocks.unix, 0
        self._began_seconds = clocks.unix()
        self.uses = _uses(tier, stack)
        self.counting = ArmCounting(tier, self.uses, clocks.ticks)

    @property
    def space(self) -> KnobSpace:
        return self.tier.space

    def balanced_salt(self, hot: HotKeys, seed: int, shares: Sequence[float]) -> BalancedSalt | None:
        """By what was asked for lately, under the control arm's lifetime. For a thread of its own."""
        ttl_seconds = self.tier.plan.control.ttl_seconds
        return balanced_salt(*hot.weights(self._clock(), ttl_seconds, self.uses), seed, shares)

    def standing(self) -> Standing:
        return Standing(self.tier.plan, self.tier.binding(), self._fence, self._began_seconds)

    def apply(self, plan: Plan, fence: int) -> Standing:
        """Raises Fenced, or InputError for an eviction policy that is not offered, having changed nothing."""
        if fence < self._fence:
            raise Fenced(f"fence: got {fence}, expected at least {self._fence}, which this cache has seen")
        self.tier.aim(plan, self._clock())
        self._fence = fence
        return self.standing()

    def counted(self) -> Counted:
        return Counted(self._began_seconds, self._clock(), self.counting.told())


def _uses(tier: SplitTier, stack: Stack | Routing) -> Callable[[Partition], bool]:
    """Whether a partition's answers may lie in the tier."""
    tuned = {one for one in stack.stacks if any(place.tier is tier for place in one.places)}
    if len(tuned) == len(stack.stacks):
        return lambda _: True
    return lambda partition: stack.of(partition) in tuned
