"""The key stream and the ghosts beside a control loop: fed between ticks, closed with the loop's intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from caches.knobs import KnobSettings
from caches.target import Plan, Split
from tuner.keys.ghosts import LiveGhosts
from tuner.keys.stream import KeyStream, KeysUnavailable
from tuner.keys.view import KeyInterval, Viewpoint
from tuner.loop.closing import Looked
from tuner.loop.sight import KeysSeen
from tuner.records import ControlState

MOST_AT_ONCE = 10  # intervals that nobody asked for, closed in one look
SETTLE_SECONDS = 20.0  # a request is in the stream when it is answered, and ghosts want requests in order


class KeyWatch:
    """Intervals are those of the control loop: number i is from i to i + 1 times interval_seconds. begin_seconds: the
    first one begins then or soon after. viewpoint: of the policy that is asked about, as of now.

    problem: why the keys of the last interval are not known; None where they are. drafts: settings that are followed
    beside in the interval that is open, by name; what they cost is in `last`.
    """

    def __init__(
        self,
        stream: KeyStream,
        ghosts: LiveGhosts,
        interval_seconds: float,
        begin_seconds: float,
        viewpoint: Callable[[], Viewpoint],
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self._stream, self._ghosts, self._seconds = stream, ghosts, interval_seconds
        self._index = math.ceil(begin_seconds / interval_seconds)  # of the interval to be fed or closed next
        self._viewpoint, self._settle = viewpoint, settle_seconds
        self._is_open, self._has_begun = False, False
        reference = viewpoint().reference
        self._plan = Plan(Split(), reference, reference)  # the one that was told last
        self.problem: str | None = None
        self.drafts: Mapping[str, KnobSettings] = {}

    @property
    def last(self) -> KeyInterval | None:
        """The interval that was closed last."""
        return self._ghosts.last

    def look(self, now_seconds: float) -> None:
        """Between two ticks, as often as may be: takes in what has come, so that a tick finds little left to do. Where
        no tick comes, as in a daemon that stands by, intervals are closed here, late enough to leave them to one."""
        overdue = math.floor((now_seconds - self._stream.delay_seconds) / self._seconds) - 2
        self.close_until(min(overdue, self._index + MOST_AT_ONCE), self._plan, now_seconds)
        begins, ends = self._index * self._seconds, (self._index + 1) * self._seconds
        until = min(now_seconds - self._settle - self._stream.delay_seconds, ends)
        if until <= begins:
            return
        try:
            self._take(until)
            self._ghosts.tend(until)
        except KeysUnavailable as error:
            self.problem = str(error)

    def keys(self, state: ControlState, now_seconds: float) -> Looked:
        """What the stream says of the state's interval, which is over; asked again, it says the same. Nothing where
        that is not known."""
        self.close_until(state.index, state.plan, now_seconds)
        last = self._ghosts.last
        if last is None or self.problem is not None or self._index != state.index + 1:
            return Looked(now_seconds, keys=self._old())
        usd = {arm: one.usd for arm, one in last.arms.items() if not math.isnan(one.usd)}
        drafts = {name: one.usd for name, one in last.drafts.items() if not math.isnan(one.usd)}
        return Looked(now_seconds, keys=self._ghosts.seen(self._viewpoint()), reference_usd=usd, drafts=drafts)

    def close_until(self, index: int, plan: Plan, now_seconds: float) -> None:
        """Closes the intervals up to that one, as far as the stream has come to their ends. plan: what bound in
        them."""
        self.problem, self._plan = None, plan
        ends = (self._index + 1) * self._seconds
        while self._index <= index and ends <= now_seconds - self._stream.delay_seconds:
            try:
                self._take(ends)
            except KeysUnavailable as error:
                self.problem = str(error)
                break
            self._ghosts.close(plan, self.drafts)
            self._is_open, self._index = False, self._index + 1
            ends = (self._index + 1) * self._seconds

    def _take(self, until_seconds: float) -> None:
        if not self._has_begun:
            self._stream.take(self._index * self._seconds, self._ghosts.rate)  # of before the first interval: let go
            self._has_begun = True
        if not self._is_open:
            self._ghosts.look_from([self._viewpoint()])
            self._ghosts.begin(self._index * self._seconds, self._seconds)
            self._is_open = True
        self._ghosts.feed(self._stream.take(until_seconds, self._ghosts.rate))

    def _old(self) -> KeysSeen:
        """Of intervals before: the grid, which a controller weighs over many of them, and nothing else."""
        nothing, seen = KeysSeen.nothing(), self._ghosts.seen(self._viewpoint())
        return KeysSeen(nothing.traffic, nothing.reference_usd, nothing.ghost_usd, seen.ghosts)


def prime(
    ghosts: LiveGhosts, stream: KeyStream, intervals: range, interval_seconds: float, plan: Plan
) -> Sequence[KeyInterval]:
    """Replays past intervals, whose numbers are given, so that the ghosts do not begin empty. plan: what bound in them.
    Raises KeysUnavailable."""
    closed = []
    for index in intervals:
        ends = (index + 1) * interval_seconds
        taken = stream.take(ends, ghosts.rate)
        ghosts.begin(index * interval_seconds, interval_seconds)
        ghosts.feed(taken)
        closed.append(ghosts.close(plan))
        ghosts.tend(ends)
    return closed
