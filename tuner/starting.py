"""From the settings to a daemon: the cache, the ledger, the registry, signals and keys, put together."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agents.registry import Registry
from caches.clocks import Clocks
from caches.errors import InputError
from caches.knobs import KnobSpace
from caches.policies.pair import CachePolicy
from caches.stats import Expiry
from caches.target import LiveCache, Plan, Split
from envs.ghost_lanes import Terms
from envs.live import LivePrices
from envs.reward import tariff_of
from envs.serving import backend_of, load_profile
from traces.access.stream_log import stream_place
from tuner.config import TunerConfig
from tuner.config_loader import secret
from tuner.control import ControlLoop, Ticked
from tuner.daemon import Daemon, Pace
from tuner.exporting.metering import Meter, Overheard
from tuner.exporting.metrics import Terms as MetricTerms
from tuner.exporting.page import MetricsPage
from tuner.keys.ghosts import LiveGhosts
from tuner.keys.parquet_files import ParquetKeys
from tuner.keys.redis_stream import PATIENCE_SECONDS, RedisKeys
from tuner.keys.stream import KeyStream
from tuner.keys.view import GhostRules, Viewpoint
from tuner.keys.watch import KeyWatch
from tuner.ledger import Ledger
from tuner.ledgers.sql import open_ledger
from tuner.live.named import live_cache
from tuner.loop.policies import RegistryPolicies
from tuner.loop.standpoint import Rules
from tuner.loop.watching import LiveWatch, ReadAhead
from tuner.prometheus.source import prometheus_signals
from tuner.records import ControlState, Mode
from tuner.regime import RegimeWatch

DAY_SECONDS = 86_400.0
Told = Callable[[Ticked, float], None]


@dataclass
class Started:
    """A daemon that is ready to run. `close` it when it has run."""

    daemon: Daemon
    ledger: Ledger
    cache: LiveCache
    _closing: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        self._closing.close()


def started(
    config: TunerConfig,
    directory: Path,
    environ: Mapping[str, str],
    told: Told = lambda _ticked, _seconds: None,
    clocks: Clocks = Clocks(),
    stream: KeyStream | None = None,
) -> Started:
    """directory: what relative paths start from. told: see Daemon. stream: of keys, of a cache in this very process, in
    place of the one that the settings name.

    Raises InputError for settings that cannot be or that the cache is at odds with, CacheUnavailable where the gateway
    does not answer, and LedgerUnavailable.
    """
    seconds = config.control_seconds
    with ExitStack() as closing:
        cache = live_cache(config, environ)
        closing.callback(cache.close)
        knobs = cache.knob_space()
        require_offered(config.cache.policies, cache.eviction_policies())
        ledger = open_ledger(config.control.ledger, directory)
        closing.callback(ledger.close)
        tracking = config.tracking
        registry = Registry(tracking.resolved_uri(directory), tracking.experiment, tracking.model)
        policies = RegistryPolicies(registry, knobs, seconds, config.cache.policies)
        state = ledger.state(cache.name)
        stream = _stream(config, environ, closing, clocks.unix()) if stream is None else stream
        keys = None if stream is None else _keys(config, stream, policies, state, clocks.unix())
        watch = LiveWatch(_signals(config, environ, clocks), keys)
        watch.start()
        closing.callback(watch.stop)
        lease_seconds = config.control.lease_intervals * seconds
        rules, seen = rules_of(config, knobs, seconds), Overheard(watch)
        loop = ControlLoop(cache, ledger, policies, seen, rules, holder(), lease_seconds)
        page = _metrics_page(config)
        if page is not None:
            closing.callback(page.close)
            told = _both(told, Meter(ledger, page, terms_of(rules), seen).told)
        control = config.control
        pace = Pace(control.poll_seconds, control.refresh_seconds, control.keep_days * DAY_SECONDS)
        daemon = Daemon(loop, policies, watch, pace, clocks, told)
        return Started(daemon, ledger, cache, closing.pop_all())


def require_offered(followed: Sequence[CachePolicy], offered: Sequence[str]) -> None:
    """followed: as `CacheConfig.policies`. offered: as `LiveCache.eviction_policies`. Raises InputError unless the
    first is what the cache was made with and it offers the others; of a cache that does not tell, anything is right."""
    names = list(dict.fromkeys(policy.eviction for policy in followed))
    if offered and names[0] != offered[0]:
        raise InputError(
            f"cache.eviction_policy: got {', '.join(names)}, expected {offered[0]}, or a list that begins with it: the "
            "live cache was made with it, see [tiers.memory] eviction_policy of the gateway"
        )
    missing = [name for name in names if offered and name not in offered]
    if missing:
        raise InputError(
            f"cache.eviction_policy: got {', '.join(missing)}, expected of {', '.join(offered)}: the live cache offers "
            "no other, see [tiers.memory] eviction_policies of the gateway"
        )


def rules_of(config: TunerConfig, knobs: KnobSpace, interval_seconds: float) -> Rules:
    """Raises InputError for a design that a rollout cannot keep to."""
    swaps = config.experiment.swap_every_intervals
    if swaps is not None:
        raise InputError(
            f"experiment.swap_every_intervals: got {swaps}, expected it not to be set: arms that swap are halves, and "
            "a challenger begins with a small share"
        )
    profile = load_profile(config.serving.profile)
    return Rules(
        interval_seconds,
        Mode(config.control.mode),
        knobs,
        LivePrices.of(config.prices, config.constraints, profile, config.serving),
        config.guardrails.within(config.constraints),
        config.rollout,
        lambda name: config.experiment.model_copy(update={"salt": config.experiment.salt or name}),
        RegimeWatch(config.regime, interval_seconds),
    )


def terms_of(rules: Rules) -> MetricTerms:
    objectives = rules.objectives
    return MetricTerms(rules.interval_seconds, objectives.p99_ttft_seconds, objectives.p99_latency_seconds)


def holder() -> str:
    """One of a kind: no two daemons have it at a time, and the same one after another start has another."""
    return f"{socket.gethostname()}:{os.getpid()}:{time.time_ns():x}"


def _metrics_page(config: TunerConfig) -> MetricsPage | None:
    told = config.control
    return None if told.metrics_port is None else MetricsPage(told.cache, told.metrics_host, told.metrics_port)


def _both(first: Told, second: Told) -> Told:
    def told(ticked: Ticked, seconds: float) -> None:
        first(ticked, seconds)
        second(ticked, seconds)

    return told


def _signals(config: TunerConfig, environ: Mapping[str, str], clocks: Clocks) -> ReadAhead | None:
    told = config.signals
    if told.prometheus is None:
        return None
    source = prometheus_signals(told, told.token(environ))
    return ReadAhead(source, frozenset(source.asked), min(config.control_seconds / 4.0, 15.0), clocks.unix)


def _stream(
    config: TunerConfig, environ: Mapping[str, str], closing: ExitStack, now_seconds: float
) -> KeyStream | None:
    """The source that the settings name, from where the past begins on."""
    told = config.keys
    since = now_seconds - told.past_intervals * config.control_seconds
    url = told.stream or secret(told.stream_env, "keys.stream_env", environ)
    if url is not None:
        keys = RedisKeys(stream_place(url), since, min(PATIENCE_SECONDS, config.control_seconds / 4.0))
        closing.callback(keys.close)
        return keys
    return None if told.folder is None else ParquetKeys(told.folder, since)


def _keys(
    config: TunerConfig,
    stream: KeyStream,
    policies: RegistryPolicies,
    state: ControlState | None,
    now_seconds: float,
) -> KeyWatch:
    """state: where the control loop stands; ticks ask for intervals from there on, and those before are the past."""
    viewpoint = partial(viewpoint_of, policies)
    told, seconds, static = config.keys, config.control_seconds, policies.knobs.default()
    index = int(now_seconds // seconds)
    return KeyWatch(
        stream,
        LiveGhosts(ghost_rules(config), [viewpoint()]),
        seconds,
        now_seconds - told.past_intervals * seconds,
        viewpoint,
        told.settle_seconds,
        Plan(Split(), static, static) if state is None else state.plan,
        index if state is None else max(state.index, index - 1),
    )


def viewpoint_of(policies: RegistryPolicies) -> Viewpoint:
    """Of the champion, or of who is to replace it, or of the operator's settings. What either chooses between is
    followed; a champion that does not choose goes by what is under the cache's own."""
    policy = policies.champion() or policies.challenger()
    if policy is None:
        return Viewpoint(policies.knobs, policies.knobs.default())
    bundle, other = policy.bundle, policies.challenger()
    choices = bundle.choices or (() if other is None else other.bundle.choices)
    return Viewpoint(bundle.knob_space, bundle.reference, tuple(one.eviction for one in choices))


def ghost_rules(config: TunerConfig) -> GhostRules:
    profile = load_profile(config.serving.profile)
    terms = Terms(
        backend_of(profile, config.serving),
        tariff_of(config.prices),
        config.constraints.p99_ttft_seconds,
        float(config.serving.sequence_tokens),
        Expiry[config.cache.expiry.upper()] is Expiry.SINCE_TOUCH,
        config.cache.warmup_candidates,
        config.cache.popularity_decay,
        config.cache.policies,
    )
    told, assume = config.keys, config.trace.assume
    return GhostRules(
        terms,
        config.constraints,
        config.cache.entry_overhead_bytes,
        assume.prompt_tokens,
        assume.bytes_per_token,
        told.rate,
        told.most_keys,
        told.most_requests,
        told.horizon_seconds,
        told.most_arm_keys,
        told.most_arm_requests,
    )
