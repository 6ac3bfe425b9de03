"""Freeze windows: when an operator wants nothing to change, by the clock on the wall of some place.

    Mon-Fri 09:00-17:00 Europe/Berlin          every week; also "Mon,Wed" and "daily"
    Fri 22:00-06:00 UTC                        from Friday evening into Saturday
    2026-12-24T00:00/2026-12-27T00:00 UTC      once

Ends are not in the window; 24:00 is the end of a day. A day's window belongs to the day that it begins on. When a clock
is put back, an hour on the wall comes twice, and both count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from caches.errors import InputError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EXPECTED = "a window such as 'Mon-Fri 09:00-17:00 Europe/Berlin' or '2026-12-24T00:00/2026-12-27T00:00 UTC'"
_WEEKLY = re.compile(r"(?P<days>\S+)\s+(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d)\s+(?P<zone>\S+)")
_ONCE = re.compile(r"(?P<start>\d{4}-\d\d-\d\dT\d\d:\d\d)/(?P<end>\d{4}-\d\d-\d\dT\d\d:\d\d)\s+(?P<zone>\S+)")
_DAY_MINUTES = 24 * 60


@dataclass(frozen=True)
class Weekly:
    """days: 0 is Monday. start, end: minutes of the day; an end up to the start is on the next day."""

    days: frozenset[int]
    start: int
    end: int
    zone: tzinfo

    def end_of(self, now_seconds: float) -> datetime | None:
        """When the window ends that `now` lies in; None outside."""
        local = datetime.fromtimestamp(now_seconds, self.zone)
        minute = local.hour * 60 + local.minute
        length = (self.end - self.start) % _DAY_MINUTES or _DAY_MINUTES
        for days_ago in (0, 1):
            since = minute - self.start + days_ago * _DAY_MINUTES
            if 0 <= since < length and (local.weekday() - days_ago) % 7 in self.days:
                midnight = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0) - timedelta(days=days_ago)
                return midnight + timedelta(minutes=self.start + length)
        return None


@dataclass(frozen=True)
class Once:
    """From start to end, with their zone."""

    start: datetime
    end: datetime

    def end_of(self, now_seconds: float) -> datetime | None:
        return self.end if self.start.timestamp() <= now_seconds < self.end.timestamp() else None


Window = Weekly | Once


def parse_window(text: str) -> Window:
    """InputError where it is no freeze window."""
    for pattern, build in ((_WEEKLY, _weekly), (_ONCE, _once)):
        if found := pattern.fullmatch(text.strip()):
            return build(text, **found.groupdict())
    raise _error(text)


def frozen_until(windows: tuple[Window, ...], now_seconds: float) -> datetime | None:
    """The latest end of the windows that hold now, on that window's clock; None outside all of them."""
    ends = [end for window in windows if (end := window.end_of(now_seconds)) is not None]
    return max(ends, key=datetime.timestamp, default=None)


def _weekly(text: str, days: str, start: str, end: str, zone: str) -> Window:
    first, last = _minute(text, start), _minute(text, end)
    if first in {last, _DAY_MINUTES}:
        raise _error(text, ": it holds no time")
    return Weekly(_days(text, days), first, last % _DAY_MINUTES, _zone(text, zone))


def _once(text: str, start: str, end: str, zone: str) -> Window:
    place = _zone(text, zone)
    try:
        first, last = (datetime.fromisoformat(one).replace(tzinfo=place) for one in (start, end))
    except ValueError as error:
        raise _error(text, f": {error}") from error
    if first.timestamp() >= last.timestamp():
        raise _error(text, ": it holds no time")
    return Once(first, last)


def _days(text: str, days: str) -> frozenset[int]:
    if days.lower() == "daily":
        return frozenset(range(7))
    found: set[int] = set()
    for part in days.lower().split(","):
        first, dash, last = part.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise _error(text, f": {part!r} is no day")
        begin = DAYS.index(first)
        span = (DAYS.index(last) - begin) % 7 if dash else 0
        found |= {(begin + day) % 7 for day in range(span + 1)}
    return frozenset(found)


def _minute(text: str, time: str) -> int:
    hour, minute = int(time[:2]), int(time[3:])
    if minute > 59 or hour * 60 + minute > _DAY_MINUTES:
        raise _error(text, f": {time!r} is no time of the day")
    return hour * 60 + minute


def _zone(text: str, zone: str) -> tzinfo:
    if zone == "UTC":  # known without a database of zones
        return UTC
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise _error(text, f": this machine knows no time zone {zone!r} (the package tzdata has them)") from error


def _error(text: str, why: str = "") -> InputError:
    return InputError(f"freeze: got {text!r}, expected {EXPECTED}{why}")
