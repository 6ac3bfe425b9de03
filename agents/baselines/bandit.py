"""A contextual bandit over a few settings around the reference, by Vowpal Wabbit (the extra `bandit`)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.baselines.fitting import choose
from agents.baselines.simple import KNOWN_SAVING, SAVING
from agents.policy import Sight
from agents.rollout import roll_out
from agents.study import Study
from caches.errors import InputError
from envs.ghosts import GhostGrid
from envs.observation import names

try:
    from vowpalwabbit import Workspace
except ImportError:
    Workspace = None

FloatArray = NDArray[np.float64]

FEATURES = tuple(f"{name}:" for name in names())


@dataclass(frozen=True)
class Bandit:
    """offset: how far from the reference the other settings lie, in share of a knob's range, each knob moved alone.
    hold: intervals for which a choice is kept; its cost is the mean over them. epsilon: share of choices made at
    random. learning_rate: of Vowpal Wabbit."""

    offset: float = 0.1
    hold: int = 6
    epsilon: float = 0.1
    learning_rate: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 < self.offset <= 1.0:
            raise InputError(f"offset: got {self.offset}, expected in (0, 1]")
        if self.hold < 1:
            raise InputError(f"hold: got {self.hold}, expected at least 1 interval")
        if not 0.0 <= self.epsilon <= 1.0:
            raise InputError(f"epsilon: got {self.epsilon}, expected in [0, 1]")
        if not self.learning_rate > 0.0:
            raise InputError(f"learning_rate: got {self.learning_rate}, expected above 0")


@dataclass(frozen=True)
class Experience:
    """A choice and what came of it. context: the observation as Vowpal Wabbit reads it. cost: saving of the intervals
    it was kept for, mean, negated. probability: with which it was made."""

    context: str
    arm: int
    cost: float
    probability: float


class ContextualBandit:
    """Chooses one of seven wishes (the reference, and each knob a little down or up) by the observation, and learns
    from what it saves.

    Vowpal Wabbit's contextual bandit with action-dependent features: importance-weighted regression of cost on
    observation x wish (A. Bietti, A. Agarwal, J. Langford, A contextual bandit bake-off, Journal of Machine Learning
    Research 22, 2021, as IWR), exploring with probability epsilon. past: what it knows already after a reset. It draws
    with a generator of its own, so that equal seeds repeat.
    """

    name = "contextual bandit"

    def __init__(self, options: Bandit = Bandit(), past: Sequence[Experience] = ()) -> None:
        require_bandit()
        self.options, self.past = options, tuple(past)
        self.wishes = np.vstack((np.zeros(3), options.offset * np.vstack((-np.eye(3), np.eye(3)))))
        self._actions = [f"|a w{index}" for index in range(len(self.wishes))]
        self._learner: Any = None
        self.reset(0)

    def __reduce__(self) -> tuple[Any, ...]:
        """The learner lives outside of Python: what is sent to another process knows its past, as after a reset."""
        return ContextualBandit, (self.options, self.past)

    def reset(self, seed: int) -> None:
        if self._learner is not None:
            self._learner.finish()
        rates = f"--epsilon {self.options.epsilon} -l {self.options.learning_rate}"
        self._learner = Workspace(f"--cb_explore_adf --cb_type mtr {rates} -q oa --quiet --random_seed 1")
        self._random = np.random.default_rng(seed)
        self._choice: tuple[str, int, float] | None = None
        self._savings: list[float] = []
        self._kept = 0
        self.lived: list[Experience] = []
        for experience in self.past:
            self._learn(experience)

    def act(self, sight: Sight) -> FloatArray:
        if self._choice is not None and sight.observation[KNOWN_SAVING]:
            self._savings.append(float(sight.observation[SAVING]))
        if self._choice is None or self._kept >= self.options.hold:
            self._conclude()
            self._choose(context_of(sight.observation))
        assert self._choice is not None
        self._kept += 1
        return np.asarray(self.wishes[self._choice[1]])

    def _conclude(self) -> None:
        """What was kept and measured is learnt from; a choice of which no interval is known is not."""
        if self._choice is not None and self._savings:
            context, arm, probability = self._choice
            experience = Experience(context, arm, -float(np.mean(self._savings)), probability)
            self.lived.append(experience)
            self._learn(experience)
        self._savings, self._kept = [], 0

    def _choose(self, context: str) -> None:
        chances = np.array(self._learner.predict([context, *self._actions]), np.float64)
        arm = int(self._random.choice(len(chances), p=chances / chances.sum()))
        self._choice = (context, arm, float(chances[arm]))

    def _learn(self, one: Experience) -> None:
        actions = list(self._actions)
        actions[one.arm] = f"0:{one.cost:.9g}:{one.probability:.9g} {actions[one.arm]}"
        self._learner.learn([one.context, *actions])


def context_of(observation: NDArray[np.float32]) -> str:
    """The entries that are not zero, by name, as shared features."""
    some = np.flatnonzero(observation)
    return "shared |o " + " ".join(f"{FEATURES[index]}{observation[index]:.6g}" for index in some)


def is_offered() -> bool:
    """Whether the package is there."""
    return Workspace is not None


def require_bandit() -> None:
    """InputError where the package is missing."""
    if Workspace is None:
        raise InputError(
            "contextual bandit: got no package vowpalwabbit, expected it (the extra: pip install 'setpoint[bandit]')"
        )


OFFSETS, HOLDS = (0.03, 0.1), (1, 6)
LATER_EPSILON = 0.02


def fit_bandit(study: Study, grid: GhostGrid, seed: int = 0) -> ContextualBandit:
    """Lives through training traffic once for each of OFFSETS x HOLDS, exploring, and keeps what it experienced; the
    one that is cheapest on validation traffic, exploring less."""
    tried = [ContextualBandit(Bandit(offset, hold)) for offset, hold in itertools.product(OFFSETS, HOLDS)]
    roll_out(study.reference, study.scale, tried, study.training, seed)
    candidates = [ContextualBandit(replace(one.options, epsilon=LATER_EPSILON), one.lived) for one in tried]
    return candidates[choose(study, grid, candidates, seed).index]
