"""Signals that a live cache counts by itself, for a daemon that lives beside it and needs no Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from caches.histograms import added, quantile
from caches.target import Arm, ArmCounters, Counted, Histogram
from tuner.signals import SIGNALS, Signal, all_missing, measured, missing

NOT_COUNTED = "a cache does not count it: take it from Prometheus"
NO_REQUESTS = "there were no requests in the interval: wait for traffic"
RATIOS = frozenset({"hit_ratio", "byte_hit_ratio", "token_hit_ratio", "error_ratio"})
TIMES = ("ttft_seconds", "latency_seconds")
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
LEVELS = frozenset({"entries", "used_bytes"})  # of ArmCounters: may fall; everything else only grows


class CountedSignals:
    """Between two readings of one cache. before: None where there was none. arm: of this one only; both by default.

    A read takes no time to speak of, and the same signals come of it at any time, only older.
    """

    def __init__(self, before: Counted | None, after: Counted | None, arm: Arm | None = None) -> None:
        self._before, self._after = before, after
        self._arms: tuple[Arm, ...] = tuple(Arm) if arm is None else (arm,)

    def read(self, now_seconds: float) -> Mapping[str, Signal]:
        before, after = self._before, self._after
        if before is None or after is None:
            return all_missing("the cache could not be read at both ends of the interval: see whether it answers")
        reason = self._mismatch(before, after)
        if reason is not None:
            return all_missing(reason)
        values = self._values(before, after)
        age_seconds = now_seconds - after.at_seconds
        return {
            name: measured(spec, value, age_seconds)
            if (value := values.get(name)) is not None
            else missing(name, _why_not(name))
            for name, spec in SIGNALS.items()
        }

    def _mismatch(self, before: Counted, after: Counted) -> str | None:
        """Why the two readings say nothing together."""
        if before.began_seconds != after.began_seconds:
            return "the cache started anew within the interval and counts from zero: wait for the next"
        if not after.at_seconds > before.at_seconds:
            seconds = before.at_seconds - after.at_seconds
            return f"the cache's clock stood still or went back by {seconds:g} s within the interval: set it right"
        counters = [reading.arms[arm] for reading in (before, after) for arm in self._arms]
        if len({(one.ttft_seconds.bounds, one.latency_seconds.bounds) for one in counters}) > 1:
            return "times are counted in other buckets than before, or than the other arm's: wait for the next interval"
        for arm in self._arms:
            fallen = _fallen(before.arms[arm], after.arms[arm])
            if fallen is not None:
                return f"{arm} {fallen} fell within the interval, though it only grows: the cache counts wrongly"
        return None

    def _values(self, before: Counted, after: Counted) -> dict[str, float]:
        """What can be told; a ratio of nothing is left out."""
        seconds = after.at_seconds - before.at_seconds

        def grown(name: str) -> float:
            return float(sum(getattr(after.arms[arm], name) - getattr(before.arms[arm], name) for arm in self._arms))

        def level(name: str) -> float:
            return float(sum(getattr(after.arms[arm], name) for arm in self._arms))

        requests = grown("requests")
        values = {
            "requests_per_second": requests / seconds,
            "evictions_per_second": grown("evictions") / seconds,
            "expirations_per_second": grown("expirations") / seconds,
            "used_bytes": level("used_bytes"),
            "entries": level("entries"),
        }
        for name, part, whole in (
            ("hit_ratio", grown("hits"), requests),
            ("byte_hit_ratio", grown("hit_bytes"), grown("hit_bytes") + grown("miss_bytes")),
            ("token_hit_ratio", grown("hit_tokens"), grown("tokens")),
            ("error_ratio", grown("errors"), requests),
        ):
            if whole > 0:
                values[name] = part / whole
        for name in TIMES:
            values |= self._quantiles(name, before, after)
        return values

    def _quantiles(self, name: str, before: Counted, after: Counted) -> dict[str, float]:
        histograms = [_between(getattr(before.arms[arm], name), getattr(after.arms[arm], name)) for arm in self._arms]
        whole = added(histograms)
        found = {f"{short}_{name}": quantile(whole, share) for short, share in QUANTILES.items()}
        return {key: value for key, value in found.items() if value is not None}


def _between(before: Histogram, after: Histogram) -> Histogram:
    counts = tuple(late - early for early, late in zip(before.counts, after.counts, strict=True))
    return Histogram(after.bounds, counts, after.total - before.total)


def _fallen(before: ArmCounters, after: ArmCounters) -> str | None:
    """The first counter that is smaller than it was."""
    for field in fields(ArmCounters):
        early, late = getattr(before, field.name), getattr(after, field.name)
        if isinstance(early, Histogram):
            fell = any(count < past for past, count in zip(early.counts, late.counts, strict=False))
        else:
            fell = field.name not in LEVELS and late < early
        if fell:
            return field.name
    return None


def _why_not(name: str) -> str:
    return NO_REQUESTS if name in RATIOS or name.endswith(TIMES) else NOT_COUNTED
