"""A control loop over a replayed cache, in virtual time: traffic, policies by hand, crashes on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from agents.baselines.schedule import HourSchedule
from agents.bundle import PolicyBundle
from agents.bundle_policy import BundlePolicy
from agents.rules import arrays_of
from caches.knobs import Knob, KnobSettings, KnobSpace
from caches.target import BalancedSalt, CacheUnavailable, Counted, Plan, Standing
from envs.live import LivePrices
from envs.reward import Tariff
from tests.agents.bundles import PROVENANCE, SCALE
from tuner.control import ControlLoop, Ticked
from tuner.experiment import ExperimentDesign, Margins
from tuner.guards.objectives import Objectives
from tuner.ledger import Ledger
from tuner.ledgers.sql import open_ledger
from tuner.live.shadow_cache import Requests, ShadowCache, without_queueing
from tuner.loop.closing import Looked
from tuner.loop.policies import LivePolicy
from tuner.loop.standpoint import Rules
from tuner.records import ControlState, Mode, Wish, WishKind
from tuner.rollout_section import RolloutConfig
from tuner.signals import Signal

SECONDS = 60.0
KNOBS = KnobSpace(
    Knob("cache_size", "bytes", 1_000.0, 100_000.0, 5_000.0, 0.25, "log"),
    Knob("ttl_seconds", "seconds", 10.0, 100_000.0, 10_000.0, 0.25, "log"),
    Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear"),
)
STATIC = KNOBS.default()
LARGE = KnobSettings(50_000.0, 10_000.0, 0.0)
SMALL = KnobSettings(1_000.0, 10_000.0, 0.0)
# a miss costs 0.1 s of a GPU at 0.01 USD; memory next to nothing
PRICES = LivePrices(Tariff(0.01, 1e-12, 0.5, 0.0, 1e6, 0.0), 0.001, 0.0, 10.0)
OBJECTIVES = Objectives(p99_ttft_seconds=10.0, stale_ratio=0.5, least_requests=5)
ROLLOUT = RolloutConfig(
    shares=(0.2, 0.5, 1.0),
    step_intervals=(6, 6, 1),
    settle_intervals=1,
    shadow_intervals=2,
    cool_down_intervals=3,
)
DESIGN = ExperimentDesign(
    lead_in_intervals=3,
    luck_ratio=0.1,
    washout_intervals=1,
    min_intervals=6,
    max_intervals=200,
    min_requests=10,
    margins=Margins(slow_ttft_ratio=None, slow_latency_ratio=None, error_ratio=None, stale_ratio=None),
)
KEYS, PER_INTERVAL, SIZE = 400, 300, 100


def salted(name: str) -> ExperimentDesign:
    return DESIGN.model_copy(update={"salt": name})


def rules(mode: Mode = Mode.LIVE, **changes: Any) -> Rules:
    return replace(Rules(SECONDS, mode, KNOBS, PRICES, OBJECTIVES, ROLLOUT, salted), **changes)


def near(one: KnobSettings | None, other: KnobSettings) -> bool:
    """Up to the rounding of a way through positions, and to whole bytes."""
    return one is not None and np.allclose(one.as_array(), other.as_array(), rtol=1e-3, atol=1e-9)


def policy(version: int, wished: KnobSettings, reference: KnobSettings = STATIC) -> LivePolicy:
    """One that always wants the same settings."""
    rule = HourSchedule(KNOBS.positions(reference), KNOBS.positions(wished)[None])
    scale = replace(SCALE, interval_seconds=SECONDS)
    bundle = PolicyBundle("schedule", KNOBS, reference, PROVENANCE, scale=scale, weights=arrays_of(rule))
    return LivePolicy("schedule", version, bundle, BundlePolicy("schedule", bundle))


@dataclass
class HandPolicies:
    """`tuner.loop.policies.Policies`, exchanged by hand; a promotion takes effect at once."""

    first: LivePolicy | None = None
    second: LivePolicy | None = None
    promoted: list[tuple[int, int | None]] = field(default_factory=list)

    def champion(self) -> LivePolicy | None:
        return self.first

    def challenger(self) -> LivePolicy | None:
        return self.second

    def problems(self) -> Mapping[str, str]:
        return {}

    def promote(self, version: int, expected: int | None) -> None:
        self.promoted.append((version, expected))
        if self.second is not None and self.second.version == version:
            self.first, self.second = self.second, None


class Blind:
    """A watch without signals and keys; one with p99 and hit ratio is not needed: the cache counts them."""

    def signals(self, now_seconds: float) -> Mapping[str, Signal]:
        return {}

    def keys(self, state: ControlState, now_seconds: float) -> Looked:
        return Looked(now_seconds)


class Crash(Exception):
    """The process ends here."""


@dataclass
class Flaky:
    """A live cache, with the calls that are to fail. before, after: what is raised by the next call of a method, before
    or after it has been done."""

    cache: ShadowCache
    before: dict[str, Exception] = field(default_factory=dict)
    after: dict[str, Exception] = field(default_factory=dict)
    down: bool = False

    @property
    def name(self) -> str:
        return self.cache.name

    def knob_space(self) -> KnobSpace:
        return self.cache.knob_space()

    def eviction_policies(self) -> tuple[str, ...]:
        return self._do("eviction_policies", self.cache.eviction_policies)

    def standing(self) -> Standing:
        return self._do("standing", self.cache.standing)

    def apply(self, plan: Plan, fence: int) -> Standing:
        return self._do("apply", lambda: self.cache.apply(plan, fence))

    def counters(self) -> Counted:
        return self._do("counters", self.cache.counters)

    def balanced_salt(self, seed: int, shares: Sequence[float]) -> BalancedSalt | None:
        return self._do("balanced_salt", lambda: self.cache.balanced_salt(seed, shares))

    def _do(self, name: str, call: Callable[[], Any]) -> Any:
        if self.down:
            raise CacheUnavailable("the cache is down")
        if name in self.before:
            raise self.before.pop(name)
        done = call()
        if name in self.after:
            raise self.after.pop(name)
        return done


@dataclass
class Bench:
    """Everything that outlives a daemon, and the daemon."""

    folder: Path
    rules: Rules = field(default_factory=rules)
    policies: HandPolicies = field(default_factory=HandPolicies)
    seed: int = 0
    now: float = 0.0

    def __post_init__(self) -> None:
        self.cache = Flaky(ShadowCache(KNOBS, without_queueing(0.001, 0.001, 0.0)))
        self.ledger: Ledger = open_ledger("sqlite:///setpoint.db", self.folder)
        self.random = np.random.default_rng(self.seed)
        self.loop = self.started()

    def started(self, holder: str = "one") -> ControlLoop:
        """A daemon that knows nothing but what is in the ledger."""
        return ControlLoop(self.cache, self.ledger, self.policies, Blind(), self.rules, holder, 2.0 * SECONDS)

    def traffic(self) -> None:
        """An interval's requests, up to its end."""
        keys = np.minimum(self.random.zipf(1.3, PER_INTERVAL) - 1, KEYS - 1)
        times = np.sort(self.random.uniform(self.now, self.now + SECONDS, PER_INTERVAL))
        ones = np.ones(PER_INTERVAL, np.int64)
        self.cache.cache.replay(Requests(keys, SIZE * ones, 100 * ones, 10 * ones, times))
        self.now += SECONDS
        self.cache.cache.wait(self.now)

    def run(self, intervals: int) -> Ticked:
        """A tick at the beginning of each interval, then its traffic; the last tick closes the last one."""
        done = self.loop.tick(self.now)
        for _ in range(intervals):
            self.traffic()
            done = self.loop.tick(self.now)
        return done

    def wish(self, kind: WishKind, **arguments: object) -> Wish:
        return self.ledger.wish(Wish(self.cache.name, kind, "ann", self.now, "", arguments))

    @property
    def state(self) -> ControlState:
        state = self.ledger.state(self.cache.name)
        assert state is not None
        return state
