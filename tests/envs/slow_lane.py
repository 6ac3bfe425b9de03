"""An oracle for envs.lanes: the live cache, a list of slots and money by the formulas, one interval after another."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

import numpy as np

from caches.in_process import InProcessCache
from caches.knobs import KnobSettings
from caches.stats import CacheStats
from envs.interval import Window
from envs.world import Problem
from traces.trace import Operation

GIB = 2.0**30


@dataclass
class Seen:
    """What happened in one interval, request by request."""

    hit_ages: list[float] = field(default_factory=list)
    hits: list[int] = field(default_factory=list)
    misses: list[int] = field(default_factory=list)
    ttft: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    waited: float = 0.0
    busy: float = 0.0
    held: float = 0.0


class SlowLane:
    """Starts empty at interval 0. candidates: of each interval, positions of requests, best first."""

    def __init__(self, problem: Problem, candidates: list[list[int]]) -> None:
        self.problem, self.candidates = problem, candidates
        self.cache: InProcessCache[int, float] = InProcessCache(0, 1.0, problem.expiry)
        self.free = [-math.inf] * self._slots(0.0)
        assert problem.trace.prompt_tokens is not None
        assert problem.trace.output_tokens is not None
        self.size = (problem.trace.size_bytes + problem.entry_overhead_bytes).tolist()
        self.prompt = problem.trace.prompt_tokens.tolist()
        self.output = problem.trace.output_tokens.tolist()

    def interval(self, index: int, knobs: KnobSettings) -> Window:
        trace, seconds = self.problem.trace, self.problem.interval_seconds
        now = index * seconds
        before = self.cache.stats()
        self.cache.apply(int(knobs.cache_size), knobs.ttl_seconds, now)
        fetched = self._warm(index, knobs, now)
        self._resize(self._slots(knobs.cache_size), now)
        seen = Seen()
        for t in np.flatnonzero((trace.arrival_seconds >= now) & (trace.arrival_seconds < now + seconds)):
            self._request(int(t), seen)
        return self._window(knobs, before, fetched, seen)

    def _slots(self, cache_bytes: float) -> int:
        profile, serving = self.problem.profile, self.problem.serving
        most = (serving.max_sequences or profile.max_sequences) * serving.replicas
        if not serving.cache_in_vram:
            return most
        free = (profile.vram_gib - profile.weights_gib) * GIB * serving.replicas - cache_bytes
        return min(max(int(free / (profile.kv_bytes_per_token * serving.sequence_tokens)), 1), most)

    def _resize(self, wanted: int, now: float) -> None:
        """The busiest slots stay; new ones are free now."""
        self.free = sorted(self.free)[max(len(self.free) - wanted, 0) :]
        self.free += [now] * (wanted - len(self.free))

    def _warm(self, index: int, knobs: KnobSettings, now: float) -> list[int]:
        trace, fetched = self.problem.trace, []
        ranked = self.candidates[index]
        for position in ranked[: round(knobs.warmup_ratio * len(ranked))]:
            key, size = int(trace.key[position]), self.size[position]
            too_old = self.cache.could_miss(key, now, now + self.problem.interval_seconds)
            if too_old and self.cache.warm(key, now, size, now):
                fetched.append(position)
        return fetched

    def _request(self, t: int, seen: Seen) -> None:
        trace = self.problem.trace
        now, key, size = float(trace.arrival_seconds[t]), int(trace.key[t]), self.size[t]
        own = math.nan if trace.ttl_seconds is None else float(trace.ttl_seconds[t])
        ttl = None if math.isnan(own) else own
        operation = Operation.READ if trace.operation is None else Operation(trace.operation[t])
        if operation is Operation.WRITE:
            self.cache.write(key, now, size, now, ttl)
        elif operation is Operation.DELETE:
            self.cache.delete(key, now)
        else:
            written = self.cache.get(key, now, size)
            if written is not None:
                seen.hits.append(t)
                seen.hit_ages.append(now - written)
            else:
                self.cache.put(key, now, size, now, ttl)
                seen.misses.append(t)
                self._serve(t, now, seen)

    def _serve(self, t: int, now: float, seen: Seen) -> None:
        profile = self.problem.profile
        begin = max(now, min(self.free))
        prefill = self.prompt[t] / profile.prefill_tokens_per_second
        service = prefill + self.output[t] * profile.seconds_per_output_token
        self.free[self.free.index(min(self.free))] = begin + service
        seen.ttft.append(max(begin - now + prefill, profile.hit_seconds))
        seen.latency.append(max(begin - now + service, profile.hit_seconds))
        seen.waited += begin - now
        seen.busy += service
        seen.held += service * (self.prompt[t] + self.output[t] / 2)

    def _gpu_seconds(self, positions: list[int]) -> float:
        profile = self.problem.profile
        share = profile.seconds_per_output_token / profile.max_sequences
        return sum(self.prompt[t] / profile.prefill_tokens_per_second + self.output[t] * share for t in positions)

    def _window(self, knobs: KnobSettings, before: CacheStats, fetched: list[int], seen: Seen) -> Window:
        problem, after = self.problem, self.cache.stats()
        done = {f.name: getattr(after, f.name) - getattr(before, f.name) for f in fields(CacheStats)}
        asked = len(seen.hits) + len(seen.misses)
        tokens = {t: self.prompt[t] + self.output[t] for t in (*seen.hits, *seen.misses)}
        lifetime = problem.prices.answer_lifetime_seconds
        stale = sum(1 - math.exp(-age / lifetime) for age in seen.hit_ages)
        fast = [problem.profile.hit_seconds] * len(seen.hits)
        slow = sum(x > problem.constraints.p99_ttft_seconds for x in seen.ttft)
        vram = self._vram(knobs, seen)
        return Window(
            asked,
            done["hits"],
            _ratio(len(seen.hits), asked),
            _ratio(done["hit_bytes"], done["hit_bytes"] + done["miss_bytes"]),
            _ratio(sum(tokens[t] for t in seen.hits), sum(tokens.values())),
            stale,
            _ratio(stale, len(seen.hits)),
            len(fetched),
            done["expirations"],
            done["evictions"],
            after.used_bytes,
            _ratio(after.used_bytes, knobs.cache_size),
            *(_nearest_rank(fast + seen.ttft, q) for q in (50, 95, 99)),
            *(_nearest_rank(fast + seen.latency, q) for q in (50, 95, 99)),
            _ratio(seen.waited, asked),
            seen.busy / (len(self.free) * problem.interval_seconds),
            vram,
            slow,
            *self._costs(knobs, fetched, seen, stale, slow),
        )

    def _vram(self, knobs: KnobSettings, seen: Seen) -> float:
        profile, serving = self.problem.profile, self.problem.serving
        used = profile.weights_gib * GIB * serving.replicas
        used += seen.held * profile.kv_bytes_per_token / self.problem.interval_seconds
        used += knobs.cache_size if serving.cache_in_vram else 0.0
        return used / (profile.vram_gib * GIB * serving.replicas)

    def _costs(
        self, knobs: KnobSettings, fetched: list[int], seen: Seen, stale: float, slow: int
    ) -> tuple[float, float, float, float, float]:
        prices, hours = self.problem.prices, self.problem.interval_seconds / 3600
        return (
            self._gpu_seconds(seen.misses) * prices.gpu_usd_per_hour / 3600,
            self._gpu_seconds(fetched) * prices.gpu_usd_per_hour / 3600 * prices.warmup_price_factor,
            knobs.cache_size / GIB * hours * prices.memory_usd_per_gib_hour,
            stale * prices.stale_answer_usd,
            slow * prices.slow_request_usd,
        )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _nearest_rank(values: list[float], percent: int) -> float | None:
    return sorted(values)[-(-percent * len(values) // 100) - 1] if values else None
