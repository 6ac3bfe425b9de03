"""The parts of a synthetic workload, and the checks on their numbers.

Hours count from the start of the trace, which is midnight before a Monday. Every class but SyntheticWorkload
is one table of the TOML file; `TABLE` is its name there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from caches.errors import InputError

MAX_LAUNCHES = 500
MAX_EVENTS = 500
MAX_REQUESTS = 200_000_000
_MAX_LOCAL_KEYS = 2**31 - 1


class _Table(Protocol):
    @property
    def TABLE(self) -> str: ...  # noqa: N802


def _require(part: _Table, name: str, ok: bool, expected: str) -> None:
    value = getattr(part, name)
    if not ok or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"{part.TABLE}.{name}: got {value!r}, expected {expected}")


@dataclass(frozen=True)
class Popularity:
    """The catalogue: the key of rank r is requested with probability proportional to r ** -alpha."""

    TABLE: ClassVar[str] = "popularity"
    num_keys: int = 100_000
    alpha: float = 0.9

    def __post_init__(self) -> None:
        _require(self, "num_keys", 1 <= self.num_keys <= _MAX_LOCAL_KEYS, "1 to 2,147,483,647")
        _require(self, "alpha", self.alpha >= 0, "a number from 0 on")


@dataclass(frozen=True)
class Rate:
    """Arrivals of the catalogue: a Poisson process whose rate has a daily and a weekly shape.

    mean_rps: requests per second, mean over a whole week. daily_amplitude: the rate swings by this share of
    its mean, as a cosine with its top at `peak_hour`. weekend_factor: Saturday and Sunday against a weekday.
    """

    TABLE: ClassVar[str] = "rate"
    mean_rps: float = 2.0
    daily_amplitude: float = 0.5
    peak_hour: float = 15.0
    weekend_factor: float = 0.7

    def __post_init__(self) -> None:
        _require(self, "mean_rps", self.mean_rps > 0, "a number above 0")
        _require(self, "daily_amplitude", 0 <= self.daily_amplitude <= 1, "0 to 1")
        _require(self, "peak_hour", 0 <= self.peak_hour < 24, "0 to below 24")
        _require(self, "weekend_factor", self.weekend_factor >= 0, "a number from 0 on")


@dataclass(frozen=True)
class Drift:
    """Popularity moves: `reshuffled_per_hour` is the share of ranks that get another key each hour.

    It happens in steps of ten minutes: the chosen ranks, drawn evenly, pass their keys round in a circle.
    """

    TABLE: ClassVar[str] = "drift"
    reshuffled_per_hour: float = 0.02

    def __post_init__(self) -> None:
        _require(self, "reshuffled_per_hour", 0 <= self.reshuffled_per_hour <= 6, "0 to 6")


@dataclass(frozen=True)
class Launch:
    """A new model version: the fingerprint of every prompt changes, so from then on all keys are new."""

    TABLE: ClassVar[str] = "launches"
    at_hours: float

    def __post_init__(self) -> None:
        _require(self, "at_hours", self.at_hours >= 0, "a number from 0 on")


@dataclass(frozen=True)
class FlashCrowd:
    """For a while traffic is `multiplier` times the catalogue's; the surplus asks evenly for `num_keys` keys.

    These keys are not in the catalogue: nothing else ever requests them.
    """

    TABLE: ClassVar[str] = "flash_crowds"
    at_hours: float
    duration_hours: float = 1.0
    num_keys: int = 50
    multiplier: float = 3.0

    def __post_init__(self) -> None:
        _require(self, "at_hours", self.at_hours >= 0, "a number from 0 on")
        _require(self, "duration_hours", self.duration_hours > 0, "a number above 0")
        _require(self, "num_keys", 1 <= self.num_keys <= _MAX_LOCAL_KEYS, "1 to 2,147,483,647")
        _require(self, "multiplier", self.multiplier >= 1, "a number from 1 on")


@dataclass(frozen=True)
class Scan:
    """A batch job: a steady Poisson stream of requests, each for a key that is never seen again."""

    TABLE: ClassVar[str] = "scans"
    at_hours: float
    duration_hours: float = 1.0
    rps: float = 5.0

    def __post_init__(self) -> None:
        _require(self, "at_hours", self.at_hours >= 0, "a number from 0 on")
        _require(self, "duration_hours", self.duration_hours > 0, "a number above 0")
        _require(self, "rps", self.rps > 0, "a number above 0")


@dataclass(frozen=True)
class Sessions:
    """Conversations, which take the place of `share` of the catalogue's requests.

    A session has a geometric number of turns with mean `mean_turns`; the pauses before its second and all
    later requests are exponential with mean `think_time_seconds`. Every turn is a new key whose prompt holds
    all turns and answers before it. With `retry_probability` a turn is sent a second time, unchanged. With
    `num_openings` above 0 the first turn is one of that many shared prompts, Zipf with `opening_alpha`; with
    0 every session opens with a prompt of its own. Prompts get chains of full blocks of `block_size_tokens`.
    Sessions start inside the trace and are cut at its end.
    """

    TABLE: ClassVar[str] = "sessions"
    share: float = 0.3
    mean_turns: float = 4.0
    think_time_seconds: float = 60.0
    retry_probability: float = 0.05
    num_openings: int = 0
    opening_alpha: float = 1.0
    block_size_tokens: int = 64

    def __post_init__(self) -> None:
        _require(self, "share", 0 < self.share <= 1, "above 0 to 1")
        _require(self, "mean_turns", 1 <= self.mean_turns <= 200, "1 to 200")
        _require(self, "think_time_seconds", self.think_time_seconds > 0, "a number above 0")
        _require(self, "retry_probability", 0 <= self.retry_probability <= 1, "0 to 1")
        _require(self, "num_openings", 0 <= self.num_openings <= _MAX_LOCAL_KEYS, "0 to 2,147,483,647")
        _require(self, "opening_alpha", self.opening_alpha >= 0, "a number from 0 on")
        _require(self, "block_size_tokens", self.block_size_tokens >= 1, "at least 1")


@dataclass(frozen=True)
class Sizes:
    """Bytes of a key's response: lognormal over keys. `sigma` is the deviation of the natural logarithm."""

    TABLE: ClassVar[str] = "sizes"
    median_bytes: float = 2_000.0
    sigma: float = 1.0

    def __post_init__(self) -> None:
        _require(self, "median_bytes", self.median_bytes >= 1, "a number from 1 on")
        _require(self, "sigma", 0 <= self.sigma <= 5, "0 to 5")


@dataclass(frozen=True)
class Tokens:
    """Tokens of a key: lognormal over keys, prompt, output and size independent of each other.

    In a session the prompt median is that of the text each turn adds.
    """

    TABLE: ClassVar[str] = "tokens"
    prompt_median: float = 400.0
    prompt_sigma: float = 1.0
    output_median: float = 150.0
    output_sigma: float = 0.8

    def __post_init__(self) -> None:
        for name in ("prompt_median", "output_median"):
            _require(self, name, getattr(self, name) >= 1, "a number from 1 on")
        for name in ("prompt_sigma", "output_sigma"):
            _require(self, name, 0 <= getattr(self, name) <= 5, "0 to 5")


@dataclass(frozen=True)
class SyntheticWorkload:
    """`days` of traffic made of the parts; a part that is None or an empty tuple is absent."""

    TABLE: ClassVar[str] = "workload"
    days: float = 7.0
    popularity: Popularity = field(default_factory=Popularity)
    rate: Rate = field(default_factory=Rate)
    sizes: Sizes = field(default_factory=Sizes)
    tokens: Tokens = field(default_factory=Tokens)
    drift: Drift | None = None
    sessions: Sessions | None = None
    launches: tuple[Launch, ...] = ()
    flash_crowds: tuple[FlashCrowd, ...] = ()
    scans: tuple[Scan, ...] = ()

    def __post_init__(self) -> None:
        _require(self, "days", 0 < self.days <= 3_660, "above 0 to 3,660")
        _require(self, "launches", len(self.launches) <= MAX_LAUNCHES, f"at most {MAX_LAUNCHES}")
        for name in ("flash_crowds", "scans"):
            _require(self, name, len(getattr(self, name)) <= MAX_EVENTS, f"at most {MAX_EVENTS}")
        events: list[Launch | FlashCrowd | Scan] = [*self.launches, *self.flash_crowds, *self.scans]
        for event in events:
            within = event.at_hours < self.days * 24
            _require(event, "at_hours", within, f"before the trace ends at {self.days * 24:g}")
        expected = self.expected_requests
        if expected > MAX_REQUESTS:
            raise InputError(f"workload: got about {expected:,.0f} requests, expected at most {MAX_REQUESTS:,}")

    @property
    def span_seconds(self) -> float:
        return self.days * 86400

    @property
    def expected_requests(self) -> float:
        """From the mean rates, so exact to the shape of a day only over whole weeks."""
        base = self.rate.mean_rps * self.span_seconds
        crowds = sum((c.multiplier - 1) * c.duration_hours * 3600 * self.rate.mean_rps for c in self.flash_crowds)
        return base + crowds + sum(s.rps * s.duration_hours * 3600 for s in self.scans)
