from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from caches.errors import InputError
from tuner.guards.freeze import frozen_until, parse_window


def at(text: str, zone: str = "Europe/Berlin") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def end(window: str, now: float) -> str | None:
    found = frozen_until((parse_window(window),), now)
    return None if found is None else f"{found:%a %Y-%m-%d %H:%M %Z}"


# 2026-11-30 is a Monday, 2026-12-05 a Saturday.
@pytest.mark.parametrize(
    ("window", "now", "until"),
    [
        ("Mon-Fri 09:00-17:00 Europe/Berlin", "2026-11-30T09:00", "Mon 2026-11-30 17:00 CET"),
        ("Mon-Fri 09:00-17:00 Europe/Berlin", "2026-11-30T08:59", None),
        ("Mon-Fri 09:00-17:00 Europe/Berlin", "2026-11-30T17:00", None),
        ("Mon-Fri 09:00-17:00 Europe/Berlin", "2026-12-05T12:00", None),
        ("mon,Sat 09:00-17:00 Europe/Berlin", "2026-12-05T12:00", "Sat 2026-12-05 17:00 CET"),
        ("Fri-Mon 09:00-17:00 Europe/Berlin", "2026-12-05T12:00", "Sat 2026-12-05 17:00 CET"),
        ("Fri-Mon 09:00-17:00 Europe/Berlin", "2026-12-01T12:00", None),
        ("Mon 22:00-06:00 Europe/Berlin", "2026-12-01T05:59", "Tue 2026-12-01 06:00 CET"),  # Monday's night
        ("Mon 22:00-06:00 Europe/Berlin", "2026-11-30T05:59", None),  # Sunday's night
        ("Mon 22:00-06:00 Europe/Berlin", "2026-11-30T23:00", "Tue 2026-12-01 06:00 CET"),
        ("daily 00:00-24:00 Europe/Berlin", "2026-12-05T23:59", "Sun 2026-12-06 00:00 CET"),
        ("Mon 20:00-24:00 Europe/Berlin", "2026-12-01T00:00", None),
        ("2026-12-24T00:00/2026-12-27T12:00 Europe/Berlin", "2026-12-26T10:00", "Sun 2026-12-27 12:00 CET"),
        ("2026-12-24T00:00/2026-12-27T12:00 Europe/Berlin", "2026-12-27T12:00", None),
        ("2026-12-24T00:00/2026-12-27T12:00 Europe/Berlin", "2026-12-23T23:59", None),
    ],
)
def test_windows_hold_by_the_clock_on_the_wall(window: str, now: str, until: str | None) -> None:
    assert end(window, at(now)) == until


def test_the_same_moment_is_another_hour_elsewhere() -> None:
    noon_in_berlin = at("2026-11-30T12:00")
    assert end("Mon 05:00-07:00 America/New_York", noon_in_berlin) == "Mon 2026-11-30 07:00 EST"
    assert end("Mon 10:00-11:30 UTC", noon_in_berlin) == "Mon 2026-11-30 11:30 UTC"


def test_a_window_follows_summer_time() -> None:
    """09:00 in Berlin is 08:00 UTC in winter and 07:00 UTC in summer."""
    window = "daily 09:00-10:00 Europe/Berlin"
    assert end(window, at("2026-01-15T08:30", "UTC"))
    assert end(window, at("2026-07-15T08:30", "UTC")) is None
    assert end(window, at("2026-07-15T07:30", "UTC"))


def test_of_several_windows_the_latest_end_counts() -> None:
    windows = ("Mon 09:00-17:00 Europe/Berlin", "Mon 09:00-17:00 America/New_York")
    found = frozen_until(tuple(parse_window(one) for one in windows), at("2026-11-30T16:00"))
    assert f"{found:%H:%M %Z}" == "17:00 EST"
    assert frozen_until((), 0.0) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Mon-Fri 09:00-17:00",
        "Mon-Fri 9:00-17:00 UTC",
        "Mon-Fri 09:00-17:61 UTC",
        "Mon-Fri 09:00-24:30 UTC",
        "Mon-Fri 09:00-09:00 UTC",
        "Mon-Fri 24:00-09:00 UTC",
        "Mon-Someday 09:00-17:00 UTC",
        "Mon, Fri 09:00-17:00 UTC",
        "Mon-Fri 09:00-17:00 Europe/Atlantis",
        "Mon-Fri 09:00-17:00 ../../etc/passwd",
        "2026-12-27T00:00/2026-12-24T00:00 UTC",
        "2026-02-30T00:00/2026-03-02T00:00 UTC",
    ],
)
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="freeze: got"):
        parse_window(text)
