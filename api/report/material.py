"""What the report of an evaluation is made of: the judged tracks, their results, and the choice that they leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.evaluation import savings
from agents.promotion import decide
from agents.provenance import package_versions
from agents.results import Evaluation, PolicyResult, Savings
from agents.tracks import Track
from agents.uncertainty import Resampling
from caches.knobs import KnobSpace
from envs.interval import column, violations
from envs.reward import Constraints
from tuner.evaluating import Evaluated

Array = NDArray[Any]
DAY_SECONDS = 86_400.0


@dataclass(frozen=True)
class Option:
    """One way to run the cache. label: as in "with the best static setting"."""

    label: str
    track: Track
    result: PolicyResult

    @property
    def usd_per_1000(self) -> float:
        return self.result.usd_per_1000


@dataclass(frozen=True)
class Material:
    """starts: when each test interval begins, shape (intervals,), in seconds on a clock whose zero is a midnight.
    dated: whether that clock is a calendar's. reasons: against promoting `version`; empty where it would be promoted.
    champion: the version that was champion while judging. made_on: the date of the report, as text.
    """

    version: int
    evaluation: Evaluation
    tracks: tuple[Track, ...]
    resampling: Resampling
    knobs: KnobSpace
    constraints: Constraints
    starts: Array
    dated: bool
    made_on: str
    champion: int | None = None
    reasons: tuple[str, ...] = ()
    run_id: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def now(self) -> Option:
        """What is paid today: the champion, or without one the default settings."""
        if self.champion == self.version:
            return self.chosen
        return self._first("champion") or self._first("default") or self.best

    @cached_property
    def best(self) -> Option:
        """The best static setting."""
        found = self._first("best static")
        assert found is not None  # agents.evaluation.evaluate takes no tracks without it
        return found

    @cached_property
    def chosen(self) -> Option:
        """The version that was judged."""
        return next(one for one in self.options() if one.track.role != "champion" and one.track.version == self.version)

    @cached_property
    def advised(self) -> Option:
        """The chosen version where it earns promotion, else the cheapest of what is run now and the best static."""
        if not self.reasons or self.now is self.chosen:
            return self.chosen
        return min((self.now, self.best), key=lambda one: one.usd_per_1000)

    @cached_property
    def learned(self) -> tuple[Option, ...]:
        """All seeds of the training."""
        return tuple(one for one in self.options() if one.track.role == "learned")

    @cached_property
    def bounds(self) -> tuple[Option, ...]:
        """What no policy can know: cheaper than anything that could be run."""
        return tuple(one for one in self.options() if "bound" in one.track.role)

    @property
    def kind(self) -> str:
        """What the judged policies are called, "PPO" for one."""
        return self.chosen.track.name.partition(" seed ")[0]

    @property
    def days(self) -> float:
        return self.evaluation.intervals * self.evaluation.setting.interval_seconds / DAY_SECONDS

    def options(self) -> Iterator[Option]:
        for track, result in zip(self.tracks, self.evaluation.policies, strict=True):
            yield Option(self._label(track), track, result)

    def against_now(self, option: Option) -> Savings | None:
        """What an option saves against what is paid now; None for that itself."""
        if option.track is self.now.track:
            return None
        now, other = self.now.track, option.track
        return savings(now.usd - other.usd, now.usd, column(self.best.track.rows, "requests"), self.resampling)

    def unsafe(self, option: Option) -> int:
        """Intervals that broke any constraint."""
        return int(np.any(list(violations(option.track.rows, self.constraints).values()), axis=0).sum())

    def usd_per_day(self, usd_per_1000: float) -> float:
        """At the rate of the test traffic."""
        return usd_per_1000 * self.evaluation.requests / 1000 / self.days

    def _first(self, role: str) -> Option | None:
        return next((one for one in self.options() if one.track.role == role), None)

    def _label(self, track: Track) -> str:
        if track.role == "default":
            return "the default settings"
        if track.role == "best static":
            return "the best static setting"
        if track.role == "learned" and track.version is not None:
            return f"policy version {track.version}"
        if track.role == "champion" and track.version is not None:
            return f"the champion, version {track.version}"
        return track.name


def material_of(evaluated: Evaluated, made_on: str) -> Material:
    """made_on: today's date, as the report shows it."""
    judgement = evaluated.judgement
    world, test = judgement.study.world, judgement.study.test
    unix = world.problem.trace.info.start_unix_seconds
    starts = np.array([(unix or 0.0) + world.timeline.begin(index) for index in test])
    return Material(
        version=evaluated.version,
        evaluation=judgement.evaluation,
        tracks=judgement.tracks,
        resampling=judgement.resampling,
        knobs=world.problem.knobs,
        constraints=world.problem.constraints,
        starts=starts,
        dated=unix is not None,
        made_on=made_on,
        champion=evaluated.evidence.champion,
        reasons=decide(evaluated.evidence).reasons,
        run_id=evaluated.run_id,
        packages=package_versions(),
    )
