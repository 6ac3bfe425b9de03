"""PPO: a million interval-steps, one update with the published preset, and one decision at serving time."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.actor import Actor
from agents.ppo import Trained, build, train
from agents.ppo_config import PPOConfig, preset
from agents.study import Study
from benchmarks.environment import INTERVAL_SECONDS, REQUESTS_PER_INTERVAL, THREADS, study_of
from benchmarks.harness import Benchmark, Cell, Goal, Report, Table, at_most, main, say, seconds_of
from benchmarks.workloads import ZIPF_FACTS, first, zipf_trace
from envs.observation import SIZE
from envs.vector_env import ReplayVectorEnv

Array = NDArray[Any]

STEPS, REQUESTS = 1_000_000, 1_000_000
TRAINING_SECONDS, UPDATE_SECONDS, DECISION_SECONDS = 180.0, 0.8, 0.001  # goals
NEVER = 1_000_000  # looks without improvement before stopping: all steps are to be run


class TimedEnv(ReplayVectorEnv):
    """Notes when each step begins and ends."""

    moments: list[tuple[float, float]]

    def step(
        self, actions: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], Array, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        began = time.perf_counter()
        result = super().step(actions)
        self.moments.append((began, time.perf_counter()))
        return result


def timed_env(study: Study, lanes: int) -> TimedEnv:
    env = TimedEnv(study.reference, study.scale, study.episodes, lanes, 0)
    env.moments = []
    return env


def training(study: Study, config: PPOConfig) -> tuple[Trained, float, dict[str, float]]:
    """The trained policy, wall seconds, and the seconds of each part."""
    env = timed_env(study, config.lanes)
    began = time.perf_counter()
    trained = train(study.reference, study.scale, env, study.validation, config, 0)
    return trained, time.perf_counter() - began, parts_of(env.moments, config, time.perf_counter() - began)


def parts_of(moments: list[tuple[float, float]], config: PPOConfig, wall: float) -> dict[str, float]:
    """A pause between two steps is the learner's: deciding within a rollout, updating between two of them, where every
    `evaluate_every`-th holds a look at validation traffic too."""
    begins, ends = np.array(moments).T
    pauses = begins[1:] - ends[:-1]
    between = np.arange(1, len(begins)) % config.steps_per_update == 0
    updates = pauses[between]
    looks = np.arange(1, len(updates) + 1) % config.evaluate_every == 0
    plain = float(np.median(updates[~looks])) if (~looks).any() else 0.0
    looking = float(np.clip(updates[looks] - plain, 0.0, None).sum())
    parts = {
        "environment": float((ends - begins).sum()),
        "decisions of the learner": float(pauses[~between].sum()),
        "updates": float(updates.sum()) - looking,
        "looks at validation traffic": looking,
    }
    return parts | {"start, last update and last look": wall - sum(parts.values())}


def one_update(study: Study, config: PPOConfig, rounds: int) -> tuple[list[float], list[float]]:
    """Wall and CPU seconds of single updates over one rollout of `lanes` x `steps_per_update` samples."""
    model = build(study.environment(config.lanes, 0), config, 0)
    model.learn(config.lanes * config.steps_per_update)
    wall, processor = [], []
    for _ in range(rounds):
        began = time.process_time()
        wall.append(seconds_of(model.train))
        processor.append(time.process_time() - began)
    return wall, processor


def decision_seconds(actor: Actor, count: int) -> Array:
    observations = np.random.default_rng(0).uniform(-1.0, 1.0, (count, SIZE)).astype(np.float32)
    return np.array([seconds_of(lambda seen=seen: actor.act(seen)) for seen in observations])  # type: ignore[misc]


def measure(quick: bool) -> Report:
    requests, steps = (60_000, 4_096) if quick else (REQUESTS, STEPS)
    study = study_of(first(zipf_trace(requests), requests), THREADS)
    config = PPOConfig(total_steps=steps, patience=NEVER)
    say(f"training, {steps:,} steps")
    trained, wall, parts = training(study, config)
    say("single updates and decisions")
    update, processor = one_update(study, preset("seed"), 3 if quick else 20)
    decisions = decision_seconds(trained.actor, 500 if quick else 10_000)
    p50, p99 = np.quantile(decisions, (0.5, 0.99))
    facts = [
        f"{ZIPF_FACTS} {requests:,} requests, {study.world.problem.trace.num_keys:,} keys, stretched so that "
        f"{INTERVAL_SECONDS:g} s hold {REQUESTS_PER_INTERVAL:,} requests on average.",
        f"Default settings, prices and learner: {config.lanes} lanes, {config.steps_per_update} steps per update, a "
        f"look at validation traffic every {config.evaluate_every} updates, no early stop; {THREADS} threads for the "
        "environment, one for the learner.",
    ]
    shares: list[list[Cell]] = [[part, seconds, 100.0 * seconds / wall] for part, seconds in parts.items()]
    timings: list[list[Cell]] = [
        ["one update, preset seed, wall", 1e3 * statistics.median(update), 1e3 * max(update)],
        ["one update, preset seed, CPU", 1e3 * statistics.median(processor), 1e3 * max(processor)],
    ]
    tables = [
        Table(f"{steps:,} steps in {wall:.0f} s, {steps / wall:,.0f} steps/s", ("part", "s", "%"), shares),
        Table("One update, ms", ("what", "median", "largest"), timings),
        Table("One decision in numpy, µs", ("P50", "P99"), [[1e6 * float(p50), 1e6 * float(p99)]]),
    ]
    return Report(facts, tables, goals_of(wall, max(update), float(p99)))


def goals_of(wall: float, update: float, decision: float) -> list[Goal]:
    return [
        at_most(f"{STEPS:,} steps of PPO", TRAINING_SECONDS, wall, "s"),
        at_most("one update, preset seed, the slowest", 1e3 * UPDATE_SECONDS, 1e3 * update, "ms"),
        at_most("one decision, P99", 1e3 * DECISION_SECONDS, 1e3 * decision, "ms"),
    ]


BENCHMARK = Benchmark("training", "Training", ("numpy", "numba", "torch", "stable-baselines3"), measure)

if __name__ == "__main__":
    main(BENCHMARK)
