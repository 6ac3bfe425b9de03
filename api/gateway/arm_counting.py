"""What each arm of the tuned tier counts, where requests are answered. Each request costs a few microseconds.

An arm's requests are those that the cache may answer, of namespaces that use the tuned tier. A hit is any answer that
the backend did not give, whichever tier had it. Of equal requests at the same time that share one call, all are misses,
as their clients are told too; what the backend had to do counts once, with the call.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping

from fastapi import Request
from fastapi.responses import Response

from api.gateway.access_log import COUNTS_END, VISIT, Handler, Visit
from api.gateway.errors import NotStored
from api.gateway.feed import Feed
from api.http.delivery import ClosedStream
from api.http.errors import ApiError
from caches.arm_buckets import AGES, SECONDS
from caches.flight import Flight
from caches.keys.request_key import Partition, RequestKey
from caches.stack import Call, Served
from caches.stats import CacheStats
from caches.target import Arm, ArmCounters, Histogram
from caches.tiers.split import SplitTier
from caches.tiers.tier import Answer

TOO_MANY, FAILED = 429, 500  # statuses that are not the client's fault: the first, and from the second on


class Buckets:
    """A histogram that is being filled."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> int:
        """Returns the place of its bucket."""
        place = bisect_left(self.bounds, value)
        self.counts[place] += 1
        self.total += value
        return place

    def add_at(self, place: int, value: float) -> None:
        """Where its bucket is known."""
        self.counts[place] += 1
        self.total += value

    def told(self) -> Histogram:
        return Histogram(self.bounds, tuple(self.counts), self.total)


class ArmCount:
    """Of one arm, as ArmCounters names it; what the tier counts by itself comes from there."""

    __slots__ = (
        *("requests", "hits", "errors", "hit_bytes", "miss_bytes", "hit_tokens", "tokens"),
        *("miss_prompt_tokens", "miss_output_tokens", "warmups", "warmup_prompt_tokens", "warmup_output_tokens"),
        *("verified_hits", "wrong_hits", "ttft", "latency", "age"),
    )

    def __init__(self) -> None:
        self.requests = self.hits = self.errors = self.hit_bytes = self.miss_bytes = self.hit_tokens = self.tokens = 0
        self.verified_hits = self.wrong_hits = self.miss_prompt_tokens = self.miss_output_tokens = 0
        self.warmups = self.warmup_prompt_tokens = self.warmup_output_tokens = 0
        self.ttft, self.latency, self.age = Buckets(SECONDS), Buckets(SECONDS), Buckets(AGES)

    def ended(self, served: Served | None, failed: bool, ttft_seconds: float, latency_seconds: float) -> None:
        """A request. served: None where there was no answer, or none to keep."""
        self.requests += 1
        self.errors += failed
        place = self.ttft.add(ttft_seconds)
        if latency_seconds == ttft_seconds:
            self.latency.add_at(place, latency_seconds)
        else:
            self.latency.add(latency_seconds)
        if served is None:
            return
        tokens = stated(served.answer.prompt_tokens) + stated(served.answer.output_tokens)
        self.tokens += tokens
        if served.tier is None:
            self.miss_bytes += served.answer.size_bytes
            return
        self.hits += 1
        self.hit_bytes += served.answer.size_bytes
        self.hit_tokens += tokens
        self.age.add(served.age_seconds)

    def verified(self, right: bool) -> None:
        """A hit by meaning, off the path of its request."""
        self.verified_hits += 1
        self.wrong_hits += not right

    def told(self, tier: CacheStats) -> ArmCounters:
        return ArmCounters(
            requests=self.requests,
            hits=self.hits,
            errors=self.errors,
            verified_hits=self.verified_hits,
            wrong_hits=self.wrong_hits,
            hit_bytes=self.hit_bytes,
            miss_bytes=self.miss_bytes,
            hit_tokens=self.hit_tokens,
            tokens=self.tokens,
            miss_prompt_tokens=self.miss_prompt_tokens,
            miss_output_tokens=self.miss_output_tokens,
            warmups=self.warmups,
            warmup_prompt_tokens=self.warmup_prompt_tokens,
            warmup_output_tokens=self.warmup_output_tokens,
            expirations=tier.expirations,
            evictions=tier.evictions,
            entries=tier.entries,
            used_bytes=tier.used_bytes,
            ttft_seconds=self.ttft.told(),
            latency_seconds=self.latency.told(),
            hit_age_seconds=self.age.told(),
        )


class ArmCounting:
    """tuned: whether a partition uses the tuned tier. ticks: a clock that is never set."""

    def __init__(
        self,
        tier: SplitTier,
        tuned: Callable[[Partition], bool] = lambda _: True,
        ticks: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._tier, self._tuned, self._ticks = tier, tuned, ticks
        self._counts = {arm: ArmCount() for arm in Arm}

    def told(self) -> Mapping[Arm, ArmCounters]:
        """Both arms at one moment."""
        return {arm: self._counts[arm].told(stats) for arm, stats in self._tier.arm_stats().items()}

    def of(self, key: RequestKey) -> ArmCount | None:
        """None where the key's namespace does not use the tuned tier."""
        return self._counts[self._tier.drawn(key)] if self._tuned(key.partition) else None

    def handling(self, handler: Handler) -> Handler:
        """The handler, with what it answers counted; of a stream that is passed on, at its end."""

        async def handle(request: Request) -> Response:
            began, visit = self._ticks(), request.scope.setdefault(VISIT, Visit())
            try:
                response = await handler(request)
            except ApiError as error:
                self._ended(visit, _is_failure(error.status), self._ticks() - began)
                raise
            if visit.feed is not None and visit.served is None and isinstance(response, ClosedStream):
                self._count_at_end(visit, visit.feed, response, began)
            else:
                self._ended(visit, _is_failure(response.status_code), self._ticks() - began)
            return response

        return handle

    def missed(self, key: RequestKey, call: Call) -> Call:
        """A call for requests that wait for it, with what the backend had to do for it counted."""

        async def calling(flight: Flight[Served]) -> Answer:
            answer, count = await call(flight), self.of(key)
            if count is not None:
                count.miss_prompt_tokens += stated(answer.prompt_tokens)
                count.miss_output_tokens += stated(answer.output_tokens)
            return answer

        return calling

    def ahead(self, key: RequestKey, call: Call) -> Call:
        """A call that no request waits for, to renew or to warm an entry or to verify a hit; counted as a warm-up."""

        async def calling(flight: Flight[Served]) -> Answer:
            answer, count = await call(flight), self.of(key)
            if count is not None:
                count.warmups += 1
                count.warmup_prompt_tokens += stated(answer.prompt_tokens)
                count.warmup_output_tokens += stated(answer.output_tokens)
            return answer

        return calling

    def _of_visit(self, visit: Visit) -> ArmCount | None:
        """The access log is told the arm too."""
        if visit.asked is None or not self._tuned(visit.asked.key.partition):
            return None
        arm = self._tier.drawn(visit.asked.key)
        visit.arm = arm.value
        return self._counts[arm]

    def _ended(self, visit: Visit, failed: bool, seconds: float) -> None:
        count = self._of_visit(visit)
        if count is not None:
            count.ended(visit.served, failed, seconds, seconds)

    def _count_at_end(self, visit: Visit, feed: Feed, response: ClosedStream, began: float) -> None:
        """The arm is that of the beginning, also where the split has changed by the end."""
        count = self._of_visit(visit)
        if count is None:
            return
        close, first = response.close, self._ticks() - began

        async def closed() -> None:
            try:
                if close is not None:
                    await close()
            finally:
                failed = _is_failure(response.status_code) or _broke_off(feed)
                count.ended(feed.ended, failed, first, self._ticks() - began)

        response.close = closed


def stated(count: int) -> int:
    """What a backend says may be nonsense."""
    return count if 0 < count < COUNTS_END else 0


def _is_failure(status: int) -> bool:
    return status >= FAILED or status == TOO_MANY


def _broke_off(feed: Feed) -> bool:
    """Not because the client hung up, nor with a whole answer that is only not to be kept."""
    error = feed.error
    if isinstance(error, NotStored):
        return error.in_stream or _is_failure(error.reply.status)
    return error is not None
