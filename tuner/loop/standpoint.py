"""What a tick goes by: rules that stay, and what it found when it looked. Values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from caches.knobs import KnobSpace
from envs.live import LivePrices
from tuner.experiment import ExperimentDesign
from tuner.guards.objectives import Objectives
from tuner.loop.closing import Looked
from tuner.loop.experiments import Running
from tuner.loop.policies import LivePolicy
from tuner.records import IntervalRecord, Mode, Wish
from tuner.regime import RegimeWatch
from tuner.rollout_section import RolloutConfig
from tuner.signals import Signal


@dataclass(frozen=True)
class Rules:
    """What does not change while a daemon runs. knobs: the operator's ranges, with the static settings as defaults.
    mode: the most that policies may do. designed: an experiment's design by its id, which is its salt where nobody
    chose one. regime: None where nobody watches for changes of traffic."""

    interval_seconds: float
    mode: Mode
    knobs: KnobSpace
    prices: LivePrices
    objectives: Objectives
    rollout: RolloutConfig
    designed: Callable[[str], ExperimentDesign]
    regime: RegimeWatch | None = None


@dataclass(frozen=True)
class Seen:
    """Everything that a tick looked at. index: of the interval to come. running: the experiment, with its `history`,
    both arms, and what its shadow intervals `predicted`, USD per 1,000 requests. signals: of the whole cache. troubles:
    of the registry, in sentences."""

    index: int
    looked: Looked
    champion: LivePolicy | None = None
    challenger: LivePolicy | None = None
    wishes: Sequence[Wish] = ()
    running: Running | None = None
    history: Sequence[IntervalRecord] = ()
    predicted: Sequence[float] = ()
    signals: Mapping[str, Signal] = field(default_factory=dict)
    troubles: Sequence[str] = ()
