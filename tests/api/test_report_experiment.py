"""The report of an experiment as a page: with everything, and honest where there is nothing."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from api.report.arm_charts import COST, HITS, MOST_POINTS, SIZE, WARMUP, arms_picture, saving_picture
from api.report.arm_tables import intervals_table
from api.report.experiment import experiment_page, reckoning
from api.report.experiment_csv import experiment_csv
from api.report.page import render
from api.web.still import stilled
from caches.target import Arm
from tests.api.html_pages import HtmlPage
from tests.api.rest.history import EXPERIMENT, FIRST, INTERVAL, Told, decision, judgement, record
from tuner.records import ExperimentRecord, IntervalRecord
from tuner.service import Account

TOLD = Told()
RUNS = ExperimentRecord(EXPERIMENT, TOLD.cache, FIRST * INTERVAL, None, 4, {"share": 0.2})


def records(number: int = 60) -> list[IntervalRecord]:
    return [record(TOLD, one, arm) for one in range(number) for arm in Arm]


def account(number: int = 60) -> Account:
    return Account(
        RUNS,
        records(number),
        [judgement(TOLD, one) for one in range(13, number)],
        [decision(TOLD, one, Arm.TREATMENT) for one in range(number)],
    )


def said(found: Account) -> str:
    page = HtmlPage(render(experiment_page(reckoning(found))))
    assert page.faults == []
    assert page.outside() == []
    return page.text.replace("\u00a0", " ")


def test_an_experiment_before_its_first_interval() -> None:
    text = said(Account(RUNS, (), ()))
    for sentence in (
        "Version 4 was tried against the operator's static settings, and the experiment still runs.",
        "not judged yet",
        "Saving, realised not known yet",
        "Saving, predicted none",
        "Nothing can be said of the saving yet.",
        "No interval of it is over yet.",
        "Nothing of this was measured yet.",
    ):
        assert sentence in text
    assert "0 USD" not in text


def test_an_experiment_that_is_better() -> None:
    text = said(account())
    for sentence in (
        "Experiment 2026-11-30-a: better",
        "10.00 %",
        "requests longer than 1 s to the first token 1.000 0.900 −0.100 −0.400 to 0.200 0.100",
        "Lead-in, both arms alike: 12 intervals.",
        "Left out: washout 1.",
        "Looked at 47 times.",
    ):
        assert sentence in text


def test_the_design_is_told_setting_by_setting() -> None:
    design = {"plan": {"share": 0.05, "margins": {"error_ratio": None}}, "began_index": 7}
    text = said(replace(account(), experiment=replace(RUNS, design=design)))
    assert "setting value plan.share 0.05 plan.margins.error_ratio not set began_index 7" in text


def test_what_was_saved_is_still_said_when_nobody_is_left_to_compare_with() -> None:
    told = account()
    alone = replace(judgement(TOLD, 60), numbers={}, reasons=("1 of the 2 intervals is over.", "It was better."))
    found, before = reckoning(replace(told, judgements=[*told.judgements, alone])), reckoning(told)
    assert found.judgement == alone
    assert found.compared == told.judgements[-1]
    assert found.saved_percent == before.saved_percent is not None
    assert found.saved_usd_per_1000 == before.saved_usd_per_1000 is not None
    assert "1 of the 2 intervals is over." in said(replace(told, judgements=[*told.judgements, alone]))


def test_numbers_that_a_later_version_may_leave_out() -> None:
    bare = replace(account(), judgements=[replace(judgement(TOLD, 20), numbers={}, reasons=())])
    assert "Nothing of this was measured yet." in said(bare)


# --- pictures ---------------------------------------------------------------------------------------------------------


def paths(svg: object) -> list[str]:
    return re.findall(r'<path d="([^"]*)"', str(svg))


def test_each_arm_has_a_line_with_gaps_where_nothing_is_known() -> None:
    """Interval 30 of 60 is not known, so a line begins anew at 31/60 of 1,000 units."""
    picture = arms_picture(records(), (COST,), "Cost")
    assert picture is not None
    lines = paths(picture.content)
    assert len(lines) == 2
    for line in lines:
        assert line.count("M") == 2
        assert "M516.7" in line
    assert "control" in str(picture.content)


def test_no_picture_of_what_is_not_known() -> None:
    unknown = [replace(one, window=None) for one in records(3)]
    assert arms_picture(unknown, (COST, HITS), "Cost") is None
    assert arms_picture([], (SIZE,), "Settings") is None
    idle = [replace(one, share=0.0) for one in records(3)]
    assert arms_picture(idle, (SIZE,), "Settings") is None
    assert arms_picture(unknown, (COST, SIZE), "Settings") is not None  # the settings are known all the same
    assert saving_picture([], records()) is None
    told_nothing = [replace(judgement(TOLD, one), numbers={}) for one in range(13, 20)]
    assert saving_picture(told_nothing, records()) is None


@pytest.mark.parametrize("warmup", [0.0, 0.3])
def test_a_value_that_never_changes_has_an_axis(warmup: float) -> None:
    same = [replace(one, settings=replace(one.settings, warmup_ratio=warmup)) for one in records(5)]
    picture = arms_picture(same, (WARMUP,), "Settings")
    assert picture is not None
    assert ">0 %</text>" in str(picture.content)
    assert "-" not in "".join(re.findall(r">([^<>]*) %</text>", str(picture.content)))


def test_long_histories_are_thinned() -> None:
    told = replace(TOLD, intervals=1_000)
    many = [record(told, one, Arm.CONTROL) for one in range(1_000)]
    picture = arms_picture(many, (COST,), "Cost")
    assert picture is not None
    assert len(re.findall("[MH]", paths(picture.content)[0])) <= 2 * MOST_POINTS + 2


def test_the_saving_has_its_interval_around_it() -> None:
    picture = saving_picture(account().judgements, records())
    beside = saving_picture(account().judgements, records(), account().decisions)
    assert picture is not None
    assert beside is not None
    assert (">predicted<" in str(beside.content), ">predicted<" in str(picture.content)) == (True, False)
    _, high, low, mean = paths(picture.content)  # the first is the line at zero
    heights = [float(re.findall(r"[\d.]+", line.replace("M", " ").replace("H", " "))[1]) for line in (high, mean, low)]
    assert heights == sorted(heights)
    assert all(math.isfinite(height) for height in heights)


def test_a_drawing_for_a_strict_page_has_no_style_inside() -> None:
    picture = arms_picture(records(), (COST, SIZE), "Cost")
    assert picture is not None
    assert "style=" in str(picture.content)
    still = stilled(picture)
    assert "style=" not in str(still.content)
    assert 'class="indented"' in str(still.content)
    assert 'stroke="var(--accent)"' in str(still.content)
    assert paths(still.content) == paths(picture.content)


# --- tables and CSV ---------------------------------------------------------------------------------------------------


def test_the_table_has_the_newest_rows_first() -> None:
    table = intervals_table(records(), 3)
    assert [row[1] for row in table.rows] == ["control", "treatment", "control"]
    assert table.rows[0][2] == "800"
    unknown = intervals_table([replace(one, window=None) for one in records(1)], 9)
    assert unknown.rows[0][2:7] == ("–",) * 5


def test_text_that_a_spreadsheet_would_run_is_quoted() -> None:
    odd = replace(records(1)[0], window=None, reason="=1+1")
    lines = experiment_csv(Account(RUNS, [odd], [])).splitlines()
    assert "'=1+1" in lines[1]
    assert lines[1].startswith(f"{EXPERIMENT},")
