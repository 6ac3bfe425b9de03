"""The contract of prefix caches under any policy: as tests.contracts.prefix_contract, with an oracle that values every
leaf anew for every eviction, from all uses that there ever were. Only the fit of caches.policies.prefix_density is
taken from there; it has tests of its own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.policies import prefix_density as density
from caches.policies.prefix_settings import GDSF, HIT_DENSITY, KNOWN, LFU, LRU_K, WORTHY, PrefixRules
from tests.contracts.prefix_contract import (
    LOWER,
    UPPER,
    WARMER,
    Arrive,
    Model,
    Node,
    Path,
    Script,
    Seen,
    Step,
    paths,
    scripts,
)

LONGER = 12.0  # times as long as in the other contract, so that gaps of every level come up


@dataclass
class Use:
    """The latest of a block. group: number of it. ends: clock of the ends of earlier uses, latest first."""

    group: int
    seen: float
    times: int
    weight: float = 0.0
    value: float = 0.0
    ends: list[int] = field(default_factory=list)


@dataclass
class Batch:
    kind: int
    since: float
    waiting: int = 0


class PolicyModel(Model):
    def __init__(self, script: Script, rules: PrefixRules) -> None:
        super().__init__(script)
        self.rules, self.age, self.asked = rules, 0.0, 0
        self.now = 0.0
        self.uses: dict[Path, Use] = {}
        self.batches: list[Batch] = []
        self.first_batch = 0
        self.returned, self.lost, self.worth = (np.zeros((density.CLASSES, density.BINS)) for _ in range(3))

    def step(self, step: Step) -> tuple[int, ...]:
        self.now = step.time
        if isinstance(step, Arrive):
            self.note(self.script.prompts[step.request])
        return super().step(step)

    # what is known

    def note(self, prompt: Path) -> None:
        if self.rules.eviction == HIT_DENSITY and self.asked and self.asked % self.rules.every == 0:
            self.estimate()
        self.asked += 1
        blocks = paths(prompt)
        before = {path for path in blocks if path in self.uses and self.uses[path].group >= self.first_batch}
        known = 0
        while known < len(blocks) and blocks[known] in before:
            known += 1
        goes_on = known > 0 and self.uses[blocks[known - 1]].times == 1
        started = len(self.batches)
        for place, path in enumerate(blocks):
            old = self.uses.get(path)
            again = old if path in before else None
            gap = max(self.now - again.seen, 0.0) if again else 0.0
            if again and again.group >= self.first_batch:
                self.batches[again.group].waiting -= 1
                self.returned[self.batches[again.group].kind, density.bin_of(gap)] += 1
            times = again.times + 1 if again else 1
            kind = 0
            if self.rules.eviction == HIT_DENSITY:
                limits = (self.rules.length, self.rules.fresh)
                size = density.size_level(times, place, len(blocks), known, goes_on, limits)
                kind = density.class_of(density.uses_level(times), size, density.gap_level(times, gap))
            use = Use(self.batch(started, kind), self.now, times)
            use.ends = again.ends if again else []
            if self.rules.eviction == LFU:
                kept = again.weight * math.exp(-self.rules.fading * (self.now - again.value)) if again else 0.0
                use.weight, use.value = kept + 1.0, self.now
            if self.rules.eviction == GDSF:
                use.weight = times * (1.0 + self.rules.block_cost * place)
            self.uses[path] = use

    def batch(self, started: int, kind: int) -> int:
        for number in range(max(started, self.first_batch), len(self.batches)):
            if self.batches[number].kind == kind:
                self.batches[number].waiting += 1
                return number
        if len(self.batches) - self.first_batch == self.rules.remembered:
            self.survived(self.lost, self.batches[self.first_batch])
            self.first_batch += 1
        self.batches.append(Batch(kind, self.now, 1))
        return len(self.batches) - 1

    def survived(self, lost: np.ndarray, batch: Batch) -> None:
        reached = density.bin_of(max(self.now - batch.since, 0.0))
        if reached:
            lost[batch.kind, reached - 1] += batch.waiting

    def estimate(self) -> None:
        lost = self.lost.copy()
        for batch in self.batches[self.first_batch :]:
            self.survived(lost, batch)
        self.worth = density.densities(self.returned, lost, self.rules.strength)
        fade = 0.5 ** (self.rules.every / self.rules.half_life)
        self.returned *= fade
        self.lost *= fade

    def value(self, path: Path) -> float:
        use = self.uses[path]
        if self.rules.eviction == LRU_K:
            return float(use.ends[self.rules.k - 1]) if len(use.ends) >= self.rules.k else 0.0
        if self.rules.eviction == LFU:
            return math.log(max(use.weight, 1e-300)) + self.rules.fading * use.value
        if self.rules.eviction == GDSF:
            return use.value
        if self.rules.eviction == HIT_DENSITY and use.group >= self.first_batch:
            age = max(self.now - use.seen, 0.0)
            return float(self.worth[self.batches[use.group].kind, density.bin_of(age)])
        return 0.0

    # what follows from it

    def oldest_leaf(self, tier: str) -> Node | None:
        if tier == LOWER:
            return super().oldest_leaf(tier)
        leaves = [
            node
            for node in self.nodes(UPPER)
            if not node.users and not any(child.tier == UPPER for child in node.children.values())
        ]
        return min(leaves, key=lambda node: (self.value(node.path), node.order), default=None)

    def fall(self, node: Node, reason: str) -> None:
        if reason == "evictions" and self.rules.eviction == GDSF:
            self.age = self.value(node.path)
        super().fall(node, reason)

    def may_enter(self, path: Path) -> bool:
        if self.rules.admission == KNOWN:
            return self.uses[path].times > 1
        leaf = self.oldest_leaf(UPPER)
        if self.rules.admission == WORTHY and self.used(UPPER) >= self.room and leaf is not None:
            return self.value(path) >= self.value(leaf.path)
        return True

    def is_free(self, node: Node, request: int) -> None:
        use = self.uses[node.path]
        if self.rules.eviction == GDSF:
            use.value = self.age + use.weight
        if request == WARMER:
            use.ends[:1] = [self.clock]
            return
        use.ends = [self.clock, *use.ends]
        if use.group >= self.first_batch:
            use.seen = self.batches[use.group].since = self.now


def model_with(script: Script, rules: PrefixRules) -> list[Seen]:
    oracle = PolicyModel(script, rules)
    return [oracle.seen(oracle.step(step)) for step in script.steps]


@st.composite
def long_scripts(draw: Callable[..., object]) -> Script:
    """As `scripts`, in slower motion."""
    script = draw(scripts())
    steps = tuple(dataclasses.replace(step, time=step.time * LONGER) for step in script.steps)
    return dataclasses.replace(script, ttl=script.ttl * LONGER, steps=steps)


class PrefixPolicyContract:
    """Subclass and give `run` and `rules`."""

    run: Callable[[Script, PrefixRules], list[Seen]]
    rules: PrefixRules

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(long_scripts(), st.sampled_from([1, 3, 10, 1_000]))
    def test_equals_the_model_after_every_step(self, script: Script, remembered: int) -> None:
        rules = self.rules._replace(remembered=remembered)
        assert type(self).run(script, rules) == model_with(script, rules)
