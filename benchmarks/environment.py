"""Speed of the vectorised environment, serving model included and policy network excluded; and where its time goes."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.study import Study, open_study
from benchmarks.harness import Benchmark, Cell, Goal, Report, Table, at_least, main, say, seconds_of
from benchmarks.workloads import TWITTER, ZIPF_FACTS, first, stretched, twitter_trace, zipf_trace
from envs.lanes import Crew, Lanes, Scene
from envs.serving import quantiles, serve
from envs.world import World
from traces.trace import Trace
from tuner.config import TunerConfig
from tuner.problem import problem_of, split_of

Array = NDArray[Any]

REQUESTS_PER_INTERVAL, INTERVAL_SECONDS = 1_000, 300.0
THREADS = 2
LANES = (16, 64, 256)
PROFILED_LANES = 64
GOAL = 30_000
ROUNDS = 3


def study_of(trace: Trace, threads: int) -> Study:
    """Default settings and prices; the reference is the default setting (nothing is fitted: speed is the subject)."""
    config = TunerConfig()
    problem = problem_of(config, stretched(trace, INTERVAL_SECONDS * len(trace) / REQUESTS_PER_INTERVAL))
    world = World(problem, threads)
    return open_study(world, split_of(config), problem.knobs.default(), config.ppo.horizon, config.ppo.starts)


def traces(quick: bool) -> list[tuple[str, Trace]]:
    requests = 60_000 if quick else 1_000_000
    found = [("Zipf", first(zipf_trace(requests), requests))]
    if not quick:
        twitter = twitter_trace(requests)
        found += [] if twitter is None else [("Twitter", twitter)]
    return found


def actions_of(kind: str, lanes: int, seed: int) -> NDArray[np.float32]:
    if kind == "zero":
        return np.zeros((lanes, 3), np.float32)
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (lanes, 3)).astype(np.float32)


def steps_per_second(study: Study, lanes: int, kind: str, total: int) -> float:
    """Interval-steps of all lanes together, resets of ended episodes included."""
    env = study.environment(lanes, 0)
    env.reset(seed=0)
    steps = max(total // lanes, 1)
    actions = [actions_of(kind, lanes, seed) for seed in range(16)]
    env.step(actions[0])  # compiles

    def run() -> None:
        for step in range(steps):
            env.step(actions[step % len(actions)])

    return steps * lanes / statistics.median(seconds_of(run) for _ in range(ROUNDS))


class TimedCrew(Crew):
    """One thread that adds up how long the kernels run."""

    def __init__(self) -> None:
        super().__init__(1)
        self.seconds = 0.0

    def share(self, work: Callable[[tuple[int, int]], None], lanes: int) -> None:
        self.seconds += seconds_of(lambda: work((0, lanes)))


def where_time_goes(study: Study, lanes: int, steps: int) -> list[float]:
    """Microseconds per interval-step under random actions on one thread: replay, serving, observation, the rest.

    Serving is run once more on its own after each step, on the same misses and a copy of the slots; replay is what then
    remains of the kernels' time.
    """
    env, scene = study.environment(lanes, 0), study.world.scene
    env.reset(seed=0)
    env.step(actions_of("random", lanes, 0))
    control, crew = env.control, TimedCrew()
    study.world.crew = crew
    step, serving, observation, into = 0.0, 0.0, 0.0, np.empty(6)
    serve_all(scene, control.lanes, control.lanes.slots.copy(), control.rows, into)  # compiles
    for seed in range(steps):
        actions = actions_of("random", lanes, seed)
        step += seconds_of(lambda a=actions: env.step(a))  # type: ignore[misc]
        slots = control.lanes.slots.copy()
        serving += seconds_of(lambda s=slots: serve_all(scene, control.lanes, s, control.rows, into))  # type: ignore[misc]
        observation += seconds_of(control.observe)
    parts = [crew.seconds - serving, serving, observation]
    return [1e6 * part / (steps * lanes) for part in (*parts, step - sum(parts))]


@njit(nogil=True)  # not cached: the cache would not notice that the serving model changed
def serve_all(scene: Scene, lanes: Lanes, slots: Array, rows: Array, into: Array) -> None:
    """The serving model's part of envs.lanes.run_interval, on what the last step left in the lanes."""
    for lane in range(rows.shape[0]):
        hits = int(rows[lane, 1])
        misses = int(rows[lane, 0]) - hits
        delays = (lanes.ttft[lane], lanes.latency[lane])
        used = lanes.slots_used[lane]
        missed = lanes.missed[lane, :misses]
        serve(scene.backend, scene.load, missed, slots[lane, : used + 1], scene.objective, delays)
        quantiles(delays[0][:misses], hits, scene.backend.hit_seconds, into[:3])
        quantiles(delays[1][:misses], hits, scene.backend.hit_seconds, into[3:])


def measure(quick: bool) -> Report:
    facts = [
        f"{THREADS} threads. Lanes start at random places of the training traffic; serving model included, no policy "
        "network. Zero actions hold the reference, random ones are uniform over all actions and drawn beforehand.",
        f"Default settings and prices, reference: the default setting. Arrivals are stretched so that "
        f"{INTERVAL_SECONDS:g} s hold {REQUESTS_PER_INTERVAL:,} requests on average.",
        ZIPF_FACTS,
    ]
    rows: list[list[Cell]] = []
    shares: list[list[Cell]] = []
    goals: list[Goal] = []
    for name, trace in traces(quick):
        facts.append(f"{name}: {len(trace):,} requests, {trace.num_keys:,} keys.")
        study = study_of(trace, THREADS)
        slowest = float("inf")
        for lanes in LANES[:1] if quick else LANES:
            say(f"{name}: {lanes} lanes")
            rates = [steps_per_second(study, lanes, kind, 200 if quick else 40_000) for kind in ("zero", "random")]
            rows.append([name, lanes, *rates])
            slowest = min(slowest, *rates)
        goals.append(at_least(f"{name}, the slowest of these", GOAL, slowest, "interval-steps/s"))
        alone = study_of(trace, 1)
        shares.append([name, *where_time_goes(alone, PROFILED_LANES, 10 if quick else 200)])
    if len(goals) == 1:
        why = "left out of a quick run" if quick else f"no {TWITTER.name} beside the repository"
        goals.append(Goal("Twitter: the same", why, None))
    tables = [
        Table("Interval-steps per second", ("trace", "lanes", "zero actions", "random actions"), rows),
        Table(
            f"Where the time goes, µs per interval-step (one thread, {PROFILED_LANES} lanes, random actions)",
            ("trace", "replay and counting", "serving", "observation", "the rest"),
            shares,
        ),
    ]
    return Report(facts, tables, goals)


BENCHMARK = Benchmark("environment", "Environment", ("numpy", "numba", "gymnasium"), measure)

if __name__ == "__main__":
    main(BENCHMARK)
