"""Ghost caches in the daemon: what fixed settings would have cost on the keys that a live cache is asked for, by a
sample of them.

The features are those of training: the same kernels over the same requests (`envs/ghost_lanes.py`), in caches that are
as much smaller as the sample is, stated for the whole again (`tuner/keys/estimates.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policy import Ghosts
from agents.whatif import nearest
from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.target import Arm, Plan
from envs.ghost_kernels import BACKEND_USD, STALE_USD
from envs.ghost_lanes import GhostLanes, Part, PartRows, compile_kernels
from envs.interval import total_usd, unsafe
from envs.journal import GROUPS, Batch, places
from tuner.keys.counted_traffic import CountedTraffic
from tuner.keys.estimates import parts_of, standard_error, stated, stated_traffic, traffic_error, with_competition
from tuner.keys.history import History
from tuner.keys.stream import Taken, Totals
from tuner.keys.view import Estimate, GhostRules, KeyInterval, SeenErrors, Viewpoint
from tuner.loop.sight import KeysSeen

Array = NDArray[Any]

ENOUGH = 0.9  # of the most keys: how many may be left where some had to go


@dataclass
class _Interval:
    """One that is open. late: requests in it that came before it."""

    began_seconds: float
    seconds: float
    totals: Totals = field(default_factory=Totals.none)
    notes: tuple[str, ...] = ()
    late: int = 0


@dataclass(frozen=True)
class _Draft:
    """The name of a draft's cache."""

    name: str


class LiveGhosts:
    """`begin` an interval, `feed` it and `close` it, again and again. viewpoints: what policies want to know, at least
    one; `look_from` changes them.

    rate: share of the keys that is sampled now. last: the interval that was closed last; None before the first.
    """

    def __init__(self, rules: GhostRules, viewpoints: Sequence[Viewpoint]) -> None:
        self.rules, self.rate = rules, rules.rate
        self.last: KeyInterval | None = None
        self._lanes, self._history, self._counted = GhostLanes(rules.terms), History(), CountedTraffic()
        self._settings: list[KnobSettings] = []
        self._drafts: list[_Draft] = []
        self._stated = (False, False)  # whether any answer told its prompt tokens, its output tokens
        self._usd: dict[KnobSettings, float] = {}  # of the last interval, and what each group of keys adds to it
        self._parts: dict[KnobSettings, Array] = {}
        self._costs: dict[KnobSettings, float] = {}  # of the sample, but for the rent
        self._open: _Interval | None = None
        compile_kernels(rules.terms)
        self.look_from(viewpoints)

    def look_from(self, viewpoints: Sequence[Viewpoint]) -> None:
        """From the next interval on. Settings that are new begin with what the nearest that are followed hold."""
        if not viewpoints:
            raise InputError("viewpoints: got none, expected at least one")
        self._viewpoints = tuple(viewpoints)

    def begin(self, began_seconds: float, seconds: float) -> None:
        """Opens an interval, at or after the end of the one before."""
        if self._open is not None:
            raise InputError(f"interval at {began_seconds}: got one while that at {self._open.began_seconds} is open")
        self._follow_viewpoints()
        self._open = _Interval(began_seconds, seconds)
        self._lanes.open((began_seconds, seconds), self.rate, [Part({one: one for one in self._settings}, self.rate)])

    def feed(self, taken: Taken) -> None:
        """More of the interval that is open. What came before it, or before what was fed, and is seen only now counts
        as come then."""
        assert self._open is not None
        self._counted.add(taken.ids)
        self._open.totals += taken.totals
        self._open.notes += taken.notes
        if len(taken.sample):
            self._lanes.feed(self._bounded(self._ready(taken.sample)))

    def close(self, plan: Plan, drafts: Mapping[str, KnobSettings] | None = None) -> KeyInterval:
        """Ends the interval. plan: what bound in it. drafts: further settings in it, of caches that begin as the
        control arm's is when their name is new, and end when it is missing."""
        assert self._open is not None
        interval, journal = self._open, self._lanes.journal
        now, before, known = journal.asked_now(), journal.asked_before(), journal.known
        late = self._late(plan, drafts or {}, interval.totals.requests)
        row, done = self._lanes.close([part for _, part, _ in late])
        self._learn(done[0], float(interval.totals.requests.sum()))
        estimates = {
            name: self._estimate(rows, float(total)) for (name, _, total), rows in zip(late, done[1:], strict=True)
        }
        traffic = stated_traffic(row, interval.totals.sums(), self._stated)
        error = np.full_like(row, np.nan) if np.isnan(row[0]) else traffic_error(now, before, known, self.rate)
        for place, value in self._counted.close().items():
            if self.rate < 1.0:  # else the sample says the same, to the bit that training has
                traffic[place], error[place] = value, 0.0
        self.last = KeyInterval(
            began_seconds=interval.began_seconds,
            ended_seconds=interval.began_seconds + interval.seconds,
            rate=self.rate,
            keys=journal.keys,
            sampled=len(now[0]),
            late=interval.late,
            traffic=traffic,
            traffic_error=error,
            arms={name: one for name, one in estimates.items() if isinstance(name, Arm)},
            drafts={name: one for name, one in estimates.items() if not isinstance(name, Arm)},
            notes=interval.notes,
        )
        self._open = None
        self._limit(self.last.sampled)
        return self.last

    def tend(self, now_seconds: float) -> None:
        """Housekeeping, which now and then takes a while: for when nobody waits."""
        self._lanes.tend(now_seconds - self.rules.horizon_seconds)

    def seen(self, viewpoint: Viewpoint) -> KeysSeen:
        """The last interval as a policy sees it; NaN for what is not known, no ghosts where not all are followed."""
        if self.last is None:
            return KeysSeen.nothing()
        neighbours, grid = viewpoint.neighbours(), viewpoint.grid()
        ghosts = None
        if set(grid) <= set(self._settings):
            positions = np.array([viewpoint.knobs.positions(one) for one in grid])
            ghosts = Ghosts(positions, *self._history.table(grid))
        usd = [self._usd.get(one, np.nan) for one in (viewpoint.reference, *neighbours)]
        return KeysSeen(self.last.traffic, usd[0], np.array(usd[1:]), ghosts)

    def errors(self, viewpoint: Viewpoint) -> SeenErrors:
        """Of what `seen` says, for a viewpoint that the last interval was looked at from; NaN for another."""
        names = [viewpoint.reference, *viewpoint.neighbours()]
        parts = np.full((len(names), GROUPS), np.nan)
        if self.last is not None and set(names) <= set(self._parts):
            costs, parts = (np.array([table[one] for one in names]) for table in (self._costs, self._parts))
            sizes = np.array([one.cache_size for one in names]) * self.last.rate
            parts = with_competition(parts, self._lanes.occupied(names), costs, sizes)
        rate = self.rate if self.last is None else self.last.rate
        usd, *others = standard_error(parts, rate)
        return SeenErrors(float(usd), np.array(others), standard_error(parts[0] - parts[1:], rate))

    def _follow_viewpoints(self) -> None:
        wanted = dict.fromkeys(one for viewpoint in self._viewpoints for one in viewpoint.settings())
        if list(wanted) == self._settings:
            return
        knobs, old = self._viewpoints[0].knobs, self._settings
        places_of_old = np.array([knobs.positions(one) for one in old])
        like = {one: old[nearest(places_of_old, knobs.positions(one))] if old else None for one in wanted}
        self._settings = list(wanted)
        self._lanes.follow(like | dict.fromkeys((*Arm, *self._drafts)))
        self._history.keep(self._settings)

    def _ready(self, sample: Batch) -> Batch:
        """As the ghosts want it: entries' sizes, tokens, and times that never go back."""
        assert self._open is not None
        journal = self._lanes.journal
        seen = float(journal.column("time")[journal.rows - 1]) if journal.rows else -np.inf
        earliest = max(seen, self._open.began_seconds)
        self._open.late += int((sample.time < self._open.began_seconds).sum())
        self._stated = (self._stated[0] or bool(sample.prompt.any()), self._stated[1] or bool(sample.output.any()))
        prompt, output = sample.prompt, sample.output
        if not self._stated[0]:
            prompt = np.full_like(prompt, self.rules.prompt_tokens)
        if not self._stated[1]:
            output = np.maximum(1, np.rint(sample.size / self.rules.bytes_per_token)).astype(np.int32)
        return replace(
            sample,
            time=np.maximum(sample.time, earliest),
            size=sample.size + np.int32(self.rules.entry_overhead_bytes),
            prompt=prompt,
            output=output,
        )

    def _bounded(self, batch: Batch) -> Batch:
        """Takes out keys where there would be too many."""
        journal, most = self._lanes.journal, self.rules.most_keys
        if journal.keys + journal.new_keys(batch.id) <= most:
            return batch
        self._lanes.clear(float(batch.time[-1]) - self.rules.horizon_seconds)
        while journal.keys + journal.new_keys(batch.id) > ENOUGH * most:
            self._halve(f"there are more than {most:,}")
            batch = batch.of(places(batch.id) < self.rate)
        return batch

    def _limit(self, sampled: int) -> None:
        while sampled > self.rules.most_requests:
            self._halve(f"they were asked for {sampled:,} times in an interval")
            sampled //= 2

    def _halve(self, why: str) -> None:
        self.rate /= 2.0
        self._lanes.thin(self.rate, 0.5)
        note = f"The keys that are followed were halved, to a share of {self.rate:.3g}: {why}."
        if self._open is not None:
            self._open.notes += (note,)
        elif self.last is not None:
            self.last = replace(self.last, notes=(*self.last.notes, note))

    def _late(
        self, plan: Plan, drafts: Mapping[str, KnobSettings], requests: Array
    ) -> list[tuple[Arm | str, Part, float]]:
        """What is known of the interval only now: by name, the lane's part and the requests that it stands for."""
        if taken := set(Arm) & set(drafts):
            raise InputError(f"drafts: got the name {min(taken)}, expected another than an arm's")
        split, control = plan.split, plan.control
        if split.treatment <= 0.0:
            self._lanes.unite()
        own = {name: _Draft(name) for name in drafts}
        self._drafts = list(own.values())
        self._lanes.follow(dict.fromkeys((*self._settings, *Arm)) | dict.fromkeys(self._drafts, Arm.CONTROL))
        whole = float(requests.sum())
        if split.treatment <= 0.0:
            arms: list[tuple[Arm | str, Part, float]] = [(Arm.CONTROL, Part({Arm.CONTROL: control}, self.rate), whole)]
        else:
            arms = [
                (arm, Part({arm: control}, self.rate * split.share(arm), arm), float(total))
                for arm, total in zip((Arm.CONTROL, Arm.TREATMENT), requests, strict=True)
                if split.share(arm) > 0.0
            ]
        return arms + [(name, Part({own[name]: settings}, self.rate), whole) for name, settings in drafts.items()]

    def _learn(self, done: PartRows, requests: float) -> None:
        """What the fixed settings cost."""
        self._usd, self._parts, self._costs = {}, {}, {}
        if np.isnan(done.rows).all():
            return
        usd = total_usd(stated(done.rows, self.rate, requests))
        parts = parts_of(done.tallies, self.rate, requests)
        self._history.add(self._settings, usd, unsafe(done.rows, self.rules.constraints))
        self._usd = dict(zip(self._settings, usd.tolist(), strict=True))
        self._parts = dict(zip(self._settings, parts, strict=True))
        costs = done.tallies[..., [BACKEND_USD, STALE_USD]].sum(axis=(1, 2))
        self._costs = dict(zip(self._settings, costs.tolist(), strict=True))

    def _estimate(self, done: PartRows, requests: float) -> Estimate:
        usd = total_usd(stated(done.rows, self.rate, requests))
        error = standard_error(parts_of(done.tallies, self.rate, requests), self.rate)
        return Estimate(float(usd[0]), float(error[0]))
