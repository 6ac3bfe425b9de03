"""Ghost caches beside live traffic: settings that are fixed, or change with every interval, on the same requests.

They go on for ever in bounded memory. What they say of an interval is what `envs.world.World` says of the same requests
in a trace, to the last bit: the same kernels run, over a journal that grows in front and is cleared behind.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.policies.pair import PLAIN, CachePolicy
from caches.shadow import kernel
from caches.target import Arm
from envs.ghost_kernels import MISSED, SUMS, TALLIES, Running, begin, feed, finish, hand_over, mark, occupied, renumber
from envs.ghost_policy_kernels import mark_remembered, renumber_remembered, take_out
from envs.ghost_policy_lanes import for_share, hand_over_by_touch
from envs.ghost_state import GhostState
from envs.interval import STATS
from envs.journal import GROUPS, Batch, Journal, places
from envs.lanes import Scene
from envs.reward import Tariff
from envs.serving import Backend
from envs.traffic import FEATURES, rank, traffic_row

Array = NDArray[Any]

ROWS, LISTED = 1 << 16, 1 << 10  # requests held, and warm-ups listed in a lane, before the first clearing


@dataclass(frozen=True)
class Terms:
    """What ghosts have in common with each other, and with the problem of a training (envs.world.Problem).

    objective_seconds: to the first token, beyond which a request is slow. policies: which entry goes, which response is
    taken in; the first is the cache's own, and settings may name the eviction of any.
    """

    backend: Backend
    tariff: Tariff
    objective_seconds: float
    sequence_tokens: float
    since_touch: bool
    warmup_candidates: int
    popularity_decay: float
    policies: tuple[CachePolicy, ...] = (PLAIN,)

    @property
    def plain(self) -> bool:
        """Whether all is least recently used, without a rule of admission."""
        return self.policies == (PLAIN,)

    def follows(self, settings: KnobSettings) -> bool:
        """Whether the eviction policy that they name, if any, is one of these."""
        return settings.eviction_policy in (None, *(one.eviction for one in self.policies))

    def numbers(self, settings: KnobSettings) -> Array:
        """As lanes take them: (3,), or (4,) with the number of the policy where there are several kinds of lanes.
        Raises InputError for a policy that is not followed."""
        if not self.follows(settings):
            known = ", ".join(one.eviction for one in self.policies)
            raise InputError(
                f"eviction_policy: got {settings.eviction_policy!r}, expected one that is followed: {known}"
            )
        if self.plain:
            return settings.as_array()
        names = [one.eviction for one in self.policies]
        named = settings.eviction_policy
        return np.append(settings.as_array(), 0 if named is None else names.index(named))

    def candidates(self, rate: float) -> int:
        """How many are wanted for a warm-up among a share of the keys."""
        return max(1, round(rate * self.warmup_candidates)) if self.warmup_candidates else 0


@dataclass(frozen=True)
class Part:
    """Lanes that see the same requests. lanes: their settings by name, for a cache of all keys. share: of all keys, in
    what they see. arm: whose requests; None for all."""

    lanes: Mapping[Hashable, KnobSettings]
    share: float
    arm: Arm | None = None


@dataclass(frozen=True)
class PartRows:
    """A part's interval, in miniature: nothing is scaled up. rows: (lanes, STATS), in the order of `Part.lanes`.
    tallies: (lanes, GROUPS, TALLIES) as envs.ghost_kernels says."""

    rows: Array
    tallies: Array


@dataclass(frozen=True)
class _Open:
    """An interval that is not over. spoiled: keys were taken out of it, so that nothing can be said of it."""

    span: tuple[float, float]
    parts: tuple[tuple[Part, Running], ...] = ()
    spoiled: bool = False


class GhostLanes:
    """Choose lanes with `follow`, then `open` an interval, `feed` it and `close` it, again and again. index: of the
    interval that is open or will be next, from 0 on."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.journal, self.index = terms, Journal(), 0
        self._state = GhostState(terms.backend.slots, () if terms.plain else [one.rules for one in terms.policies])
        self._most_rows, self._most_listed = ROWS, LISTED
        self._open: _Open | None = None
        self._chosen = np.zeros(0, np.int32)  # whom to warm up with, as positions in the journal, best first
        self._bytes: dict[Hashable, float] = {}  # capacity of each arm's lane in the last interval that it was part of

    def follow(self, wanted: Mapping[Hashable, Hashable | None]) -> None:
        """Which lanes there are to be. A new one begins as a copy of the lane that its value names, or empty; one that
        is there goes on as it is. While an interval is open, those that it was opened with have to stay."""
        self._state.follow(wanted)

    def open(self, span: tuple[float, float], rate: float, parts: Sequence[Part]) -> None:
        """span: when the interval begins, and its length, s. rate: share of all keys in what comes."""
        self._state.make_warmup_room(self._state.listed + self.terms.candidates(rate))
        self._chosen = self._candidates(rate)
        self._state.fit(self.journal.key_room, 0, 0, len(self._chosen))
        self._open = _Open(span)  # its parts need the span to begin
        self._open = _Open(span, tuple((part, self._begun(part)) for part in parts))

    def feed(self, batch: Batch) -> None:
        """More requests of the interval. Takes out what is not needed where there is very much of it."""
        assert self._open is not None
        if self.journal.rows + len(batch) > 2 * self._most_rows:
            self.clear()
        journal, start = self.journal, self.journal.rows
        now = max(float(journal.column("time")[start - 1]), self._open.span[0]) if start else self._open.span[0]
        journal.add(batch, self.terms.backend)
        self._state.fit(journal.key_room, len(batch), journal.rows - journal.start, 0)
        self._change_sides(journal.column("key")[start : journal.rows], batch.treatment)
        for part, running in self._open.parts:
            self._fed(part, running, (start, journal.rows), now)

    def close(self, late: Sequence[Part] = ()) -> tuple[Array, list[PartRows]]:
        """Ends the interval. late: parts whose settings in it are known only now; their lanes were not among those that
        were opened. Returns the interval's traffic (envs.traffic.FEATURES), and a result for each part, the late ones
        last; NaN where keys were taken out of it."""
        assert self._open is not None
        journal, row = self.journal, np.full(len(FEATURES), np.nan)
        span, interval, parts = self._open.span, (journal.start, journal.rows), list(self._open.parts)
        self._state.fit(journal.key_room, journal.rows - journal.start, journal.rows - journal.start, 0)
        for part in late:
            parts.append((part, self._begun(part)))
            self._fed(*parts[-1], interval, span[0])
        done = [self._finished(part, running, interval) for part, running in parts]
        key, prompt, output = (journal.column(name) for name in ("key", "prompt", "output"))
        traffic_row(key, prompt, output, (journal.earlier, *interval), journal.counting(), row)
        if self._open.spoiled:
            row[:] = np.nan
            done = [PartRows(np.full_like(one.rows, np.nan), np.full_like(one.tallies, np.nan)) for one in done]
        journal.turn()
        self._open, self.index = None, self.index + 1
        return row, done

    def tend(self, forget_seconds: float = -np.inf) -> None:
        """Clears where much has gathered, and makes room. Takes its time now and then; for when nobody waits."""
        if self.journal.rows > self._most_rows or self._state.listed > self._most_listed:
            self.clear(forget_seconds)
        self.journal.make_key_room(self.journal.keys + self.journal.keys // 8)
        self._state.fit(self.journal.key_room, 0, 0, 0)

    def thin(self, rate: float, share: float) -> None:
        """Takes out all keys at or above `rate`; share: of the keys that there were. Of the interval that is open
        nothing is known then."""
        self._bytes = {arm: share * capacity for arm, capacity in self._bytes.items()}
        if self._open is not None:
            parts = []
            for part, running in self._open.parts:
                running.settings[:, 0] *= share
                running.sums[:] = 0.0
                parts.append((replace(part, share=share * part.share), running))
            self._open = _Open(self._open.span, tuple(parts), spoiled=True)
        self.clear(rate=rate)

    def clear(self, forget_seconds: float = -np.inf, rate: float = 1.0) -> None:
        """Takes out requests that no lane needs. Keys at or above `rate` go altogether. Keys that nobody has asked for
        since `forget_seconds`, and that no lane holds, are forgotten: they are new when they come again."""
        journal = self.journal
        rows, held = np.zeros(journal.rows, np.bool_), np.zeros(journal.keys, np.bool_)
        mark(self._state.lanes.entry, journal.keys, rows, held)
        if not self.terms.plain:
            mark_remembered(self._state.lanes, journal.keys, rows, held)
        key = journal.column("key")[: journal.rows]
        rows[journal.earlier :] = True  # drift and candidates look back at it
        rows[self._chosen] = True
        held[key[rows]] = True
        held |= journal.of_keys("asked")[: journal.keys] >= forget_seconds
        held &= places(journal.ids) < rate
        rows &= held[key]
        known, chosen = journal.keys, self._chosen[rows[self._chosen]]
        row_to, key_to = journal.keep(rows, held)
        if not self.terms.plain:
            take_out(self._state.lanes, known, key_to)
        renumber(self._state.lanes, known, row_to, key_to)
        if not self.terms.plain:
            renumber_remembered(self._state.lanes, known, row_to, key_to)
        self._chosen = row_to[chosen]
        self._most_rows, self._most_listed = max(ROWS, 2 * journal.rows), max(LISTED, 2 * self._state.listed)
        for _, running in () if self._open is None else self._open.parts:
            for lane, misses in zip(running.which, running.sums[:, MISSED].astype(int), strict=True):
                missed = self._state.lanes.missed[lane]
                missed[:misses] = row_to[missed[:misses]]

    def occupied(self, names: Sequence[Hashable]) -> Array:
        """Bytes that each group of keys takes in each of these lanes now: (lanes, GROUPS)."""
        which = np.array([self._state.names[name] for name in names], np.int64)
        held, group = np.zeros((len(names), GROUPS)), (self.journal.ids % np.uint64(GROUPS)).astype(np.uint8)
        occupied(self._state.lanes.entry, which, group, held)
        return held

    def unite(self) -> None:
        """All keys become the control arm's, with what the treatment arm's lane holds."""
        key = np.flatnonzero(self.journal.of_keys("treatment")[: self.journal.keys]).astype(np.int32)
        self._hand_over(key, np.zeros(len(key), np.bool_))

    def _candidates(self, rate: float) -> Array:
        """Of the interval to come, before its requests."""
        journal, chosen = self.journal, np.zeros(self.terms.candidates(rate), np.int32)
        if self.index == 0 or not len(chosen):
            return chosen[:0]
        number = rank(
            journal.column("key"),
            (journal.earlier, journal.rows),
            self.index,
            max(journal.keys, 1),
            journal.popularity(),
            self._chosen,
            self.terms.popularity_decay,
            chosen,
        )
        return chosen[:number]

    def _change_sides(self, key: Array, treatment: Array) -> None:
        """Keys that are asked for on the other side than before, by their last request."""
        distinct, last = np.unique(key[::-1], return_index=True)
        side = treatment[::-1][last]
        changed = side != self.journal.of_keys("treatment")[distinct]
        self._hand_over(distinct[changed], side[changed])

    def _hand_over(self, key: Array, treatment: Array) -> None:
        self.journal.of_keys("treatment")[key] = treatment
        control, other = self._state.names.get(Arm.CONTROL), self._state.names.get(Arm.TREATMENT)
        if control is None or other is None or not len(key):
            return
        lanes, taker = self._state.lanes, np.where(treatment, other, control)
        giver = control + other - taker
        if self.terms.plain:
            hand_over(lanes.entry, lanes.cursor, key, giver, taker)
        else:
            # an arm that was in no interval yet counts as large as the other
            known = max(self._bytes.values(), default=0.0)
            control_bytes, other_bytes = (int(self._bytes.get(arm, known)) for arm in (Arm.CONTROL, Arm.TREATMENT))
            capacity = np.where(treatment, other_bytes, control_bytes)
            hand_over_by_touch(lanes, key, (giver, taker), capacity, self.journal.column("time"))

    def _begun(self, part: Part) -> Running:
        """At the beginning of the interval that is open."""
        count = len(part.lanes)
        settings = np.array([self.terms.numbers(one) for one in part.lanes.values()]).reshape(
            count, 3 if self.terms.plain else 4
        )
        settings[:, 0] *= part.share
        which = np.array([self._state.names[name] for name in part.lanes], np.int64)
        self._bytes |= {arm: settings[i, 0] for i, arm in enumerate(part.lanes) if isinstance(arm, Arm)}
        before, sums = np.zeros((count, kernel.COUNTS), np.int64), np.zeros((count, SUMS))
        running = Running(which, settings, before, sums, np.zeros((count, GROUPS, TALLIES)))
        scene = self._scene(part, (self.journal.start, self.journal.start))
        begin(scene, for_share(self._state.lanes, part.share), running, self.journal.column("group"))
        return running

    def _fed(self, part: Part, running: Running, rows: tuple[int, int], now: float) -> None:
        lanes = for_share(self._state.lanes, part.share)
        feed(self._scene(part, rows), lanes, running, self.journal.column("group"), now)

    def _finished(self, part: Part, running: Running, interval: tuple[int, int]) -> PartRows:
        rows = np.full((len(running.which), STATS), np.nan)
        finish(self._scene(part, interval), self._state.lanes, running, rows)
        return PartRows(rows, running.tallies)

    def _scene(self, part: Part, edges: tuple[int, int]) -> Scene:
        assert self._open is not None
        journal, terms, chosen = self.journal, self.terms, self._chosen
        if part.arm is not None:
            side = journal.of_keys("treatment")[journal.column("key")[chosen]]
            chosen = chosen[side == (part.arm is Arm.TREATMENT)]
        return Scene(
            journal.requests(part.arm),
            journal.load(),
            journal.column("gpu"),
            np.array(edges, np.int64),
            *self._open.span,
            chosen.reshape(1, -1),
            np.array([len(chosen)], np.int32),
            in_miniature(terms.backend, part.share),
            terms.tariff,
            terms.objective_seconds,
            terms.sequence_tokens,
            terms.since_touch,
        )


def compile_kernels(terms: Terms) -> None:
    """Runs everything once on next to nothing: the first interval need not wait for a compiler."""
    ghosts, settings = GhostLanes(terms), KnobSettings(1.0, 1.0, 1.0)
    ghosts.follow(dict.fromkeys(Arm))
    one = np.ones(1, np.int32)
    for index in range(2):
        parts = [Part({Arm.CONTROL: settings}, 1.0), Part({Arm.TREATMENT: settings}, 1.0, Arm.TREATMENT)]
        ghosts.open((float(index), 1.0), 1.0, parts)
        ids, own = one.astype(np.uint64), one.astype(np.float32)
        ghosts.feed(Batch(ids, np.array([float(index)]), one, own, one, one, one == index))
        ghosts.close()
        ghosts.clear()
    ghosts.occupied(list(Arm))


def in_miniature(backend: Backend, share: float) -> Backend:
    """In front of it a share of the requests waits about as long as all do in front of the whole: the same share of the
    sequences, at least one, and of the memory."""
    return backend._replace(
        slots=max(1, round(share * backend.slots)),
        vram_bytes=share * backend.vram_bytes,
        weights_bytes=share * backend.weights_bytes,
    )
