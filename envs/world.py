"""A trace made ready for control: intervals, traffic, warm-up candidates, the reference trajectory and its ghosts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from caches.knobs import KNOB_NAMES, KnobSettings, KnobSpace
from caches.policies.pair import PLAIN, CachePolicy, in_miniature
from caches.shadow.cache import plain, requests_of
from caches.shadow.kernel import LISTED
from caches.shadow.trie import chains_of
from caches.stats import Expiry
from envs.engine import engine_of
from envs.interval import STATS, Timeline, timeline_of, total_usd
from envs.lanes import RESPONSE, Crew, Play, Scene, make_lanes
from envs.policy_lanes import POLICY, make_policy_lanes
from envs.prefix import PrefixConfig, require_blocks, returning, sessions_of
from envs.prefix_lanes import PREFIX, Link, PrefixScene, make_prefix_lanes
from envs.prefix_policy_lanes import PREFIX_POLICY, make_prefix_policy_lanes
from envs.reward import Constraints, Prices, tariff_of
from envs.serving import Load, Serving, ServingProfile, backend_of, gpu_seconds
from envs.traffic import traffic_table, warmup_candidates
from envs.units import GIB
from traces.trace import Trace

Array = NDArray[Any]
Progress = Callable[[int, int], None]  # done, of how many

STATIC_BATCH = 8  # static settings replayed at once; more only takes more memory
GHOST_OFFSETS = (-0.3, -0.12, 0.12, 0.3)  # of a knob's range, from the reference, one knob at a time


@dataclass(frozen=True)
class Problem:
    """What is to be controlled, and what counts. The trace must have tokens (traces.tokens.assume_tokens).

    entry_overhead_bytes: what an entry takes besides the response (key, metadata, embedding). prefix: where a prefix
    cache keeps its blocks; None for a cache of responses. policy: which entry or block goes, which is taken in.
    """

    trace: Trace
    interval_seconds: float
    knobs: KnobSpace
    prices: Prices
    constraints: Constraints
    profile: ServingProfile
    serving: Serving
    expiry: Expiry = Expiry.SINCE_WRITE
    warmup_candidates: int = 128
    popularity_decay: float = 0.7
    entry_overhead_bytes: int = 0
    prefix: PrefixConfig | None = None
    policy: CachePolicy = PLAIN


def by_popularity(key: Array, num_keys: int) -> Array:
    """The same requests, keys numbered from the most requested on, int32 (n,). Only where entries lie in memory
    depends on it: those needed most share lines of the processor's cache. Nothing observed knows the numbers."""
    ranked = np.argsort(-np.bincount(key, minlength=num_keys), kind="stable")
    number = np.empty(num_keys, np.int32)
    number[ranked] = np.arange(num_keys, dtype=np.int32)
    return number[key]


def entry_bytes(trace: Trace, overhead_bytes: int) -> Array:
    """What each request's response takes in the cache, int32 (n,). InputError where that leaves int32."""
    sizes = trace.size_bytes.astype(np.int64) + overhead_bytes
    if sizes.max() >= 2**31:
        raise InputError(f"entry_overhead_bytes: got {overhead_bytes}, expected entries below 2 GiB with it")
    return sizes.astype(np.int32)


class World:
    """A problem with everything computed that does not depend on settings. Read-only once made."""

    def __init__(self, problem: Problem, threads: int = 1) -> None:
        self.crew = Crew(threads)
        trace = problem.trace
        if trace.prompt_tokens is None or trace.output_tokens is None:
            raise InputError(f"trace {trace.info.name}: got no token counts, expected them (assume_tokens adds them)")
        self.problem, self.rules = problem, _rules(problem)
        self.choices: tuple[CachePolicy, ...] = ()  # between which caches may change; none: they stay as they are
        self.timeline: Timeline = timeline_of(trace.arrival_seconds, problem.interval_seconds)
        make_scene = _response if problem.prefix is None else _prefix
        self.scene, self.play = make_scene(problem, self.timeline)
        key, load = plain(trace.key, np.int32), self.scene.load
        self.traffic = traffic_table(key, load.prompt, load.output, self.timeline.edges, trace.num_keys)

    def __len__(self) -> int:
        """Control intervals."""
        return len(self.timeline)

    def lanes(self, number: int, warmup_room: int | None = None) -> Any:
        """Empty caches; by default with room for every warm-up of the whole trace."""
        if isinstance(self.scene, PrefixScene):
            if self.problem.policy.plain:
                return make_prefix_lanes(self.scene, number)
            return make_prefix_policy_lanes(self.scene, self.rules, number)
        room = len(self) * self.problem.warmup_candidates if warmup_room is None else warmup_room
        return self.lanes_for(self.scene, number, room)

    def lanes_for(self, scene: Scene, number: int, warmup_room: int) -> Any:
        """Empty caches of responses for a scene that is part of this world's."""
        keys = self.problem.trace.num_keys
        if self.problem.policy.plain and not self.choices:
            return make_lanes(scene, keys, number, warmup_room)
        others = [_rules(replace(self.problem, policy=one)) for one in self.choices[1:]]
        return make_policy_lanes(scene, [self.rules, *others], keys, number, warmup_room)

    def under(self, policy: CachePolicy) -> World:
        """The same world with another policy in the cache; everything that does not depend on it is shared. Raises
        InputError where this kind of cache has none of that name."""
        if policy == self.problem.policy and not self.choices:
            return self
        other = copy.copy(self)
        other.problem = replace(self.problem, policy=policy)
        other.rules, other.play, other.choices = _rules(other.problem), play_of(other.problem), ()
        return other

    def choosing(self, policies: Sequence[CachePolicy]) -> World:
        """The same world, of caches whose eviction policy may change with every interval (envs.policy_lanes). They
        begin under this world's own, the first of the choices; the others follow in the order given, each once.

        Raises InputError for a prefix cache, and for policies whose rule of admission differs.
        """
        own, other = self.problem.policy, copy.copy(self)
        if self.problem.prefix is not None:
            raise InputError("policies to choose between: got a prefix cache, expected one of responses")
        if odd := [one for one in policies if one.admission != own.admission]:
            raise InputError(f"policies to choose between: got {odd[0]}, expected admission {own.admission}")
        other.choices, other.play = tuple(dict.fromkeys((own, *policies))), POLICY
        return other

    def replay_static(self, settings: Sequence[KnobSettings], stop: int, progress: Progress | None = None) -> Array:
        """Each of the settings held fixed from an empty cache through intervals 0 to stop - 1.

        Returns statistics of shape (len(settings), stop, STATS).
        """
        rows = np.empty((len(settings), stop, STATS))
        values = np.array([one.as_array() for one in settings]).reshape(-1, 3)
        for start in range(0, len(settings), STATIC_BATCH):
            batch = slice(start, start + STATIC_BATCH)
            self._replay_batch(values[batch], stop, rows[batch])
            if progress is not None:
                progress(min(start + STATIC_BATCH, len(settings)), len(settings))
        return rows

    def _replay_batch(self, settings: Array, stop: int, rows: Array) -> None:
        room = stop * self.problem.warmup_candidates if settings[:, 2].any() else 0
        lanes = self.lanes(len(settings), room)
        self.crew.share(lambda part: self.play.run_static(self.scene, lanes, part, stop, settings, rows), len(settings))


@dataclass(frozen=True)
class Checkpoint:
    """The reference's cache and backend as they are when an interval begins."""

    index: int
    lane: Any
    play: Play

    def copy_to(self, lanes: Any, lane: int) -> None:
        """Makes one lane go on from here. Its room for warm-ups must hold those listed so far."""
        for name in self.play.owned:
            source, target = getattr(self.lane, name), getattr(lanes, name)[lane : lane + 1]
            if name in self.play.growing:
                target[:, : source.shape[1]] = source
            else:
                target[...] = source

    @property
    def listed(self) -> int:
        """Warm-ups listed so far, of which the lanes keep a list."""
        return max((getattr(self.lane, name).shape[1] for name in self.play.growing), default=0)


class Reference:
    """The static reference over the whole trace: what every policy is compared with, computed once and shared.

    rows: (intervals, STATS). ghosts: the neighbouring settings; ghost_usd: their cost, shape (ghosts, intervals).
    """

    def __init__(self, world: World, settings: KnobSettings, marks: Sequence[int]) -> None:
        self.world, self.settings = world, settings
        self.rows, self.checkpoints = _trajectory(world, settings, sorted(set(marks)))
        self.ghosts = ghost_settings(world.problem.knobs, settings)
        rows = world.replay_static(self.ghosts, len(world))
        self.ghost_usd = total_usd(rows)

    def on(self, world: World, marks: Sequence[int]) -> Reference:
        """The same on a world that costs the same and keeps caches in another form, marked anew."""
        other = copy.copy(self)
        other.world = world
        _, other.checkpoints = _trajectory(world, self.settings, sorted(set(marks)), max(marks) + 1)
        return other

    @property
    def usd(self) -> Array:
        """Cost per interval, shape (intervals,)."""
        return total_usd(self.rows)

    def checkpoint(self, index: int) -> Checkpoint:
        """At the beginning of an interval that was marked."""
        for checkpoint in self.checkpoints:
            if checkpoint.index == index:
                return checkpoint
        raise InputError(f"checkpoint: got interval {index}, expected one of {[c.index for c in self.checkpoints]}")


def ghost_settings(knobs: KnobSpace, reference: KnobSettings) -> list[KnobSettings]:
    """Neighbours of the reference: each knob moved alone by each of GHOST_OFFSETS of its range (kept inside it)."""
    here = knobs.positions(reference)
    ghosts = []
    for knob in range(len(KNOB_NAMES)):
        for offset in GHOST_OFFSETS:
            there = here.copy()
            there[knob] = np.clip(here[knob] + offset, 0.0, 1.0)
            ghosts.append(knobs.settings(there))
    return ghosts


def _trajectory(
    world: World, settings: KnobSettings, marks: list[int], stop: int | None = None
) -> tuple[Array, list[Checkpoint]]:
    lanes, intervals = world.lanes(1), len(world) if stop is None else stop
    rows, checkpoints = np.empty((intervals, STATS)), []
    values = settings.as_array()
    for index in range(intervals):
        if index in marks:
            checkpoints.append(Checkpoint(index, _snapshot(lanes, world.play), world.play))
        world.play.run_interval(world.scene, lanes, 0, index, values, rows[index])
    return rows, checkpoints


def _snapshot(lanes: Any, play: Play) -> Any:
    listed = int(lanes.cursor[0, LISTED]) if play.growing else 0
    owned = {name: getattr(lanes, name) for name in play.owned}
    kept = {name: (array[:, :listed] if name in play.growing else array).copy() for name, array in owned.items()}
    return lanes._replace(**kept)


def play_of(problem: Problem) -> Play:
    """The kernels of its kind of cache under its policy."""
    if problem.prefix is None:
        return RESPONSE if problem.policy.plain else POLICY
    return PREFIX if problem.policy.plain else PREFIX_POLICY


def _rules(problem: Problem) -> Any:
    """caches.policies.rules.Rules or, of a prefix cache, caches.policies.prefix_settings.PrefixRules."""
    if problem.prefix is not None:
        return problem.policy.prefix_rules(require_blocks(problem.trace)[1])
    sample, rules = problem.trace.sample, problem.policy.rules
    return rules if sample is None else in_miniature(rules, sample.share)


def _response(problem: Problem, timeline: Timeline) -> tuple[Scene | PrefixScene, Play]:
    trace, backend = problem.trace, backend_of(problem.profile, problem.serving)
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    requests = requests_of(
        by_popularity(trace.key, trace.num_keys),
        trace.arrival_seconds,
        entry_bytes(trace, problem.entry_overhead_bytes),
        trace.ttl_seconds,
        trace.operation,
    )
    prompt, output = plain(trace.prompt_tokens, np.int32), plain(trace.output_tokens, np.int32)
    candidates, count = warmup_candidates(
        plain(trace.key, np.int32), timeline.edges, trace.num_keys, problem.warmup_candidates, problem.popularity_decay
    )
    scene = Scene(
        requests,
        Load(requests.time, prompt, output),
        gpu_seconds(backend, prompt, output),
        timeline.edges,
        timeline.start_seconds,
        problem.interval_seconds,
        candidates,
        count,
        backend,
        tariff_of(problem.prices),
        problem.constraints.p99_ttft_seconds,
        float(problem.serving.sequence_tokens),
        problem.expiry is Expiry.SINCE_TOUCH,
    )
    return scene, play_of(problem)


def _prefix(problem: Problem, timeline: Timeline) -> tuple[Scene | PrefixScene, Play]:
    trace, profile, where = problem.trace, problem.profile, problem.prefix
    assert where is not None
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    blocks, block_tokens = require_blocks(trace)
    chains = chains_of(*blocks)
    session = sessions_of(chains) if trace.session is None else plain(trace.session, np.int32)
    time = plain(trace.arrival_seconds, np.float64)
    load = Load(time, plain(trace.prompt_tokens, np.int32), plain(trace.output_tokens, np.int32))
    candidates, count = returning(
        session,
        time,
        timeline.edges,
        timeline.start_seconds,
        problem.interval_seconds,
        problem.warmup_candidates,
    )
    backend, token = backend_of(profile, problem.serving), profile.kv_bytes_per_token
    scene = PrefixScene(
        chains,
        load,
        block_tokens,
        timeline.edges,
        timeline.start_seconds,
        problem.interval_seconds,
        candidates,
        count,
        engine_of(profile, problem.serving),
        tariff_of(problem.prices),
        problem.constraints.p99_ttft_seconds,
        int(where.place),
        float(token),
        int(where.below_gib * GIB / (token * block_tokens)),
        where.below_gib * where.below_usd_per_gib_hour * problem.interval_seconds / 3600.0,
        Link(token / (where.host_gib_per_second * GIB), where.host_latency_seconds),
        Link(token / (where.below_gib_per_second * GIB), where.below_latency_seconds),
        backend.gpu_seconds_per_output_token,
        backend.vram_bytes,
        backend.weights_bytes,
    )
    return scene, play_of(problem)
