"""Tuners of other people, as control policies that learn on live traffic: what they ask for is tried for a while, and
what it saved against the reference is told back."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
import optuna
from ConfigSpace import Configuration, ConfigurationSpace, Float
from numpy.typing import NDArray
from smac import HyperparameterOptimizationFacade, Scenario
from smac.runhistory.dataclasses import TrialInfo, TrialValue

from agents.baselines.simple import KNOWN_SAVING, SAVING
from agents.policy import Sight
from benchmarks.harness import ROOT

FloatArray = NDArray[np.float64]
NAMES = ("cache_size", "ttl_seconds", "warmup_ratio")
DWELL = 6  # intervals that one trial lasts; the first half is for getting there and is not counted
FITS = 10  # forests that SMAC grows over a budget; each takes about as long as all the trials between two of them
SCRATCH = ROOT / "out" / "benchmarks" / "smac"


class AskTell(Protocol):
    """Searches offsets from the reference, each in [-1, 1]."""

    def ask(self) -> FloatArray:
        """What to try next, shape (3,)."""

    def tell(self, offsets: FloatArray, saving: float) -> None:
        """What it saved, more being better."""

    def best(self) -> FloatArray:
        """What to keep when the budget is spent."""


class Tpe:
    """Optuna's tree-structured Parzen estimator."""

    def __init__(self, seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        self._study.enqueue_trial(dict.fromkeys(NAMES, 0.0))
        self._open: list[tuple[FloatArray, optuna.Trial]] = []

    def ask(self) -> FloatArray:
        trial = self._study.ask()
        offsets = np.array([trial.suggest_float(name, -1.0, 1.0) for name in NAMES])
        self._open.append((offsets, trial))
        return offsets

    def tell(self, offsets: FloatArray, saving: float) -> None:
        trial = next(trial for asked, trial in self._open if asked is offsets)
        self._open = [(asked, other) for asked, other in self._open if asked is not offsets]
        self._study.tell(trial, saving)

    def best(self) -> FloatArray:
        return np.array([self._study.best_params[name] for name in NAMES])


class Smac:
    """SMAC3: Bayesian optimisation with a random forest."""

    def __init__(self, seed: int, trials: int) -> None:
        space = ConfigurationSpace(seed=seed)
        space.add(*(Float(name, (-1.0, 1.0), default=0.0) for name in NAMES))
        scenario = Scenario(
            space,
            deterministic=True,
            n_trials=trials,
            seed=seed,
            output_directory=SCRATCH / f"{os.getpid()}-{seed}-{trials}",  # others may run beside it
        )
        facade = HyperparameterOptimizationFacade
        self._facade = facade(
            scenario,
            _told_from_outside,
            initial_design=facade.get_initial_design(scenario, max_ratio=0.25),
            config_selector=facade.get_config_selector(scenario, retrain_after=max(trials // FITS, 1)),
            overwrite=True,
            logging_level=False,
        )
        self._told: list[tuple[float, FloatArray]] = []
        self._asked: TrialInfo | None = None

    def ask(self) -> FloatArray:
        self._asked = self._facade.ask()
        return self._offsets(self._asked.config)

    def tell(self, offsets: FloatArray, saving: float) -> None:
        assert self._asked is not None
        self._facade.tell(self._asked, TrialValue(cost=-saving))
        self._told.append((saving, offsets))

    def best(self) -> FloatArray:
        return max(self._told, key=lambda one: one[0])[1]

    @staticmethod
    def _offsets(config: Configuration) -> FloatArray:
        return np.array([float(config[name]) for name in NAMES])


def _told_from_outside(config: Configuration, seed: int = 0) -> float:
    raise NotImplementedError("what a setting saves is told, not called for")


class BanditGradient:
    """The gradient step that OPPerTune takes for numeric settings, written from the paper (Somashekar et al., NSDI '24,
    after Karthikeyan et al., SelfTune, NSDI '23): try the centre plus a random direction, move the centre along it in
    proportion to what that brought more than is usual (one-point bandit feedback, Flaxman et al., SODA '05)."""

    def __init__(self, seed: int, radius: float = 0.1, rate: float = 0.02) -> None:
        self._rng = np.random.default_rng(seed)
        self._radius, self._rate = radius, rate
        self._centre, self._direction, self._usual = np.zeros(3), np.zeros(3), 0.0
        self._rounds = 0

    def ask(self) -> FloatArray:
        direction = self._rng.normal(size=3)
        self._direction = direction / np.linalg.norm(direction)
        return np.clip(self._centre + self._radius * self._direction, -1.0, 1.0)

    def tell(self, offsets: FloatArray, saving: float) -> None:
        self._rounds += 1
        self._usual += (saving - self._usual) / min(self._rounds, 10)
        gradient = 3.0 / self._radius * (saving - self._usual) * self._direction
        self._centre = np.clip(self._centre + self._rate * self._radius * gradient, -1.0, 1.0)

    def best(self) -> FloatArray:
        return self._centre.copy()


class LiveTuner:
    """A tuner on live traffic. While `learning`, each of its wishes is held for DWELL intervals; then its best is."""

    def __init__(self, name: str, tuner: AskTell) -> None:
        self.name, self.tuner, self.learning = name, tuner, True
        self._wish: FloatArray | None = None
        self._held, self._seen = 0, list[float]()

    def reset(self, seed: int) -> None:
        """What was learned stays: a tuner is told apart by its own seed."""

    def act(self, sight: Sight) -> FloatArray:
        if not self.learning:
            return self.tuner.best()
        if self._wish is not None and sight.observation[KNOWN_SAVING] and self._held > DWELL // 2:
            self._seen.append(float(sight.observation[SAVING]))
        if self._wish is None or self._held >= DWELL:
            self._next()
        self._held += 1
        assert self._wish is not None
        return self._wish

    def _next(self) -> None:
        if self._wish is not None and self._seen:
            self.tuner.tell(self._wish, float(np.mean(self._seen)))
            self._wish = None
        if self._wish is None:
            self._wish = self.tuner.ask()
        self._held, self._seen = 0, []


def live_tuners(seed: int, intervals: int) -> list[LiveTuner]:
    """One of each, for a budget of so many live intervals."""
    return [
        LiveTuner("Optuna TPE", Tpe(seed)),
        LiveTuner("SMAC3", Smac(seed, max(intervals // DWELL, FITS))),
        LiveTuner("OPPerTune's gradient", BanditGradient(seed)),
    ]
