"""What `gymnasium.make` and `gymnasium.make_vec` build: on your study, or on a small built-in one to try things out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from caches.knobs import Knob, KnobSpace
from envs.control import Episodes, observation_scale
from envs.observation import ObservationScale
from envs.replay_env import ReplayCacheEnv
from envs.reward import Constraints, Prices
from envs.serving import Serving, load_profile
from envs.vector_env import ReplayVectorEnv
from envs.world import Problem, Reference, World
from traces.synthetic.generate import synthesise
from traces.synthetic.parts import Drift, Popularity, Rate, SyntheticWorkload

SEED = 0
INTERVAL_SECONDS = 900.0


@dataclass(frozen=True)
class Scenario:
    """What an environment runs on. scale: from training traffic (envs.control.observation_scale). episodes: starts must
    be marked in the reference."""

    reference: Reference
    scale: ObservationScale
    episodes: Episodes


def make_replay_cache(scenario: Scenario | None = None) -> ReplayCacheEnv:
    """Without a scenario the built-in one: three days of drifting synthetic traffic, a quarter of an hour a step, one
    day an episode, the knobs' defaults as reference."""
    at = built_in() if scenario is None else scenario
    return ReplayCacheEnv(at.reference, at.scale, at.episodes)


def make_replay_lanes(num_envs: int = 1, scenario: Scenario | None = None, seed: int = 0) -> ReplayVectorEnv:
    """The same, many lanes in one call. seed: of the starts until `reset` is given one."""
    at = built_in() if scenario is None else scenario
    return ReplayVectorEnv(at.reference, at.scale, at.episodes, num_envs, seed)


@cache
def built_in() -> Scenario:
    """Drawn and replayed once per process; the same everywhere."""
    workload = SyntheticWorkload(
        days=3.0,
        popularity=Popularity(num_keys=3_000),
        rate=Rate(mean_rps=0.2, weekend_factor=1.0),
        drift=Drift(0.05),
    )
    trace = synthesise(workload, SEED, "built-in")
    knobs = KnobSpace(
        Knob("cache_size", "bytes", 1e4, 1e7, 1e6, 0.1, "log"),
        Knob("ttl_seconds", "seconds", 10.0, 604_800.0, 3_600.0, 0.1, "log"),
        Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear"),
    )
    profile = load_profile("qwen2.5-7b-a100")
    world = World(Problem(trace, INTERVAL_SECONDS, knobs, Prices(), Constraints(), profile, Serving(max_sequences=2)))
    part = range(len(world))
    episodes = Episodes.over(part, 96, 8)
    reference = Reference(world, knobs.default(), episodes.starts)
    return Scenario(reference, observation_scale(world, reference, part), episodes)
