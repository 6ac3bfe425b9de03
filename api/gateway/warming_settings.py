"""What warming is told before the gateway starts."""

from __future__ import annotations

from dataclasses import dataclass, field

from caches.errors import InputError
from caches.hot_keys import HotRule
from caches.warming import WarmRule

LIMITS = ("every_seconds", "busy_p99_seconds", "window_seconds", "most_body_bytes", "imported_per_second")


@dataclass(frozen=True)
class WarmingSettings:
    """every_seconds: from one warm-up to the next; how much of it there is says `warmup_ratio` of the top tier.
    rule: stages, gates and rates. hot: what is remembered of requests.

    from_backend: whether what no tier has is asked of the backend, which costs its time. It needs a key of the
    gateway's own, since those of clients are not kept. most_body_bytes: of requests that are kept in memory for that.

    busy_p99_seconds, busy_calls: of the gateway's responses, and backend calls on their way; above either, warming
    waits. window_seconds: that P99 and hit ratio are taken over, and up to as many before. imported_per_second: entries
    of a hot set.
    """

    every_seconds: float = 60.0
    rule: WarmRule = field(default_factory=lambda: WarmRule(least_used=0.05, backend_calls=2))
    hot: HotRule = field(default_factory=lambda: HotRule(most=20_000))
    from_backend: bool = False
    most_body_bytes: int = 64 * 2**20
    busy_p99_seconds: float = 10.0
    busy_calls: int = 64
    window_seconds: float = 10.0
    imported_per_second: float = 1_000.0

    def __post_init__(self) -> None:
        for name in LIMITS:
            if not getattr(self, name) > 0:
                raise InputError(f"warming.{name}: got {getattr(self, name)}, expected above 0")
        if self.busy_calls < 0:
            raise InputError(f"warming.busy_calls: got {self.busy_calls}, expected 0 or more")
