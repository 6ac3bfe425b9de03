"""Ghost caches of an experiment's arms: what the control settings would have cost on each arm's own requests, and what
the settings that policies wanted would have cost on all of them.

These are few, so they follow all keys, and what they say is exact; the grid of settings (`tuner/keys/ghosts.py`) goes
on with a sample. Only where there are more keys or requests than the rules allow, they go on with a part of them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.target import Arm, Plan
from envs.ghost_kernels import BACKEND_USD, HITS, MISSES, STALE_USD, TALLIES
from envs.ghost_lanes import Part, PartRows
from envs.interval import total_usd
from envs.journal import GROUPS, Batch
from tuner.keys.counted_traffic import CountedTraffic
from tuner.keys.estimates import parts_of, standard_error, stated, stated_traffic, traffic_error
from tuner.keys.followed import Bounds, Followed
from tuner.keys.past import PastTraffic
from tuner.keys.view import Estimate, GhostRules, Totals

Array = NDArray[Any]


@dataclass(frozen=True)
class _Draft:
    """The name of a draft's cache."""

    name: str


@dataclass(frozen=True)
class _Late:
    """What is known of the interval only when it is over. requests: that the part stands for."""

    name: Arm | str
    part: Part
    requests: float


@dataclass(frozen=True)
class ArmsClosed:
    """As in KeyInterval. rate: share of the keys that were followed."""

    rate: float
    keys: int
    arms: Mapping[Arm, Estimate]
    drafts: Mapping[str, Estimate]
    traffic: Array
    traffic_error: Array


class ArmGhosts:
    """`begin` an interval, `feed` it and `close` it, again and again. past: what keys weighed in those before."""

    def __init__(self, rules: GhostRules) -> None:
        bounds = Bounds(rules.most_arm_keys, rules.most_arm_requests, rules.horizon_seconds)
        self.followed = Followed(rules.terms, 1.0, bounds, "the ghosts of arms")
        self.past, self._counted = PastTraffic(), CountedTraffic()
        self.followed.lanes.follow(dict.fromkeys(Arm))

    def begin(self, began_seconds: float, seconds: float) -> None:
        self.followed.lanes.open((began_seconds, seconds), self.followed.rate, [])

    def feed(self, requests: Batch) -> None:
        """Of all keys, as the lanes want them."""
        self._counted.add(requests.id)
        self.past.add(requests.id)
        self.followed.feed(requests)

    def close(
        self, plan: Plan, drafts: Mapping[str, KnobSettings], totals: Totals, tokens_stated: tuple[bool, bool]
    ) -> ArmsClosed:
        """plan, drafts: as in LiveGhosts.close. totals: of all keys. tokens_stated: as in stated_traffic."""
        lanes, rate = self.followed.lanes, self.followed.rate
        journal = lanes.journal
        now, before, known = journal.asked_now(), journal.asked_before(), journal.known
        late = self._late(plan, drafts, totals.requests)
        row, done = lanes.close([one.part for one in late])
        traffic = stated_traffic(row, totals.sums(), tokens_stated)
        if rate < 1.0:
            error = np.full_like(row, np.nan) if np.isnan(row[0]) else traffic_error(now, before, known, rate)
            for place, value in self._counted.close().items():
                traffic[place], error[place] = value, 0.0
        else:  # what is followed says the same, to the bit that training has
            error = np.where(np.isnan(row), np.nan, 0.0)
            self._counted.skip()
        found = {one.name: self._estimate(rows, one.requests) for one, rows in zip(late, done, strict=True)}
        arms = {name: one for name, one in found.items() if isinstance(name, Arm)}
        self._remember(done[: len(arms)], sum(one.usd for one in arms.values()) if arms else np.nan)
        self.followed.limit(len(now[0]))
        others = {name: one for name, one in found.items() if not isinstance(name, Arm)}
        return ArmsClosed(rate, journal.keys, arms, others, traffic, error)

    def _late(self, plan: Plan, drafts: Mapping[str, KnobSettings], requests: Array) -> list[_Late]:
        """The arms first. What is under an eviction policy that is not followed is left out."""
        if taken := set(Arm) & set(drafts):
            raise InputError(f"drafts: got the name {min(taken)}, expected another than an arm's")
        split, control, rate, lanes = plan.split, plan.control, self.followed.rate, self.followed.lanes
        if split.treatment <= 0.0:
            lanes.unite()
        follows = self.followed.lanes.terms.follows
        drafts = {name: one for name, one in drafts.items() if follows(one)}
        own = {name: _Draft(name) for name in drafts}
        lanes.follow(dict.fromkeys(Arm) | dict.fromkeys(own.values(), Arm.CONTROL))
        whole = float(requests.sum())
        if not follows(control):
            arms = []
        elif split.treatment <= 0.0:
            arms = [_Late(Arm.CONTROL, Part({Arm.CONTROL: control}, rate), whole)]
        else:
            arms = [
                _Late(arm, Part({arm: control}, rate * split.share(arm), arm), float(total))
                for arm, total in zip((Arm.CONTROL, Arm.TREATMENT), requests, strict=True)
                if split.share(arm) > 0.0
            ]
        return arms + [_Late(name, Part({own[name]: settings}, rate), whole) for name, settings in drafts.items()]

    def _estimate(self, done: PartRows, requests: float) -> Estimate:
        rate = self.followed.rate
        usd = total_usd(stated(done.rows, rate, requests))
        error = standard_error(parts_of(done.tallies, rate, requests), rate)
        return Estimate(float(usd[0]), float(error[0]))

    def _remember(self, arms: list[PartRows], usd_in_all: float) -> None:
        """Nothing is known of an interval without arms."""
        tallies = np.sum([one.tallies[0] for one in arms], axis=0) if arms else np.full((GROUPS, TALLIES), np.nan)
        usd, requests = (tallies[:, of].sum(axis=1) for of in ([BACKEND_USD, STALE_USD], [HITS, MISSES]))
        self.past.close(usd, requests, self.followed.rate, usd_in_all)
