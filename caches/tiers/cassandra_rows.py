"""What stands in the rows of the tier in Cassandra, and what of a slice has to go. Nothing here reaches a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

import orjson

from caches.keys.request_key import Partition, RequestKey
from caches.tiers.tier import Answer, Found, TierError

FORM = 1  # of `about`; rows of another form are of another version, and as good as not there
LATE_SECONDS = 60  # the database's lifetimes only clear away: they end so much after the last second that counts
LONGEST_SECONDS = 20 * 365 * 86_400  # that Cassandra takes for a lifetime


class About(NamedTuple):
    """Of the request that stored it, and of its answer without the body."""

    model: str
    tags: frozenset[str]
    answer: Answer

    def found(self, body: bytes) -> Found:
        known = self.answer
        tokens = known.prompt_tokens, known.output_tokens
        return Found(
            Answer(body, known.written_seconds, known.ttl_seconds, *tokens, known.compute_seconds), tags=self.tags
        )


class Entry(NamedTuple):
    """A row of `entry`. size: None where it was removed, and a touch of it came later. stored_stamp, touched_stamp:
    times of the writes."""

    tenant: str
    namespace: str
    name: bytes
    about: str | None
    size: int | None
    touched: int | None
    stored_stamp: int | None
    touched_stamp: int | None

    @property
    def place(self) -> tuple[str, str, bytes]:
        return self.tenant, self.namespace, self.name

    @property
    def partition(self) -> Partition:
        return Partition(self.tenant, self.namespace)

    @property
    def stamp(self) -> int:
        """Of the latest write."""
        return max(self.stored_stamp or 0, self.touched_stamp or 0)

    @property
    def model(self) -> str:
        return "" if self.known is None else self.known.model

    @property
    def tags(self) -> frozenset[str]:
        return frozenset() if self.known is None else self.known.tags

    @property
    def known(self) -> About | None:
        return None if self.about is None else told(self.about)


@dataclass(frozen=True)
class Plan:
    """What of a slice has to go. entries, used_bytes: what stays. more: whether some has to go that is not listed,
    because `most` was reached."""

    remnants: list[Entry]
    expired: list[Entry]
    evicted: list[Entry]
    entries: int
    used_bytes: int
    more: bool


def about_of(key: RequestKey, answer: Answer) -> str:
    """key: of the request that stores it."""
    line = [
        *(FORM, key.model, sorted(key.tags)),
        *(answer.written_seconds, answer.ttl_seconds),
        *(answer.prompt_tokens, answer.output_tokens, answer.compute_seconds),
    ]
    return orjson.dumps(line).decode()


def told(about: str) -> About | None:
    """None for another form. Raises TierError for what is no row of ours."""
    try:
        form, *line = orjson.loads(about)
        if form != FORM:
            return None
        model, tags, *known = line
        return About(model, frozenset(tags), Answer(b"", *known))
    except (ValueError, TypeError) as error:
        raise TierError(f"cassandra: got a row about {about[:80]!r}, expected one of ours") from error


def left_seconds(answer: Answer, now_seconds: float, ceiling_seconds: float) -> int:
    """The lifetime to give to the database: until it is too old under any that may be set, since a longer one lets live
    on what is there; rounded up, and late."""
    most = ceiling_seconds if answer.ttl_seconds is None else min(answer.ttl_seconds, ceiling_seconds)
    left = ceil(most - (now_seconds - answer.written_seconds)) + LATE_SECONDS
    return min(max(left, 1), LONGEST_SECONDS)


def plan(
    entries: Iterable[Entry],
    too_old: Callable[[Answer], bool],
    touch_of: Callable[[Entry], int],
    limit_bytes: float,
    target_bytes: float,
    most: int,
) -> Plan:
    """What is too old, and, where the rest takes more than the limit, the least recently touched until it takes no more
    than the target: at most so many entries. Whoever plans from the same rows plans the same."""
    remnants, expired, kept = list[Entry](), list[Entry](), list[tuple[int, Entry]]()
    for entry in entries:
        known = entry.known
        if entry.size is None or known is None:
            remnants.append(entry)
        elif too_old(known.answer):
            expired.append(entry)
        else:
            kept.append((touch_of(entry), entry))
    used = sum(size_of(entry) for _, entry in kept)
    late, expired = expired[most:], expired[:most]
    evicted = list[Entry]()
    if used > limit_bytes:
        kept.sort(key=_by_touch, reverse=True)
        while kept and used > target_bytes and len(expired) + len(evicted) < most:
            entry = kept.pop()[1]
            evicted.append(entry)
            used -= size_of(entry)
    more = bool(late) or used > limit_bytes
    held = sum(size_of(entry) for entry in late)
    return Plan(remnants, expired, evicted, len(kept) + len(late), used + held, more)


def size_of(entry: Entry) -> int:
    return entry.size or 0


def _by_touch(pair: tuple[int, Entry]) -> tuple[int, Any]:
    return pair[0], pair[1].place
