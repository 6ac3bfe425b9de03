"""Everything around a tuning daemon, for real and on free ports of the loopback: a backend without a model, a gateway
that is tuned, Redis, Prometheus, and a registry with a champion and a challenger made by hand."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from agents.baselines.schedule import HourSchedule
from agents.bundle import PolicyBundle
from agents.provenance import Provenance, TracePart
from agents.registry import Registry
from agents.rules import arrays_of
from benchmarks.fault_daemons import Nursery
from benchmarks.fault_servers import Server, answers, answers_ping
from benchmarks.fault_traffic import Settings, Traffic
from benchmarks.processes import free_port
from caches.knobs import KnobSettings, KnobSpace
from envs.observation import ObservationScale
from tuner.config import TunerConfig

CACHE = "gateway"
SETPOINT = str(Path(sys.executable).with_name("setpoint"))
SCALE = ObservationScale(300.0, 4.5, 11.0, 700.0, 150.0, 0.02, 2.0, 0.05, True, False)
PROVENANCE = Provenance(
    tuple(
        TracePart("by hand", "ab" * 32, use, first, first + 10)  # type: ignore[arg-type]
        for use, first in (("train", 0), ("validation", 10), ("test", 20))
    )
)
GATEWAY = """
[gateway]
upstream = "{backend}"
port = {port}

[tiers.memory]
cache_size = 262_144
lowest_cache_size = 65_536
highest_cache_size = 1_048_576
ttl_seconds = 600.0
lowest_ttl_seconds = 10.0
highest_ttl_seconds = 86_400.0

[tiers.disk]
enabled = false

[tiers.semantic]
enabled = false

[tiers.redis]
url = "redis://127.0.0.1:{redis}/0"
cache_size = 16_777_216

[tuning]
enabled = true

[access_log]
place = "redis://127.0.0.1:{redis}/0?stream=asked"
"""
PROMETHEUS = """
global: {{scrape_interval: 500ms}}
scrape_configs:
  - {{job_name: gateway, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}
"""
ROLLOUT = {
    "shares": [0.2, 0.5, 1.0],
    "step_intervals": [2, 2, 1],
    "settle_intervals": 0,
    "shadow_intervals": 1,
    "cool_down_intervals": 1,
}
# nothing is so certain in minutes that it would end an experiment early: each goes its way and begins anew
EXPERIMENT = {
    "lead_in_intervals": 1,
    "washout_intervals": 0,
    "min_intervals": 2,
    "max_intervals": 12,
    "min_requests": 1,
    "margins": dict.fromkeys(("slow_ttft_ratio", "slow_latency_ratio", "error_ratio", "stale_ratio")),
}


@dataclass
class World:
    """folder: of all that is kept. settings: of a daemon, as TOML has them. interval_seconds: of control."""

    folder: Path
    interval_seconds: float
    backend: Server
    gateway: Server
    redis: Server
    prometheus: Server
    gateway_url: str
    redis_port: int
    prometheus_url: str
    registry: Registry
    nursery: Nursery
    traffic: Traffic
    looked: Settings

    @property
    def ledger(self) -> Path:
        return self.folder / "setpoint.db"

    def settings(self, **sections: Mapping[str, object]) -> dict[str, dict[str, object]]:
        """sections: over those of every daemon here, key by key."""
        told: dict[str, dict[str, object]] = {
            "control": {
                "gateway": self.gateway_url,
                "cache": CACHE,
                "ledger": f"sqlite:///{self.ledger}",
                "interval_seconds": self.interval_seconds,
                "mode": "canary",
                "poll_seconds": 0.05,
                "lease_intervals": 1.0,
                "refresh_seconds": 2.0,
                "timeout_seconds": 10.0,
            },
            "keys": {
                "stream": f"redis://127.0.0.1:{self.redis_port}/0?stream=asked",
                "settle_seconds": 0.1,
                "past_intervals": 5,  # daemons begin again and again
            },
            "signals": {"prometheus": self.prometheus_url, "window_seconds": 5.0, "max_age_seconds": 10.0},
            "tracking": {"uri": self.registry_uri},
            "guardrails": {"least_requests": 2, "p99_ttft_seconds": 60.0, "stale_ratio": 1.0},
            "rollout": ROLLOUT,
            "experiment": EXPERIMENT,
        }
        return {name: told.get(name, {}) | dict(sections.get(name, {})) for name in {*told, *sections}}

    def config(self, **sections: Mapping[str, object]) -> TunerConfig:
        return TunerConfig.model_validate(self.settings(**sections))

    @property
    def registry_uri(self) -> str:
        return f"sqlite:///{self.folder / 'mlflow.db'}"


@contextmanager
def world_running(folder: Path, interval_seconds: float = 1.0, store: Path | None = None) -> Iterator[World]:
    """With traffic, and no daemon yet. folder: empty. store: an MLflow database in which nothing is registered, to be
    copied: making one takes seconds. RuntimeError where a server does not start."""
    ports = {name: free_port() for name in ("backend", "gateway", "redis", "prometheus")}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    servers = _servers(folder, ports, urls)
    with ExitStack() as stack:
        nursery = Nursery(folder)
        stack.callback(nursery.end)
        for server in servers.values():
            stack.callback(server.end)
            server.begin()
        if store is not None:
            shutil.copy(store, folder / "mlflow.db")
        told = TunerConfig().tracking
        registry = Registry(f"sqlite:///{folder / 'mlflow.db'}", told.experiment, told.model)
        for server in servers.values():
            server.wait()
        looked = Settings(urls["gateway"])
        stack.callback(looked.stop)
        registered(registry, folder, looked.space, interval_seconds)
        traffic = Traffic(urls["gateway"])
        stack.callback(traffic.stop)
        world = World(
            folder,
            interval_seconds,
            **servers,
            gateway_url=urls["gateway"],
            redis_port=ports["redis"],
            prometheus_url=urls["prometheus"],
            registry=registry,
            nursery=nursery,
            traffic=traffic,
            looked=looked,
        )
        nursery.warm_up(world.settings())
        yield world


def registered(registry: Registry, folder: Path, space: KnobSpace, interval_seconds: float) -> None:
    """A champion that wants the largest cache, and a challenger that wants a small one and a short lifetime, both step
    by step, so that settings go on changing."""
    size, ttl = space.cache_size, space.ttl_seconds
    wants = (
        ("champion", KnobSettings(size.high, ttl.default, 0.0)),
        ("challenger", KnobSettings(2.0 * size.low, 4.0 * ttl.low, 0.0)),
    )
    for name, wanted in wants:
        place = folder / name
        bundle_of(space, wanted, interval_seconds).save(place)
        with registry.start_run(name, {}) as run:
            version = registry.register(place, run, {})
        if name == "champion":
            registry.swap_champion(version, None)
        else:
            registry.set_challenger(version)


def bundle_of(space: KnobSpace, wanted: KnobSettings, interval_seconds: float) -> PolicyBundle:
    """A policy that wants the same settings at all times."""
    home = space.default()
    rule = HourSchedule(space.positions(home), np.asarray(space.positions(wanted))[None])
    scale = replace(SCALE, interval_seconds=interval_seconds)
    return PolicyBundle("schedule", space, home, PROVENANCE, scale=scale, weights=arrays_of(rule))


def _servers(folder: Path, ports: Mapping[str, int], urls: Mapping[str, str]) -> dict[str, Server]:
    text = GATEWAY.format(backend=urls["backend"], port=ports["gateway"], redis=ports["redis"])
    (folder / "gateway.toml").write_text(text, encoding="utf-8")
    (folder / "prometheus.yml").write_text(PROMETHEUS.format(port=ports["gateway"]), encoding="utf-8")
    kept_nowhere = ("--save", "", "--appendonly", "no", "--dir", str(folder))
    redis = ("redis-server", "--bind", "127.0.0.1", "--port", str(ports["redis"]), *kept_nowhere)
    prometheus = (
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{ports['prometheus']}",
    )
    emulate = (SETPOINT, "emulate", "--port", str(ports["backend"]), "--speed", "1000")
    serve = (SETPOINT, "serve", "--config", str(folder / "gateway.toml"))
    return {
        "redis": Server(redis, folder / "redis.log", lambda: answers_ping(ports["redis"])),
        "backend": Server(emulate, folder / "backend.log", lambda: answers(f"{urls['backend']}/healthz")),
        "prometheus": Server(prometheus, folder / "prometheus.log", lambda: answers(f"{urls['prometheus']}/-/ready")),
        "gateway": Server(serve, folder / "gateway.log", lambda: answers(f"{urls['gateway']}/readyz")),
    }
