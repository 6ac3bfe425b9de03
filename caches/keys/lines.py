"""Lines of a prompt that say when it was made or who carried it, and not what is asked. Pure.

A line is one of these as a whole: `Current time: 2026-11-30T10:34:26Z`, `request-id: 4f1c`. What is not recognised
stays as it is, and counts.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

GONE = "\x00"  # in place of a value that does not count: no prompt has it, and the line itself still counts

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|sept|oct|nov|dec)[a-z]*\.?"
_WEEKDAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?,?[ \t]+)?"
_DATE = rf"""{_WEEKDAY}(?:
      \d{{4}}-\d{{2}}-\d{{2}} | \d{{4}}/\d{{2}}/\d{{2}} | \d{{1,2}}[./]\d{{1,2}}[./]\d{{4}}
    | {_MONTH}[ \t]+\d{{1,2}}(?:st|nd|rd|th)?,?[ \t]+\d{{4}} | \d{{1,2}}(?:st|nd|rd|th)?\.?[ \t]+{_MONTH},?[ \t]+\d{{4}}
)"""
_ZONE = r"(?:z|utc|gmt|[a-z]{3,4}|[+-]\d{2}:?\d{2})(?:[+-]\d{1,2})?"
_LABEL = r"""(?:(?:the|my|user'?s?)[ \t]+)?
    (?:(?:current|today'?s|local|present|server)[ \t]+)?
    (?:utc[ \t]+|local[ \t]+)?
    (?:date[ \t]*(?:/|and|&)[ \t]*time|datetime|date|timestamp|time|today|now|day)
    (?:[ \t]*\((?:utc|local|iso(?:[ \t]*8601)?)\))?"""
_CLOCK_LINE = re.compile(
    rf"""^(?P<before>[ \t]*(?:[-*#>][ \t]*)?{_LABEL}[ \t]*(?:[ \t]+is:?|[:=])[ \t]*)
    (?: (?P<epoch>\d{{10}}|\d{{13}})
      | (?P<date>{_DATE})? (?P<joint>(?:,?[ \t]+at[ \t]+|[T,]?[ \t]*))
        (?P<time>(?P<hour>\d{{1,2}}):\d{{2}}(?::\d{{2}}(?:[.,]\d+)?)?(?P<half>[ \t]?[ap]\.?m\.?)?)?
        (?P<zone>[ \t]*\(?{_ZONE}\)?)?
    )(?P<after>[ \t]*[.;]?[ \t]*)$""",
    re.IGNORECASE | re.VERBOSE | re.MULTILINE | re.ASCII,
)
_SEPARATORS = re.compile(r"[-_ .]+")
HOUR_SECONDS, DAY_SECONDS = 3_600, 86_400


class Clock(StrEnum):
    """How exactly a line with the current time counts: to the letter, by the hour, by the day, or not at all."""

    EXACT = "exact"
    HOUR = "hour"
    DAY = "day"
    GONE = "gone"


def coarse_clock(text: str, clock: Clock) -> str:
    """The text with the value of each clock line cut off as said. A zone is text like any other: it counts by the
    hour, and times in two zones are never compared. A time without a date counts as nothing by the day."""
    if clock is Clock.EXACT:
        return text
    return _CLOCK_LINE.sub(lambda match: match["before"] + _cut(match, clock) + match["after"], text)


def without_values(text: str, labels: frozenset[str]) -> str:
    """The text with the values of lines `LABEL: value` gone. labels: as `label_of` makes them."""
    if not labels or (":" not in text and "=" not in text):
        return text
    return _labelled(labels).sub(rf"\g<1>{GONE}", text)


@lru_cache(64)
def _labelled(labels: frozenset[str]) -> re.Pattern[str]:
    words = ("[-_ .]+".join(map(re.escape, label.split(" "))) for label in sorted(labels))
    return re.compile(
        rf"^([ \t]*(?:[-*#>][ \t]*)?[\"'*]*(?:{'|'.join(words)})[\"'*]*[ \t]*[:=][ \t]*)\S.*$",
        re.MULTILINE | re.IGNORECASE | re.ASCII,
    )


def label_of(written: str) -> str:
    """In one spelling: X-Request-ID, x_request_id and "x request id" are one label."""
    return _SEPARATORS.sub(" ", written).strip().lower()


def _cut(match: re.Match[str], clock: Clock) -> str:
    whole = match[0][len(match["before"]) : len(match[0]) - len(match["after"])]
    if match["epoch"] is None and match["date"] is None and match["time"] is None:
        return whole  # no time in it: "Time: UTC"
    if clock is Clock.GONE:
        return GONE
    if match["epoch"] is not None:
        return _cut_epoch(match["epoch"], HOUR_SECONDS if clock is Clock.HOUR else DAY_SECONDS)
    if clock is Clock.DAY:
        return match["date"] or GONE
    if match["time"] is None:
        return whole
    return f"{match['date'] or ''}{match['joint']}{match['hour']}:00{match['half'] or ''}{match['zone'] or ''}"


def _cut_epoch(written: str, step_seconds: int) -> str:
    """Of Unix time in seconds or milliseconds, down to the step."""
    step = step_seconds * 1_000 if len(written) > 10 else step_seconds
    return f"{int(written) // step * step:0{len(written)}}"
