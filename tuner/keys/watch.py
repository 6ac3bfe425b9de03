"""The key stream and the ghosts beside a control loop: fed between ticks, closed with the loop's intervals."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence

from caches.knobs import KnobSettings
from caches.target import Plan, Split
from envs.journal import Batch
from tuner.keys.ghosts import LiveGhosts
from tuner.keys.stream import KeyStream, KeysUnavailable
from tuner.keys.view import KeyInterval, Viewpoint
from tuner.loop.closing import Looked
from tuner.loop.sight import KeysSeen
from tuner.records import ControlState

log = logging.getLogger("setpoint.tuner")

MOST_AT_ONCE = 10  # intervals that are closed in one go
REST, LONGEST_REST_SECONDS = 0.25, 15.0  # a source that was away is left alone, for so much of an interval
SETTLE_SECONDS = 20.0  # a request is in the stream when it is answered, and ghosts want requests in order


class KeyWatch:
    """Intervals are those of the control loop: number i is from i to i + 1 times interval_seconds. begin_seconds: the
    first one begins then or soon after. viewpoint: of the policy that is asked about, as of now. plan: what bound in
    intervals that nobody asks for, until somebody asks for one; the viewpoint's reference for all keys by default.
    asked_from: number of the first interval that a tick may ask for; those before it are the past, if there are any.

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
        plan: Plan | None = None,
        asked_from: int = 0,
    ) -> None:
        self._stream, self._ghosts, self._seconds = stream, ghosts, interval_seconds
        self._index = math.ceil(begin_seconds / interval_seconds)  # of the interval to be fed or closed next
        self._viewpoint, self._settle, self._asked_from = viewpoint, settle_seconds, asked_from
        self._is_open, self._has_begun = False, False
        self._rest = min(REST * interval_seconds, LONGEST_REST_SECONDS)
        self._rests_until = -math.inf
        reference = viewpoint().reference
        self._plan = plan or Plan(Split(), reference, reference)  # the one that was told last
        self.problem: str | None = None
        self.drafts: Mapping[str, KnobSettings] = {}

    @property
    def last(self) -> KeyInterval | None:
        """The interval that was closed last."""
        return self._ghosts.last

    def prime(self, now_seconds: float) -> bool:
        """Feeds some of the past, so that the ghosts do not begin empty; says whether there is more of it. It begins
        with the first interval of which the source has all requests; where the source is away, it is left out."""
        try:
            if not self._has_begun:
                self._skip_silence(now_seconds)
        except KeysUnavailable as error:
            self.problem, self._index = str(error), max(self._asked_from, self._index)
            return False
        first = self._index
        self.close_until(min(self._asked_from, first + MOST_AT_ONCE) - 1, self._plan, now_seconds)
        self._ghosts.tend(self._index * self._seconds)
        return self._index == first + MOST_AT_ONCE and self._index < self._asked_from

    def _skip_silence(self, now_seconds: float) -> None:
        """To behind the interval in which the first request came."""
        over = now_seconds - self._stream.delay_seconds
        while self._index < self._asked_from and (self._index + 1) * self._seconds <= over:
            self._index += 1
            if len(self._let_go(self._index * self._seconds)):
                self._has_begun = True
                return

    def look(self, now_seconds: float) -> None:
        """Between two ticks, as often as may be: takes in what has come, so that a tick finds little left to do. Where
        no tick comes, as in a daemon that stands by, intervals are closed here, late enough to leave them to one."""
        overdue = math.floor((now_seconds - self._stream.delay_seconds) / self._seconds) - 2
        self.close_until(min(overdue, self._index + MOST_AT_ONCE), self._plan, now_seconds)
        begins, ends = self._index * self._seconds, (self._index + 1) * self._seconds
        until = min(now_seconds - self._settle - self._stream.delay_seconds, ends)
        if until <= begins or self._rests(now_seconds):
            return
        try:
            self._take(until)
            self._ghosts.tend(until)
        except KeysUnavailable as error:
            self._leave_alone(error, now_seconds)

    def keys(self, state: ControlState, now_seconds: float) -> Looked:
        """What the stream says of the state's interval, which is over; asked again, it says the same. Nothing where
        that is not known, or no tick came in the interval after it: what the cache has counted is of both then."""
        self.close_until(min(state.index, self._index + MOST_AT_ONCE), state.plan, now_seconds)
        last, missed = self._ghosts.last, now_seconds >= (state.index + 2) * self._seconds
        if last is None or self.problem is not None or self._index != state.index + 1 or missed:
            return Looked(now_seconds, keys=self._old(), past=self._ghosts.past, keys_problem=self.problem)
        usd = {arm: one.usd for arm, one in last.arms.items() if not math.isnan(one.usd)}
        drafts = {name: one.usd for name, one in last.drafts.items() if not math.isnan(one.usd)}
        seen = self._ghosts.seen(self._viewpoint())
        return Looked(now_seconds, keys=seen, reference_usd=usd, drafts=drafts, past=self._ghosts.past)

    def close_until(self, index: int, plan: Plan, now_seconds: float) -> None:
        """Closes the intervals up to that one, as far as the stream has come to their ends. plan: what bound in
        them."""
        self._plan = plan
        if self._rests(now_seconds):
            return
        self.problem = None
        ends = (self._index + 1) * self._seconds
        while self._index <= index and ends <= now_seconds - self._stream.delay_seconds:
            try:
                self._take(ends)
            except KeysUnavailable as error:
                self._leave_alone(error, now_seconds)
                break
            _say(self._ghosts.close(plan, self.drafts).notes)
            self._is_open, self._index = False, self._index + 1
            ends = (self._index + 1) * self._seconds

    def _rests(self, now_seconds: float) -> bool:
        """Whether the source was away a moment ago: each question to one that hangs holds up the whole daemon."""
        return self._rests_until - self._rest <= now_seconds < self._rests_until

    def _leave_alone(self, error: KeysUnavailable, now_seconds: float) -> None:
        self.problem, self._rests_until = str(error), now_seconds + self._rest

    def _take(self, until_seconds: float) -> None:
        if not self._has_begun:
            self._let_go(self._index * self._seconds)  # of before the first interval
            self._has_begun = True
        if not self._is_open:
            self._ghosts.look_from([self._viewpoint()])
            self._ghosts.begin(self._index * self._seconds, self._seconds)
            self._is_open = True
        self._ghosts.feed(self._stream.take(until_seconds))

    def _let_go(self, until_seconds: float) -> Batch:
        taken = self._stream.take(until_seconds)
        _say(taken.notes)
        return taken.requests

    def _old(self) -> KeysSeen:
        """Of intervals before: the grid, which a controller weighs over many of them, and nothing else."""
        nothing, seen = KeysSeen.nothing(), self._ghosts.seen(self._viewpoint())
        return KeysSeen(nothing.traffic, nothing.reference_usd, nothing.ghost_usd, seen.ghosts)


def _say(notes: Sequence[str]) -> None:
    for note in notes:
        log.warning("%s", note)
