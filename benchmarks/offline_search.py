"""Tuners that search for one fixed setting by replaying the training traffic, within CPU seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from agents.baselines.simple import Static
from agents.rollout import roll_out
from agents.study import Study
from benchmarks.peers import AskTell, Smac, Tpe
from envs.interval import total_usd, unsafe

MOST_TRIALS = 5_000


@dataclass(frozen=True)
class OfflineResult:
    """trials: settings priced in the time. saving_percent: on the test traffic, against best static."""

    name: str
    cpu_seconds: float
    trials: int
    saving_percent: float
    usd_per_1000: float
    unsafe_per_1000: float


def search(study: Study, cpu_seconds: float, seed: int) -> list[OfflineResult]:
    """Optuna and SMAC3, each for so many seconds of this process."""
    return [
        _search(study, "Optuna TPE", Tpe(seed), cpu_seconds),
        _search(study, "SMAC3", Smac(seed, MOST_TRIALS), cpu_seconds),
    ]


def _search(study: Study, name: str, tuner: AskTell, cpu_seconds: float) -> OfflineResult:
    """Told is the saving on training traffic in percent, less ten for each unsafe interval in 1,000 above the limit."""
    world, knobs, training = study.world, study.world.problem.knobs, study.training
    constraints, home = world.problem.constraints, study.reference.settings
    base = float(study.reference.usd[training.start : training.stop].sum())
    begin, trials = time.process_time(), 0
    while time.process_time() - begin < cpu_seconds and trials < MOST_TRIALS:
        offsets = tuner.ask()
        settings = knobs.settings(np.clip(knobs.positions(home) + offsets, 0.0, 1.0))
        rows = world.replay_static([settings], training.stop)[0, training.start :]
        broken = 1000.0 * float(unsafe(rows, constraints).mean())
        over = max(broken - constraints.max_unsafe_per_1000, 0.0)
        tuner.tell(offsets, 100.0 * (1.0 - float(total_usd(rows).sum()) / base) - 10.0 * over)
        trials += 1
    best = knobs.settings(np.clip(knobs.positions(home) + tuner.best(), 0.0, 1.0))
    rolled = roll_out(study.reference, study.scale, [Static(name, best, home, knobs)], study.test)
    usd, requests = rolled.usd[0].sum(), rolled.rows[0, :, 0].sum()
    return OfflineResult(
        name,
        time.process_time() - begin,
        trials,
        float(100.0 * (1.0 - usd / rolled.reference_usd.sum())),
        float(1000.0 * usd / requests),
        float(1000.0 * unsafe(rolled.rows[0], constraints).mean()),
    )
