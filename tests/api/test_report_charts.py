"""Charts as SVG: where lines, ticks and bars stand."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from api.report.charts import (
    Bar,
    Line,
    Panel,
    Pen,
    TimeAxis,
    bar_chart,
    round_ticks,
    stretches,
    time_chart,
)

HOUR, DAY = 3600.0, 86_400.0
PEN = Pen("accent", 2.0, "6 4", 0.5)


def panel(values: list[float], label: str = "a line") -> Panel:
    return Panel("A <title>", (Line(np.array(values), PEN, label),), 0.0, 2.0, ((0.0, "none"), (2.0, "two")))


def paths(svg: str) -> list[str]:
    return re.findall(r'<path d="([^"]*)"', svg)


def test_line_holds_its_value_and_leaves_gaps() -> None:
    """Five stretches of 200 units each, 120 pixels high for 0 to 2: 2 is at the top, 1 in the middle."""
    drawn = time_chart([panel([2.0, 2.0, 1.0, np.nan, 0.0])], TimeAxis(0.0, DAY, False))
    assert paths(drawn) == ["M0.0 0.0H400.0V60.0H600.0M800.0 120.0H1000.0"]
    assert 'style="stroke:var(--accent);stroke-width:2;stroke-opacity:0.5;fill:none;stroke-dasharray:6 4"' in drawn


def test_values_outside_stay_inside_the_panel() -> None:
    assert paths(time_chart([panel([9.0, -9.0])], TimeAxis(0.0, DAY, False))) == ["M0.0 0.0H500.0V120.0H1000.0"]


def test_chart_is_xml_with_words_escaped_and_one_legend() -> None:
    chart = time_chart([panel([1.0]), panel([2.0]), panel([2.0], "")], TimeAxis(0.0, DAY, False))
    texts = [element.text for element in ET.fromstring(chart).iter() if element.tag.endswith("text")]
    assert texts.count("A <title>") == 3
    assert texts.count("a line") == 1
    assert texts.count("two") == 3


def test_places_across_are_shares_so_that_text_keeps_its_size() -> None:
    root = ET.fromstring(time_chart([panel([1.0])], TimeAxis(0.0, DAY, False)))
    assert root.get("width") == "100%"
    assert root.get("viewBox") is None


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (TimeAxis(0.0, DAY, False), "0 day 1, 0.25 06:00, 0.5 12:00, 0.75 18:00, 1 day 2"),
        (TimeAxis(DAY - HOUR, 4 * HOUR, False), "0 23:00, 0.25 day 2, 0.5 01:00, 0.75 02:00, 1 03:00"),
        # 31 January 2024 00:00 UTC is 19,753 days after 1970
        (TimeAxis(19_753 * DAY, 2 * DAY, True), "0 31 Jan, 0.25 12:00, 0.5 1 Feb, 0.75 12:00, 1 2 Feb"),
        (TimeAxis(30.0, 240.0, False), "0.125 00:01, 0.375 00:02, 0.625 00:03, 0.875 00:04"),
    ],
)
def test_ticks_of_time(axis: TimeAxis, ticks: str) -> None:
    assert ", ".join(f"{share:g} {label}" for share, label in axis.ticks()) == ticks


@pytest.mark.parametrize("days", [0.001, 0.05, 0.3, 1.0, 2.8, 10.0, 45.0, 400.0])
def test_ticks_fit_beside_each_other(days: float) -> None:
    shares = [share for share, _ in TimeAxis(12_345.0, days * DAY, False).ticks()]
    assert 1 <= len(shares) <= 7
    assert all(0.0 <= share <= 1.0 for share in shares)


def test_bars_are_as_long_as_their_parts() -> None:
    """The longest fills the width; its half is marked."""
    chart = bar_chart(
        [Bar("one", ((1.0, "cause0"), (3.0, "cause1")), "4"), Bar("two", ((1.0, "cause0"),), "1")],
        [("first", "cause0"), ("second", "cause1")],
        mark=2.0,
    )
    rects = re.findall(
        r'<rect x="([\d.]+%)" y="[\d.]+" width="([\d.]+%)" height="16" style="fill:var\(--(\w+)\)"', chart
    )
    assert rects == [
        ("0.000%", "25.000%", "cause0"),
        ("25.000%", "75.000%", "cause1"),
        ("0.000%", "25.000%", "cause0"),
    ]
    assert re.findall(r'<line x1="([^"]*)" x2="([^"]*)"', chart) == [("50.000%", "50.000%")] * 2


def test_bars_without_length_draw() -> None:
    ET.fromstring(bar_chart([Bar("nothing", ((0.0, "cause0"),), "0")], [], None))
    ET.fromstring(bar_chart([], []))


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0)),
        (0.0432, 0.0581, (0.045, 0.05, 0.055)),
        (-3.0, 8.0, (0.0, 5.0)),
        (2.0, 2.0, (2.0,)),
    ],
)
def test_round_ticks(low: float, high: float, ticks: tuple[float, ...]) -> None:
    assert round_ticks(low, high) == pytest.approx(ticks)


def test_stretches_cover_everything_evenly() -> None:
    assert stretches(np.zeros(3), 720) == [slice(0, 1), slice(1, 2), slice(2, 3)]
    cuts = stretches(np.zeros(1000), 48)
    lengths = {cut.stop - cut.start for cut in cuts}
    assert (len(cuts), cuts[0].start, cuts[-1].stop, lengths) == (48, 0, 1000, {20, 21})
