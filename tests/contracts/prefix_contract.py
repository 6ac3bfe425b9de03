"""One contract for every prefix cache that claims the semantics of caches.shadow.chain: whatever the sequence of
arrivals, ends, changes and warm-ups, the same hits, counters and resident blocks as a tree that is scanned whole.

Blocks are named by their path, the ids from the prompt's first block down to them, so that no numbering is trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.stats import PrefixStats

Path = tuple[int, ...]
UPPER, LOWER = "upper", "lower"
WARMER = -1  # no request has this number


@dataclass(frozen=True)
class Arrive:
    time: float
    request: int


@dataclass(frozen=True)
class Finish:
    time: float
    request: int


@dataclass(frozen=True)
class Change:
    time: float
    upper: int
    ttl: float


@dataclass(frozen=True)
class WarmUp:
    time: float
    request: int


Step = Arrive | Finish | Change | WarmUp


@dataclass(frozen=True)
class Script:
    """prompts[r] are the block ids of request r, which may come again once it is finished. lower: room of that tier."""

    prompts: tuple[Path, ...]
    upper: int
    ttl: float
    lower: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Seen:
    """After a step. answer: hits in the upper and the lower tier of an arrival, blocks copied by a warm-up."""

    answer: tuple[int, ...]
    stats: PrefixStats
    upper: frozenset[Path]
    lower: frozenset[Path]


class Runner(Protocol):
    def __call__(self, script: Script) -> list[Seen]: ...


def paths(prompt: Path) -> list[Path]:
    return [prompt[: depth + 1] for depth in range(len(prompt))]


@dataclass(eq=False)
class Node:
    """A resident block. users: the running requests that pin it. order: of its last use within its tier."""

    path: Path
    tier: str
    order: int = 0
    touched: float = 0.0
    users: set[int] = field(default_factory=set)
    children: dict[int, Node] = field(default_factory=dict)


class Model:
    """The oracle: a tree of resident blocks. A victim is found by looking at every node: of those that nobody uses and
    that have no child in their tier or above, the one used longest ago."""

    def __init__(self, script: Script) -> None:
        self.root = Node((), UPPER)
        self.script, self.room, self.ttl, self.clock = script, script.upper, script.ttl, 0
        self.running: dict[int, list[Node]] = {}
        self.counts = dict.fromkeys(PrefixStats.__dataclass_fields__, 0)

    def nodes(self, tier: str) -> Iterator[Node]:
        waiting = list(self.root.children.values())
        while waiting:
            node = waiting.pop()
            waiting.extend(node.children.values())
            if node.tier == tier:
                yield node

    def used(self, tier: str) -> int:
        return sum(1 for _ in self.nodes(tier))

    def use(self, node: Node) -> None:
        self.clock += 1
        node.order = self.clock

    def oldest_leaf(self, tier: str) -> Node | None:
        higher = {UPPER: {UPPER}, LOWER: {UPPER, LOWER}}[tier]
        leaves = [
            node
            for node in self.nodes(tier)
            if not node.users and not any(child.tier in higher for child in node.children.values())
        ]
        return min(leaves, key=lambda node: node.order, default=None)

    def fall(self, node: Node, reason: str) -> None:
        self.counts[reason] += 1
        node.tier = LOWER
        self.use(node)

    def settle_lower(self) -> None:
        while self.used(LOWER) > self.script.lower:
            node = self.oldest_leaf(LOWER)
            assert node is not None, "a lower block is never in use"
            del self.node_at(node.path[:-1]).children[node.path[-1]]
            self.counts["drops"] += 1

    def node_at(self, path: Path) -> Node:
        node = self.root
        for block in path:
            node = node.children[block]
        return node

    def shrink(self, room: int) -> None:
        while self.used(UPPER) > room:
            node = self.oldest_leaf(UPPER)
            if node is None:
                break
            self.fall(node, "evictions")

    def expire(self, now: float) -> None:
        """By age alone, in whatever order the leaves come."""
        while True:
            old = [node for node in self.nodes(UPPER) if not node.users and now - node.touched >= self.ttl]
            if not old:
                break
            leaf = min(old, key=lambda node: node.order)
            assert not any(child.tier == UPPER for child in leaf.children.values()), "a parent is older than its child"
            self.fall(leaf, "expirations")
        self.settle_lower()

    def resident_run(self, prompt: Path) -> list[Node]:
        found, node = [], self.root
        for block in prompt:
            if block not in node.children:
                break
            node = node.children[block]
            found.append(node)
        return found

    def hold(self, request: int, run: list[Node], prompt: Path) -> list[Node]:
        """Pins the run, bringing up what lies low, then adds what `prompt` has beyond it; stops where there is no
        room. Blocks on their way up are out of reach for evictions."""
        held = [node for node in run if node.tier == UPPER]
        rising = [node for node in run if node.tier == LOWER]
        for node in run:
            node.users.add(request)
        for node in [*rising, *(None for _ in prompt[len(run) :])]:
            if node is None and not self.may_enter(prompt[: len(held) + 1]):
                break
            self.shrink(self.room - 1)
            if self.used(UPPER) >= self.room:
                break
            if node is None:
                parent, path = (held[-1] if held else self.root), prompt[: len(held) + 1]
                node = parent.children[path[-1]] = Node(path, UPPER, users={request})
            node.tier = UPPER
            held.append(node)
        for node in reversed(rising):
            if node not in held:
                node.users.discard(request)
                self.use(node)
        self.settle_lower()
        return held

    def let_go(self, request: int, held: list[Node], now: float) -> None:
        for node in reversed(held):
            node.users.discard(request)
            if not node.users:
                node.touched = now
                self.use(node)
                self.is_free(node, request)
        self.shrink(self.room)
        self.settle_lower()

    def may_enter(self, path: Path) -> bool:
        """Whether a missing block is taken in where there is room."""
        return True

    def is_free(self, node: Node, request: int) -> None:
        """Nobody uses an upper block any more."""

    def step(self, step: Step) -> tuple[int, ...]:
        if isinstance(step, Change):
            self.room, self.ttl = step.upper, step.ttl
        self.expire(step.time)
        if isinstance(step, Change):
            self.shrink(self.room)
            self.settle_lower()
            return ()
        if isinstance(step, Finish):
            self.let_go(step.request, self.running.pop(step.request), step.time)
            return ()
        prompt = self.script.prompts[step.request]
        run = self.resident_run(prompt)
        upper = sum(node.tier == UPPER for node in run)
        if isinstance(step, WarmUp):
            return (self.warm(run, step.time, upper),)
        self.running[step.request] = held = self.hold(step.request, run, prompt)
        for name, by in (("upper_hits", upper), ("lower_hits", len(run) - upper), ("misses", len(prompt) - len(run))):
            self.counts[name] += by
        self.counts["refusals"] += len(prompt) - len(held)
        return upper, len(run) - upper

    def warm(self, run: list[Node], now: float, upper: int) -> int:
        if upper == len(run):
            return 0
        held = self.hold(WARMER, run, ())
        self.let_go(WARMER, held, now)
        self.counts["warmups"] += len(held) - upper
        return len(held) - upper

    def seen(self, answer: tuple[int, ...]) -> Seen:
        upper, lower = (frozenset(node.path for node in self.nodes(tier)) for tier in (UPPER, LOWER))
        counts = self.counts | {"upper_blocks": len(upper), "lower_blocks": len(lower)}
        return Seen(answer, PrefixStats(**counts), upper, lower)


def model(script: Script) -> list[Seen]:
    oracle = Model(script)
    return [oracle.seen(oracle.step(step)) for step in script.steps]


gaps = st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0, 1.0, 3.0, 7.3])
lifetimes = st.sampled_from([0.3, 1.0, 1.1, 2.0, 4.0, 10.0, np.inf, np.inf])
rooms = st.integers(0, 10)


@st.composite
def prompt_sets(draw: Callable[..., object]) -> tuple[Path, ...]:
    """Each a new beginning, or the beginning of an earlier one with something else behind it. Ids come again after
    different beginnings, so equal ids are not equal blocks."""
    prompts: list[Path] = []
    for _ in range(draw(st.integers(1, 8))):
        start: Path = ()
        if prompts:
            earlier = draw(st.sampled_from(prompts))
            start = earlier[: draw(st.integers(0, len(earlier)))]
        prompts.append(start + tuple(draw(st.lists(st.integers(0, 2), max_size=4))))
    return tuple(prompts)


@st.composite
def scripts(draw: Callable[..., object], ends_idle: bool = False) -> Script:
    prompts = draw(prompt_sets())
    now, steps, running = 0.0, [], []
    for _ in range(draw(st.integers(1, 40))):
        now += draw(gaps)
        kind = draw(st.integers(0, 11))
        idle = [request for request in range(len(prompts)) if request not in running]
        if kind == 0:
            steps.append(Change(now, draw(rooms), draw(lifetimes)))
        elif kind == 1:
            steps.append(WarmUp(now, draw(st.integers(0, len(prompts) - 1))))
        elif running and (kind <= 6 or not idle):
            running.remove(request := draw(st.sampled_from(running)))
            steps.append(Finish(now, request))
        else:
            running.append(request := draw(st.sampled_from(idle)))
            steps.append(Arrive(now, request))
    if ends_idle:
        steps += [Finish(now, request) for request in running]
    return Script(prompts, draw(rooms), draw(lifetimes), draw(st.sampled_from([0, 0, 1, 2, 3, 5, 9])), tuple(steps))


def in_turn(prompts: tuple[Path, ...], upper: int, lower: int = 0) -> Script:
    """One request after the other, a second apart, each finished half a second later."""
    steps: list[Step] = []
    for request in range(len(prompts)):
        steps += [Arrive(float(request), request), Finish(request + 0.5, request)]
    return Script(prompts, upper, np.inf, lower, tuple(steps))


class PrefixContract:
    """Subclass and give `run`."""

    run: Runner

    # every implementation runs the same property: an example that one fails is a good example for all
    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(scripts())
    def test_equals_the_model_after_every_step(self, script: Script) -> None:
        assert type(self).run(script) == model(script)

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(scripts(ends_idle=True))
    def test_keeps_its_rules_after_every_step(self, script: Script) -> None:
        room, running, asked = script.upper, set[int](), 0
        for step, seen in zip(script.steps, type(self).run(script), strict=True):
            if isinstance(step, Change):
                room = step.upper
            elif isinstance(step, Arrive):
                running.add(step.request)
                asked += len(script.prompts[step.request])
            elif isinstance(step, Finish):
                running.discard(step.request)
            check_rules(seen, room, script.lower, [script.prompts[request] for request in running])
            assert seen.stats.upper_hits + seen.stats.lower_hits + seen.stats.misses == asked

    def test_only_the_leading_run_hits(self) -> None:
        # 1 2 3 fills the cache; 1 9 3 hits its first block alone: 3 after 1 9 is another block than 3 after 1 2
        told = type(self).run(in_turn(((1, 2, 3), (1, 9, 3)), upper=9))
        assert told[2].answer == (1, 0)
        assert told[-1].upper == {(1,), (1, 2), (1, 2, 3), (1, 9), (1, 9, 3)}

    def test_what_runs_is_not_evicted(self) -> None:
        # room for 3: request 0 holds 2, so of the 2 blocks of request 1 one finds room and one is refused
        steps = (Arrive(0.0, 0), Arrive(1.0, 1), Finish(2.0, 1), Arrive(3.0, 1))
        told = type(self).run(Script(((1, 2), (3, 4)), 3, np.inf, 0, steps))
        assert told[1].upper == {(1,), (1, 2), (3,)}
        assert told[1].stats.refusals == 1
        assert told[3].answer == (1, 0)

    def test_shrinking_waits_for_what_is_in_use(self) -> None:
        steps = (Arrive(0.0, 0), Change(1.0, 1, np.inf), Finish(2.0, 0))
        told = type(self).run(Script(((1, 2, 3),), 3, np.inf, 0, steps))
        assert [seen.stats.upper_blocks for seen in told] == [3, 3, 1]
        assert told[-1].upper == {(1,)}  # the deepest went first

    def test_age_runs_from_the_end_of_the_last_use_and_not_while_in_use(self) -> None:
        # lifetime 4: in use until 10, then free; gone at exactly 14
        steps = (Arrive(0.0, 0), Change(9.0, 5, 4.0), Finish(10.0, 0), Change(13.9, 5, 4.0), Change(14.0, 5, 4.0))
        told = type(self).run(Script(((1, 2),), 5, 4.0, 0, steps))
        assert [seen.stats.upper_blocks for seen in told] == [2, 2, 2, 2, 0]
        assert told[-1].stats.expirations == 2

    def test_what_falls_is_found_below_and_comes_up_again(self) -> None:
        steps = (Arrive(0.0, 0), Finish(1.0, 0), Change(2.0, 1, np.inf), Change(3.0, 2, np.inf), Arrive(4.0, 0))
        told = type(self).run(Script(((1, 2),), 2, np.inf, 5, steps))
        assert (told[2].upper, told[2].lower) == ({(1,)}, {(1, 2)})
        assert told[4].answer == (1, 1)
        assert (told[4].upper, told[4].lower) == ({(1,), (1, 2)}, frozenset())

    def test_warming_brings_up_what_is_below_and_nothing_else(self) -> None:
        # all of 1 2 lies below after the shrinking; 3 was never there
        steps = (Arrive(0.0, 0), Finish(1.0, 0), Change(2.0, 0, np.inf), Change(3.0, 4, np.inf), WarmUp(4.0, 1))
        told = type(self).run(Script(((1, 2), (1, 2, 3)), 4, np.inf, 5, steps))
        assert told[-1].answer == (2,)
        assert (told[-1].upper, told[-1].lower) == ({(1,), (1, 2)}, frozenset())
        assert (told[-1].stats.warmups, told[-1].stats.misses) == (2, 2)


def check_rules(seen: Seen, room: int, lower_room: int, running: list[Path]) -> None:
    """What holds after every step, whatever happened before."""
    assert not seen.upper & seen.lower
    assert all(path[:-1] in seen.upper for path in seen.upper if len(path) > 1)
    assert all(path[:-1] in seen.upper | seen.lower for path in seen.lower if len(path) > 1)
    assert (seen.stats.upper_blocks, seen.stats.lower_blocks) == (len(seen.upper), len(seen.lower))
    assert len(seen.lower) <= lower_room
    in_use = {path for prompt in running for path in paths(prompt)}
    assert len(seen.upper) <= room or seen.upper <= in_use
