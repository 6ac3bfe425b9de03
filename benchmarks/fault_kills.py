"""Daemons that are killed with SIGKILL at random moments of the tick, each followed by another, under traffic."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass, field

from benchmarks.fault_accounts import state_of
from benchmarks.fault_daemons import Child
from benchmarks.fault_traffic import wait_until
from benchmarks.fault_world import CACHE, World
from tuner.ledger import Ledger
from tuner.ledgers.sql import open_ledger
from tuner.records import Phase, Wish, WishKind

LONGEST_SECONDS = 120.0  # for whoever was killed to be followed by another
FIRST_GUESS_SECONDS = 0.06  # of a tick that closes an interval, until some were seen
WHOLE = 2  # of three kills, so many are aimed at a tick that closes an interval; the others at any moment


@dataclass
class Kills:
    """What came of it. in_tick: of those, kills while a tick closed an interval, as far as was heard. firsts: from the
    start of a daemon until its first tick was over, s. backs: from a kill to the next decision of anybody, s."""

    number: int = 0
    in_tick: int = 0
    firsts: list[float] = field(default_factory=list)
    backs: list[float] = field(default_factory=list)


class Slaughter:
    """Two daemons at a time: one acts, the other waits for its place. Experiments are begun again as they end, so that
    shares and settings go on changing."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._random = world, random.Random(seed)
        self._settings, self._lengths = world.settings(), list[float]()
        self._ledger: Ledger = open_ledger(f"sqlite:///{world.ledger}", world.folder)
        self._daemons = [self._begun(), self._begun()]
        self.kills = Kills()

    def go_on(self, kills: int) -> None:
        for number in range(kills):
            active = self._active()
            if number % 3 < WHOLE:
                self._within_a_tick(active)
                victim = active
            else:  # at any moment, and whoever waits as well as whoever acts
                time.sleep(self._random.uniform(0.0, 2.0 * self._world.interval_seconds))
                victim = self._random.choice(self._daemons)
            self._end(victim)
            self._keep_moving()

    def rest(self) -> None:
        """Waits until whoever is left has decided and applied, and ends them all."""
        self._active()
        index = state_of(self._world.ledger).index
        wait_until(lambda: _is_settled(self._world, index), "a plan that is applied", LONGEST_SECONDS)
        for daemon in self._daemons:
            daemon.end()
        self._ledger.close()

    def _begun(self) -> Child:
        return self._world.nursery.daemon(self._settings)

    def _active(self) -> Child:
        """Whoever acts; waits until somebody does."""

        def found() -> list[Child]:
            for daemon in self._daemons:
                daemon.hear()
            return [daemon for daemon in self._daemons if daemon.is_active]

        wait_until(found, "a daemon that acts", LONGEST_SECONDS)
        return found()[-1]

    def _within_a_tick(self, daemon: Child) -> None:
        """Sleeps until a tick of it that closes an interval has begun, and for a part of what such a tick takes."""
        many = self._random.choice((1, 1, 2))
        heard: list[float] = []

        def begun() -> bool:
            heard.extend(one.at for one in daemon.hear() if one.what == "tick")
            return len(heard) >= many

        deadline = time.monotonic() + 4.0 * self._world.interval_seconds
        while not begun() and time.monotonic() < deadline:
            time.sleep(0.001)
        self._lengths += _lengths(daemon)
        usual = statistics.median(self._lengths) if self._lengths else FIRST_GUESS_SECONDS
        time.sleep(self._random.uniform(0.0, 1.2 * usual))

    def _end(self, victim: Child) -> None:
        victim.kill()
        at = time.time()
        told = [one for one in victim.said if one.what != "up"]
        self.kills.number += 1
        self.kills.in_tick += bool(told) and told[-1].what == "tick"
        self.kills.firsts += [one.at - victim.began for one in told[:1]]
        self._daemons = [one for one in self._daemons if one is not victim]
        self._daemons.append(self._begun())
        if victim.is_active:
            wait_until(lambda: self._follows(at), "another daemon to take over", LONGEST_SECONDS)

    def _follows(self, at: float) -> bool:
        for daemon in self._daemons:
            decided = [one.at for one in daemon.hear() if one.what == "decided" and one.at >= at]
            if decided:
                self.kills.backs.append(decided[0] - at)
                return True
        return False

    def _keep_moving(self) -> None:
        state = self._ledger.state(CACHE)
        if state is None or self._ledger.open_wishes(CACHE) or state.phase not in (Phase.IDLE, Phase.ROLLED_BACK):
            return
        kind = WishKind.START if state.phase is Phase.IDLE else WishKind.RELEASE
        self._ledger.wish(Wish(CACHE, kind, "operator", time.time()))


def _lengths(daemon: Child) -> list[float]:
    """Of its ticks that closed an interval and came to an end, s."""
    pairs = zip(daemon.said, daemon.said[1:], strict=False)
    return [after.at - one.at for one, after in pairs if one.what == "tick" and after.what == "decided"]


def _is_settled(world: World, index: int) -> bool:
    state = state_of(world.ledger)
    return state.index > index and state.confirmed
