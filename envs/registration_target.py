"""What `gymnasium.make` and `gymnasium.make_vec` build: on your study, or on small built-in ones to try things out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from caches.errors import InputError
from caches.knobs import Knob, KnobSpace
from envs.control import Episodes, observation_scale
from envs.observation import ObservationScale
from envs.prefix import PrefixConfig
from envs.replay_env import ReplayCacheEnv
from envs.reward import Constraints, Prices
from envs.serving import Serving, load_profile
from envs.units import GIB
from envs.vector_env import ReplayVectorEnv
from envs.world import Problem, Reference, World
from traces.synthetic.generate import synthesise
from traces.synthetic.parts import Drift, Popularity, Rate, Sessions, SyntheticWorkload

SEED = 0
INTERVAL_SECONDS = 900.0


@dataclass(frozen=True)
class Scenario:
    """What an environment runs on. scale: from training traffic (envs.control.observation_scale). episodes: starts must
    be marked in the reference."""

    reference: Reference
    scale: ObservationScale
    episodes: Episodes


def make_replay_cache(scenario: Scenario | None = None, variant: str = "response") -> ReplayCacheEnv:
    """Without a scenario a built-in one of the variant: three days of synthetic traffic, a quarter of an hour a step,
    one day an episode, the knobs' defaults as reference. variant: `response` or `prefix`; a scenario goes before it."""
    at = built_in(variant) if scenario is None else scenario
    return ReplayCacheEnv(at.reference, at.scale, at.episodes)


def make_replay_lanes(
    num_envs: int = 1, scenario: Scenario | None = None, seed: int = 0, variant: str = "response"
) -> ReplayVectorEnv:
    """The same, many lanes in one call. seed: of the starts until `reset` is given one."""
    at = built_in(variant) if scenario is None else scenario
    return ReplayVectorEnv(at.reference, at.scale, at.episodes, num_envs, seed)


@cache
def built_in(variant: str = "response") -> Scenario:
    """Drawn and replayed once per process; the same everywhere. InputError for an unknown variant."""
    if variant not in VARIANTS:
        raise InputError(f"variant: got {variant!r}, expected one of {', '.join(VARIANTS)}")
    problem = VARIANTS[variant]()
    world = World(problem)
    part = range(len(world))
    episodes = Episodes.over(part, 96, 8)
    reference = Reference(world, problem.knobs.default(), episodes.starts)
    return Scenario(reference, observation_scale(world, reference, part), episodes)


def _responses() -> Problem:
    """A drifting catalogue before two sequences of a GPU."""
    workload = SyntheticWorkload(
        days=3.0,
        popularity=Popularity(num_keys=3_000),
        rate=Rate(mean_rps=0.2, weekend_factor=1.0),
        drift=Drift(0.05),
    )
    knobs = KnobSpace(
        Knob("cache_size", "bytes", 1e4, 1e7, 1e6, 0.1, "log"),
        Knob("ttl_seconds", "seconds", 10.0, 604_800.0, 3_600.0, 0.1, "log"),
        Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear"),
    )
    trace, profile = synthesise(workload, SEED, "built-in"), load_profile("qwen2.5-7b-a100")
    return Problem(trace, INTERVAL_SECONDS, knobs, Prices(), Constraints(), profile, Serving(max_sequences=2))


def _prompts() -> Problem:
    """Conversations whose prompts grow turn by turn, blocks kept in the host's memory above a small SSD."""
    workload = SyntheticWorkload(
        days=3.0, popularity=Popularity(num_keys=100), rate=Rate(mean_rps=0.02), sessions=Sessions(share=0.99)
    )
    knobs = KnobSpace(
        Knob("cache_size", "bytes", GIB / 64, 16 * GIB, GIB, 0.1, "log"),
        Knob("ttl_seconds", "seconds", 10.0, 86_400.0, 3_600.0, 0.1, "log"),
        Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear"),
    )
    trace, profile = synthesise(workload, SEED, "built-in"), load_profile("qwen2.5-7b-a100")
    where = PrefixConfig(below_gib=16.0)
    return Problem(trace, INTERVAL_SECONDS, knobs, Prices(), Constraints(), profile, Serving(), prefix=where)


VARIANTS: dict[str, Callable[[], Problem]] = {"response": _responses, "prefix": _prompts}
