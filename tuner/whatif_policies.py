"""A what-if under each of several policies of the cache, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from caches.knobs import KnobSettings
from caches.policies.pair import CachePolicy
from envs.world import Progress, World
from tuner.whatif_pricing import Choice, Pricer, cheapest
from tuner.whatif_surface import Cells

Surveyed = Callable[[World, bool, Progress | None], Cells]  # a world's surface; whether with the bound; progress


@dataclass(frozen=True)
class Chosen:
    """The cheapest safe settings over all policies, or the least unsafe ones where none are safe."""

    policy: CachePolicy
    choice: Choice


@dataclass
class Policies:
    """Worlds that differ in the cache's policy alone, and settings priced in each. current: what runs now, and under
    which policy. surveyed: those with a surface; settings under the current one are priced in any case."""

    world: World
    surveyed: Sequence[CachePolicy]
    current: tuple[CachePolicy, KnobSettings]
    progress: Progress | None = None
    cells: Mapping[CachePolicy, Cells] = field(default_factory=dict)
    pricers: dict[CachePolicy, Pricer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for policy in dict.fromkeys((*self.surveyed, self.current[0])):
            self.pricers[policy] = Pricer(self.world.under(policy), self._told)

    def survey(self, cells_of: Surveyed, progress: Progress | None) -> None:
        """Fills `cells`. The bound holds under every policy, so it is worked out once."""
        found: dict[CachePolicy, Cells] = {}
        for number, policy in enumerate(self.surveyed):
            told = _in_part(progress, number, len(self.surveyed))
            there = cells_of(self.world.under(policy), not found, told)
            first = next(iter(found.values()), there)
            found[policy] = replace(there, bound=first.bound)
        self.cells = found

    def choose(self, span: slice) -> tuple[Chosen, ...]:
        """The best of each policy that was surveyed, over some intervals. What runs now is priced under its policy."""
        here, settings = self.current
        self.pricers[here].price([settings])
        return tuple(
            Chosen(policy, cheapest(self.pricers[policy], cells.grid, settings, span))
            for policy, cells in self.cells.items()
        )

    def best(self, each: Iterable[Chosen], span: slice) -> Chosen:
        """Of what `choose` found and what runs now. Of equals what runs now, or has its policy, and then the first."""
        here, settings = self.current
        pricer = self.pricers[here]
        every = [Chosen(here, Choice(settings, pricer.safe(settings, span), True)), *each]
        proven = all(one.choice.proven for one in every)

        def rank(one: Chosen) -> tuple[float, float, bool]:
            priced = self.pricers[one.policy]
            broken = 0.0 if one.choice.safe else priced.unsafe_per_1000(one.choice.settings, span)
            return (not one.choice.safe) + broken, priced.cost(one.choice.settings, span), one.policy != here

        found = min(every, key=rank)
        return replace(found, choice=replace(found.choice, proven=proven))

    @property
    def priced(self) -> int:
        return sum(len(pricer.rows) for pricer in self.pricers.values())

    def _told(self, _: int, most: int) -> None:
        if self.progress is not None:
            self.progress(self.priced, most * len(self.pricers))


def _in_part(progress: Progress | None, number: int, parts: int) -> Progress | None:
    """Progress of the number-th of equal parts."""
    if progress is None:
        return None
    return lambda done, total: progress(number * total + done, parts * total)
