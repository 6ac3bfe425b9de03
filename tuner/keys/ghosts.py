"""Ghost caches in the daemon: what fixed settings would have cost on the keys that a live cache is asked for.

The features are those of training: the same kernels over the same requests (`envs/ghost_lanes.py`). The many settings
of the grid follow a sample of the keys, in caches that are as much smaller as the sample is, stated for the whole again
(`tuner/keys/estimates.py`); the few of an experiment's arms follow all (`tuner/keys/arm_ghosts.py`).
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
from caches.target import Plan
from envs.ghost_kernels import BACKEND_USD, STALE_USD
from envs.ghost_lanes import Part, PartRows, compile_kernels
from envs.interval import total_usd, unsafe
from envs.journal import GROUPS, Batch
from tuner.keys.arm_ghosts import ArmGhosts
from tuner.keys.estimates import parts_of, standard_error, stated, with_competition
from tuner.keys.followed import Bounds, Followed
from tuner.keys.history import History
from tuner.keys.past import PastTraffic
from tuner.keys.stream import Taken
from tuner.keys.view import GhostRules, KeyInterval, SeenErrors, Totals, Viewpoint
from tuner.loop.sight import KeysSeen

Array = NDArray[Any]


@dataclass
class _Interval:
    """One that is open. late: requests in it that came before it."""

    began_seconds: float
    seconds: float
    totals: Totals = field(default_factory=Totals)
    notes: tuple[str, ...] = ()
    late: int = 0


class LiveGhosts:
    """`begin` an interval, `feed` it and `close` it, again and again. viewpoints: what policies want to know, at least
    one; `look_from` changes them.

    last: the interval that was closed last; None before the first.
    """

    def __init__(self, rules: GhostRules, viewpoints: Sequence[Viewpoint]) -> None:
        self.rules = rules
        self.last: KeyInterval | None = None
        bounds = Bounds(rules.most_keys, rules.most_requests, rules.horizon_seconds)
        self._grid, self._arms = Followed(rules.terms, rules.rate, bounds, "the grid's ghosts"), ArmGhosts(rules)
        self._history, self._settings = History(), list[KnobSettings]()
        self._stated = (False, False)  # whether any answer told its prompt tokens, its output tokens
        self._latest = -np.inf  # when the last request came that was fed
        self._usd: dict[KnobSettings, float] = {}  # of the last interval, and what each group of keys adds to it
        self._parts: dict[KnobSettings, Array] = {}
        self._costs: dict[KnobSettings, float] = {}  # of the sample, but for the rent
        self._open: _Interval | None = None
        compile_kernels(rules.terms)
        self.look_from(viewpoints)

    @property
    def rate(self) -> float:
        """Share of the keys that the grid follows now."""
        return self._grid.rate

    @property
    def past(self) -> PastTraffic:
        """What keys weighed in the intervals that are over."""
        return self._arms.past

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
        part = Part({one: one for one in self._settings}, self.rate)
        self._grid.lanes.open((began_seconds, seconds), self.rate, [part])
        self._arms.begin(began_seconds, seconds)

    def feed(self, taken: Taken) -> None:
        """More of the interval that is open. What came before it, or before what was fed, and is seen only now counts
        as come then."""
        assert self._open is not None
        self._open.totals.add(taken.requests)
        self._open.notes += taken.notes
        if len(taken.requests):
            ready = self._ready(taken.requests)
            self._grid.feed(ready)
            self._arms.feed(ready)

    def close(self, plan: Plan, drafts: Mapping[str, KnobSettings] | None = None) -> KeyInterval:
        """Ends the interval. plan: what bound in it. drafts: further settings in it, of caches that begin as the
        control arm's is when their name is new, and end when it is missing."""
        assert self._open is not None
        interval, journal = self._open, self._grid.lanes.journal
        rate, sampled = self.rate, len(journal.asked_now()[0])
        arms = self._arms.close(plan, drafts or {}, interval.totals, self._stated)
        _, done = self._grid.lanes.close()
        self._learn(done[0], float(interval.totals.requests.sum()))
        keys = journal.keys
        self._grid.limit(sampled)
        self.last = KeyInterval(
            began_seconds=interval.began_seconds,
            ended_seconds=interval.began_seconds + interval.seconds,
            rate=rate,
            keys=keys,
            sampled=sampled,
            arm_rate=arms.rate,
            arm_keys=arms.keys,
            late=interval.late,
            traffic=arms.traffic,
            traffic_error=arms.traffic_error,
            arms=arms.arms,
            drafts=arms.drafts,
            notes=(*interval.notes, *self._grid.told(), *self._arms.followed.told(), *self._unfollowed(plan)),
        )
        self._open = None
        return self.last

    def _unfollowed(self, plan: Plan) -> tuple[str, ...]:
        """A note where nothing is known of the arms."""
        if self.rules.terms.follows(plan.control):
            return ()
        policy = plan.control.eviction_policy
        return (f"The ghosts of arms do not follow {policy}: [cache] eviction_policy does not name it.",)

    def tend(self, now_seconds: float) -> None:
        """Housekeeping, which now and then takes a while: for when nobody waits."""
        self._grid.tend(now_seconds)
        self._arms.followed.tend(now_seconds)

    def seen(self, viewpoint: Viewpoint) -> KeysSeen:
        """The last interval as a policy sees it; NaN for what is not known, no ghosts where not all are followed."""
        if self.last is None:
            return KeysSeen.nothing()
        neighbours, grid = viewpoint.neighbours(), viewpoint.grid()
        ghosts = None
        if set(grid) <= set(self._settings):
            positions = np.array([viewpoint.knobs.positions(one) for one in grid])
            ghosts = Ghosts(positions, *self._history.table(grid), viewpoint.grid_choices())
        usd = [self._usd.get(one, np.nan) for one in (viewpoint.reference, *neighbours)]
        return KeysSeen(self.last.traffic, usd[0], np.array(usd[1:]), ghosts)

    def errors(self, viewpoint: Viewpoint) -> SeenErrors:
        """Of what `seen` says, for a viewpoint that the last interval was looked at from; NaN for another."""
        names = [viewpoint.reference, *viewpoint.neighbours()]
        parts = np.full((len(names), GROUPS), np.nan)
        if self.last is not None and set(names) <= set(self._parts):
            costs, parts = (np.array([table[one] for one in names]) for table in (self._costs, self._parts))
            sizes = np.array([one.cache_size for one in names]) * self.last.rate
            parts = with_competition(parts, self._grid.lanes.occupied(names), costs, sizes)
        rate = self.rate if self.last is None else self.last.rate
        usd, *others = standard_error(parts, rate)
        return SeenErrors(float(usd), np.array(others), standard_error(parts[0] - parts[1:], rate))

    def _follow_viewpoints(self) -> None:
        wanted = dict.fromkeys(one for viewpoint in self._viewpoints for one in viewpoint.settings())
        if list(wanted) == self._settings:
            return
        knobs, old = self._viewpoints[0].knobs, self._settings
        places_of_old, policies = np.array([knobs.positions(one) for one in old]), [one.eviction_policy for one in old]

        def like(one: KnobSettings) -> KnobSettings | None:
            """The nearest, of those under the same policy if there is any."""
            same = np.array([policy == one.eviction_policy for policy in policies])
            return old[nearest(places_of_old, knobs.positions(one), same if same.any() else True)] if old else None

        self._settings = list(wanted)
        self._grid.lanes.follow({one: like(one) for one in wanted})
        self._history.keep(self._settings)

    def _ready(self, requests: Batch) -> Batch:
        """As the ghosts want it: entries' sizes, tokens, and times that never go back."""
        assert self._open is not None
        time = np.maximum(requests.time, max(self._latest, self._open.began_seconds))
        self._latest = float(time[-1])
        self._open.late += int((requests.time < self._open.began_seconds).sum())
        self._stated = (self._stated[0] or bool(requests.prompt.any()), self._stated[1] or bool(requests.output.any()))
        prompt, output = requests.prompt, requests.output
        if not self._stated[0]:
            prompt = np.full_like(prompt, self.rules.prompt_tokens)
        if not self._stated[1]:
            output = np.maximum(1, np.rint(requests.size / self.rules.bytes_per_token)).astype(np.int32)
        size = requests.size + np.int32(self.rules.entry_overhead_bytes)
        return replace(requests, time=time, size=size, prompt=prompt, output=output)

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
