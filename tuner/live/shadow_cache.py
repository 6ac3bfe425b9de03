"""A live cache of two arms without a server: recorded requests are replayed through two in-process caches.

Time is that of the requests, so an hour passes as fast as its requests can be replayed. Hits, bytes, ages, evictions
and hand-overs are exact, as in a gateway in front of a backend that answers at once: a miss is stored when it is asked
for. Latencies come from a model that the caller states. For dry runs of the control loop.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from caches.arm_buckets import AGES, SECONDS
from caches.errors import InputError
from caches.in_process import InProcessCache
from caches.knobs import KnobSpace
from caches.policies.catalog import EVICTIONS
from caches.split import TURNS, SplitCache
from caches.stats import CacheStats
from caches.target import Arm, ArmCounters, BalancedSalt, Counted, Fenced, Histogram, Plan, Split, Standing
from caches.tiers.limits import within
from tuner.router import assigner
from tuner.salts import balanced_salt

Array = NDArray[Any]
Latencies: TypeAlias = tuple[Array, Array]  # to the first token and to the last, seconds, float64 (requests,)
# Of requests: whether they hit (bool), prompt and output tokens, arrival times; each of shape (requests,).
Serving = Callable[[NDArray[np.bool_], Array, Array, Array], Latencies]

MADE_WITH = "lru"  # as an InProcessCache is that is told nothing else
STEP_SECONDS, MOST = 0.1, 1_000  # of housekeeping, as a gateway does it: how often, entries at most


@dataclass(frozen=True)
class Requests:
    """In order of arrival, every column of shape (requests,). keys: numbers, int. sizes: bytes of the answers, int.
    prompt_tokens, output_tokens: int. times: seconds, float64, Unix time or any other."""

    keys: Array
    sizes: Array
    prompt_tokens: Array
    output_tokens: Array
    times: Array

    def __len__(self) -> int:
        return len(self.keys)

    def __post_init__(self) -> None:
        for name, column in vars(self).items():
            if column.shape != self.keys.shape:
                raise InputError(f"{name}: got shape {column.shape}, expected {self.keys.shape} as of keys")
        if len(self) and not np.all(np.diff(self.times) >= 0.0):
            raise InputError("times: got times that go back, expected the order of arrival")


def without_queueing(hit_seconds: float, prefill_seconds: float, decode_seconds: float) -> Serving:
    """A backend that is never busy. hit_seconds: of an answer from the cache. prefill_seconds, decode_seconds: for each
    prompt and each output token of a miss."""

    def serve(hit: NDArray[np.bool_], prompt: Array, output: Array, _times: Array) -> Latencies:
        ttft = np.where(hit, hit_seconds, prefill_seconds * prompt)
        return ttft, np.where(hit, hit_seconds, ttft + decode_seconds * output)

    return serve


def key_name(key: int) -> bytes:
    """What a key's arm is drawn by."""
    return b"%d" % key


class ShadowCache:
    """space: ranges, with the operator's settings as defaults. began_seconds: when its time begins."""

    def __init__(self, space: KnobSpace, serving: Serving, name: str = "shadow", began_seconds: float = 0.0) -> None:
        self._space, self._serving, self._name = space, serving, name
        self._began_seconds = self._now = began_seconds
        begin = within(space.default(), space)
        caches: dict[Arm, InProcessCache[int, float]] = {arm: InProcessCache(0, begin.ttl_seconds) for arm in Arm}
        self._split: SplitCache[int, float] = SplitCache(caches, Plan(Split(), begin, begin), _picker)
        self._fence, self._next_step = 0, math.inf
        self._sums = {arm: _Sums() for arm in Arm}
        self._asked, self._missed = Counter[int](), Counter[int]()

    # --- the seam --------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._name

    def knob_space(self) -> KnobSpace:
        return self._space

    def eviction_policies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((MADE_WITH, *EVICTIONS)))

    def standing(self) -> Standing:
        return Standing(self._split.plan, self._split.binding(), self._fence, self._began_seconds)

    def apply(self, plan: Plan, fence: int) -> Standing:
        if fence < self._fence:
            raise Fenced(f"fence: got {fence}, expected at least {self._fence}, which this cache has seen")
        control, treatment = (within(one, self._space, tuple(EVICTIONS)) for one in (plan.control, plan.treatment))
        taken = Plan(plan.split, control, treatment)
        self._fence = fence
        if taken != self._split.plan:
            self._split.aim(taken, self._now, MOST)
            self._next_step = self._now + STEP_SECONDS
        return self.standing()

    def counters(self) -> Counted:
        stats = {arm: cache.stats() for arm, cache in self._split.caches.items()}
        arms = {arm: sums.told(stats[arm]) for arm, sums in self._sums.items()}
        return Counted(self._began_seconds, self._now, arms)

    def balanced_salt(self, seed: int, shares: Sequence[float]) -> BalancedSalt | None:
        """By all requests so far, and those of them that missed."""
        weights = np.array([(count, self._missed[key]) for key, count in self._asked.items()], np.float64)
        return balanced_salt([key_name(key) for key in self._asked], weights.reshape(-1, 2), seed, shares)

    # --- what drives it --------------------------------------------------------------------------------------------

    def replay(self, requests: Requests) -> NDArray[np.bool_]:
        """Requests that come now; time is that of the last one then. Returns which of them hit, shape (requests,)."""
        hit, age, treatment = self._replayed(requests)
        latencies = self._serving(hit, requests.prompt_tokens, requests.output_tokens, requests.times)
        for arm, mine in ((Arm.CONTROL, ~treatment), (Arm.TREATMENT, treatment)):
            self._sums[arm].add(requests, mine, hit & mine, age, latencies)
        self._asked.update(requests.keys.tolist())
        self._missed.update(requests.keys[~hit].tolist())
        return hit

    def warm_up(self, candidates: Requests, until_seconds: float) -> int:
        """Fetches ahead, best first, what would be asked for in vain at `until_seconds`: of each arm's candidates the
        share that its warm-up ratio says. Their times do not matter. Returns how many were fetched."""
        rows: dict[Arm, list[int]] = {arm: [] for arm in Arm}
        for row, key in enumerate(candidates.keys.tolist()):
            rows[self._split.place(key, self._now)].append(row)
        return sum(self._warmed(arm, candidates, mine, until_seconds) for arm, mine in rows.items())

    def wait(self, now_seconds: float) -> None:
        """Time passes without a request."""
        if now_seconds < self._now:
            raise InputError(f"now_seconds: got {now_seconds}, expected at least {self._now}, where time is")
        self._tend_until(now_seconds)
        self._now = now_seconds
        for cache in self._split.caches.values():  # what is too old by now is gone, and counted
            cache.shrink(cache.capacity_bytes, MOST, now_seconds)

    def _replayed(self, requests: Requests) -> tuple[NDArray[np.bool_], Array, NDArray[np.bool_]]:
        """Whether each request hit, how old its answer was (0 of a miss), and whether it was the treatment arm's."""
        if len(requests) and float(requests.times[0]) < self._now:
            raise InputError(f"times: got {requests.times[0]}, expected at least {self._now}, where time is")
        split, written, treatments = self._split, list[float](), list[bool]()
        rows = zip(requests.keys.tolist(), requests.sizes.tolist(), requests.times.tolist(), strict=True)
        for key, size, now in rows:
            if now >= self._next_step:
                self._tend_until(now)
            arm = split.place(key, now)
            cache = split.caches[arm]
            found = cache.get(key, now, size)
            if found is None:
                cache.put(key, now, size, now)
                found = math.nan
            written.append(found)
            treatments.append(arm is Arm.TREATMENT)
            self._now = now
        since = np.array(written, np.float64)
        hit = ~np.isnan(since)
        return hit, np.where(hit, requests.times - since, 0.0), np.array(treatments, np.bool_)

    def _warmed(self, arm: Arm, candidates: Requests, rows: list[int], until_seconds: float) -> int:
        cache, now, fetched = self._split.caches[arm], self._now, []
        share = self._split.plan.settings(arm).warmup_ratio
        for row in rows[: round(share * len(rows))]:
            key, size = int(candidates.keys[row]), int(candidates.sizes[row])
            if cache.could_miss(key, now, until_seconds) and cache.warm(key, now, size, now):
                fetched.append(row)
        self._sums[arm].warmup_prompt_tokens += int(candidates.prompt_tokens[fetched].sum())
        self._sums[arm].warmup_output_tokens += int(candidates.output_tokens[fetched].sum())
        return len(fetched)

    def _tend_until(self, now: float) -> None:
        """The steps that are due by now; none where there is nothing more to do."""
        while self._next_step <= now:
            for _ in range(TURNS if self._split.moving or self._split.changing else 1):
                more = self._split.tend(MOST, self._next_step)
            self._next_step = self._next_step + STEP_SECONDS if more else math.inf


def _picker(split: Split) -> Callable[[int], Arm]:
    """Remembers: a key is asked for again and again."""
    arm_of, known = assigner(split), dict[int, Arm]()

    def pick(key: int) -> Arm:
        arm = known.get(key)
        if arm is None:
            arm = known[key] = arm_of(key_name(key))
        return arm

    return pick


def _no_latencies() -> Array:
    return np.zeros(len(SECONDS) + 1, np.int64)


@dataclass
class _Sums:
    """Of one arm, beside what its cache counts."""

    hit_tokens: int = 0
    tokens: int = 0
    miss_prompt_tokens: int = 0
    miss_output_tokens: int = 0
    warmup_prompt_tokens: int = 0
    warmup_output_tokens: int = 0
    ttft: Array = field(default_factory=_no_latencies)
    latency: Array = field(default_factory=_no_latencies)
    age: Array = field(default_factory=lambda: np.zeros(len(AGES) + 1, np.int64))
    totals: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("ttft", "latency", "age"), 0.0))

    def add(
        self, requests: Requests, mine: NDArray[np.bool_], hit: NDArray[np.bool_], age: Array, latencies: Latencies
    ) -> None:
        """mine: the arm's requests. hit: those of them that hit."""
        prompt, output, missed = requests.prompt_tokens, requests.output_tokens, mine & ~hit
        self.hit_tokens += int(prompt[hit].sum() + output[hit].sum())
        self.tokens += int(prompt[mine].sum() + output[mine].sum())
        self.miss_prompt_tokens += int(prompt[missed].sum())
        self.miss_output_tokens += int(output[missed].sum())
        ttft, latency = latencies
        self._see("ttft", SECONDS, ttft[mine])
        self._see("latency", SECONDS, latency[mine])
        self._see("age", AGES, age[hit])

    def told(self, cache: CacheStats) -> ArmCounters:
        return ArmCounters(
            requests=cache.requests,
            hits=cache.hits,
            errors=0,
            verified_hits=0,
            wrong_hits=0,
            hit_bytes=cache.hit_bytes,
            miss_bytes=cache.miss_bytes,
            hit_tokens=self.hit_tokens,
            tokens=self.tokens,
            miss_prompt_tokens=self.miss_prompt_tokens,
            miss_output_tokens=self.miss_output_tokens,
            warmups=cache.warmups,
            warmup_prompt_tokens=self.warmup_prompt_tokens,
            warmup_output_tokens=self.warmup_output_tokens,
            expirations=cache.expirations,
            evictions=cache.evictions,
            entries=cache.entries,
            used_bytes=cache.used_bytes,
            ttft_seconds=self._histogram("ttft", SECONDS),
            latency_seconds=self._histogram("latency", SECONDS),
            hit_age_seconds=self._histogram("age", AGES),
        )

    def _see(self, name: str, bounds: tuple[float, ...], values: Array) -> None:
        places = np.searchsorted(bounds, values, side="left")
        getattr(self, name)[:] += np.bincount(places, minlength=len(bounds) + 1)
        self.totals[name] += float(values.sum())

    def _histogram(self, name: str, bounds: tuple[float, ...]) -> Histogram:
        return Histogram(bounds, tuple(getattr(self, name).tolist()), self.totals[name])
