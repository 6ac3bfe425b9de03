"""The report of an evaluation: the answer in words, and every number as it was measured.

The tracks (tests/agents/tracks_by_hand.py) cost 10 USD per 1,000 requests at the defaults, 8 at best static, 6 and 7 by
PPO, 4 at the bound; the test is four hours of 1,000 requests, so a day costs six times as much.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from agents.summary import behaviour, causes, comparison, sentences
from agents.tracks import Track
from agents.units import usd
from api.report.evaluation import evaluation_page
from api.report.material import Material
from api.report.page import Page, PageTable, Picture, render, typeset
from api.report.pictures import cost_picture
from api.report.wording import less
from envs.interval import COLUMN, NAMES
from tests.agents.tracks_by_hand import REQUESTS, four_tracks, track
from tests.api.html_pages import HtmlPage
from tests.api.report_by_hand import REASON, material

IS_COST = np.array([name.endswith("_usd") for name in NAMES])
IS_REQUESTS = np.arange(len(NAMES)) == COLUMN["requests"]
HOSTILE = '<script>alert(1)</script>"'


def read(made: Material) -> HtmlPage:
    page = HtmlPage(render(evaluation_page(made)))
    assert page.faults == []
    assert page.outside() == []
    return page


def figures(page: Page) -> dict[str, str]:
    return {figure.label: figure.value for figure in page.figures}


def tables(page: Page) -> dict[str, PageTable]:
    return {block.caption: block for part in page.sections for block in part.blocks if isinstance(block, PageTable)}


def test_report_of_a_promoted_policy_leads_with_the_answer() -> None:
    page = evaluation_page(material())
    assert page.lead[0] == (
        "You pay 10 USD per 1,000 requests now, at the default settings. You would pay 8 USD with the best static "
        "setting (20.0 % less), and 6 USD with policy version 10 (40.0 % less)."
    )
    assert page.lead[2] == "Version 10 has earned promotion."
    assert figures(page) == {
        "You pay now": "10 USD",
        "You would pay": "6 USD",
        "Saving": "40.0 %",
        "How sure": "40.0 to 40.0 %",  # the same saving in every interval
        "Moving with the traffic saves": "18.75 %",  # 1.5 of 8 USD, the mean of 25 and 12.5 %
    }
    assert page.figures[2].note == "24 USD a day at the traffic of the test"


def test_options_stand_in_a_table_with_what_is_advised_marked() -> None:
    table = tables(evaluation_page(material()))["Cost on the test traffic"]
    assert table.rows == (
        ("the default settings", "10", "60", "now", "–"),
        ("the best static setting", "8", "48", "20.0 % less", "20.00 to 20.00 % less"),
        ("policy version 10", "6", "36", "40.0 % less", "40.00 to 40.00 % less"),
        ("clairvoyant bound", "4", "24", "60.0 % less", "60.00 to 60.00 % less"),
    )
    assert table.highlighted == {2}


def test_settings_are_named_in_units_that_people_read() -> None:
    text = read(material()).text.replace("\u00a0", " ")
    assert "training traffic: cache size 191 MiB, lifetime (TTL) 10 min, warm-up share 0.25. The default" in text
    assert "settings are cache size 95.4 MiB, lifetime (TTL) 1 h, warm-up share 0." in text


def test_a_policy_that_is_not_promoted_is_not_advised() -> None:
    page = evaluation_page(material(reasons=(REASON,)))
    assert figures(page)["You would pay"] == "8 USD"
    assert figures(page)["Saving"] == "20.0 %"
    assert page.lead[2] == (
        "Version 10 has not earned promotion; by this evaluation the best static setting is the safe choice."
    )
    assert tables(page)["Cost on the test traffic"].highlighted == {1}
    assert REASON in read(material(reasons=(REASON,))).text


def costing(*learned: float) -> list[Track]:
    """Default 10, best static 8, the learned as given, bound 4 USD."""
    default, best, *_, bound = four_tracks()
    ran = [track(f"PPO seed {seed}", "learned", [cost / 4] * 4) for seed, cost in enumerate(learned)]
    return [default, best, *ran, bound]


@pytest.mark.parametrize(
    ("learned", "said"),
    [
        ((9.0, 9.2), "PPO does not win here: it costs more than the best static setting."),
        ((8.0, 8.0), "PPO does not win here: it costs exactly what the best static setting costs."),
        (
            (6.0, 7.0),  # over two seeds a t-interval is wide: 18.75 ± 12.7 · 6.25 %
            "PPO is not shown to win here: it is cheaper than the best static setting on these days, but an interval "
            "of the saving reaches below zero.",
        ),
        ((6.0, 6.1), "PPO wins here: its saving over the best static setting is above zero within its intervals."),
    ],
)
def test_it_says_plainly_whether_ppo_wins(learned: tuple[float, ...], said: str) -> None:
    made = material(costing(*learned))
    assert said in evaluation_page(made).lead[1]
    assert read(made).text.count(said) == 2  # there and below "How sure that is"


def test_it_names_what_is_as_cheap_without_learning() -> None:
    tracks = four_tracks()
    tracks.insert(2, track("what-if", "baseline", [1.5] * 4))
    assert "Without any learning, what-if is at least as cheap." in read(material(tracks)).text


def test_with_a_champion_that_is_what_is_paid_now() -> None:
    rival = replace(track("PPO seed 7", "learned", [1.75] * 4), name="champion, version 3", role="champion", version=3)
    made = material([*four_tracks()[:-1], rival, four_tracks()[-1]], champion=3, reasons=(REASON,))
    page = evaluation_page(made)
    assert page.lead[0].startswith("You pay 7 USD per 1,000 requests now, with the champion, version 3.")
    assert page.lead[2].endswith("by this evaluation nothing needs to change.")  # best static would cost 8
    assert figures(page)["Saving"] == "none"
    assert ("the champion, version 3", "7", "42", "now", "–") in tables(page)["Cost on the test traffic"].rows
    assert "which the registry names as the policy in use" in read(made).text


def test_the_champion_itself_is_judged() -> None:
    made = material(champion=10, reasons=("Version 10 is the champion already.",))
    page = evaluation_page(made)
    assert page.lead[0] == (
        "You pay 6 USD per 1,000 requests now, with policy version 10. You would pay 8 USD with the best static "
        "setting (33.3 % more)."
    )
    assert page.lead[2] == "Version 10 is the champion already."
    assert "is not promoted" not in read(made).text


def test_every_number_of_the_tables_is_the_evaluation_s() -> None:
    made = material()
    page, text = evaluation_page(made), read(made).text
    for table in (comparison(made.evaluation), behaviour(made.evaluation), causes(made.evaluation)):
        assert any(shown.columns == table.columns and shown.rows == table.rows for shown in tables(page).values())
    for policy in made.evaluation.policies:
        assert usd(policy.usd_per_1000) in text
    for sentence in (*sentences(made.evaluation), *made.evaluation.notes, *made.evaluation.warnings):
        assert typeset(" ".join(sentence.split())).replace("\u00a0", " ") in text.replace("\u00a0", " ")
    assert "captured 0.38 as a mean of 2 seeds" in text  # of 4 USD, 2 and 1


def moving() -> list[Track]:
    """Seed 0 doubles the cache in the second hour and keeps it; its range is 1e6 to 1e9 bytes."""
    tracks = four_tracks()
    settings = np.array([[2e8, 600.0, 0.25], *[[4e8, 600.0, 0.25]] * 3])
    tracks[2] = replace(tracks[2], settings=settings)
    return tracks


def test_changes_are_counted_and_placed() -> None:
    """One move in four hours is six a day. 2 of a range of 1,000 is ln 2 / ln 1000 = 0.1003 of it."""
    page = evaluation_page(material(moving()))
    words = read(material(moving())).text
    assert "In 1 of 4 intervals it moved a setting by more than 1 % of its range: 6.0 times a day." in words.replace(
        "\u00a0", " "
    )
    assert "It was busiest from 01:00:00 to 02:00:00, when 100 % of the intervals" in words.replace("\u00a0", " ")
    shown = tables(page)
    assert shown["Settings of version 10 over the test"].rows[0] == (
        "cache size", "191 MiB", "191 MiB", "381 MiB", "381 MiB", "1",
    )  # fmt: skip
    assert shown["Limits of the settings"].rows[0][-1] == "×/÷ 2"
    assert "It kept the best static setting throughout." in read(material()).text


def test_broken_constraints_are_counted() -> None:
    """Limits are 2 s and 0.05; the policy breaks one in hour 1 and both in hour 3: two unsafe intervals."""
    tracks = four_tracks()
    tracks[2] = track(
        "PPO seed 0", "learned", [1.5] * 4, p99_ttft_seconds=[3.0, 1.0, 2.5, 2.0], stale_ratio=[0.0, 0.0, 0.06, 0.05]
    )
    limits = {"p99_ttft_seconds": 2.0, "stale_ratio": 0.05}
    made = material(tracks, {"constraints": limits})
    said = "Version 10 broke a constraint in 2 of 4 intervals, the best static setting broke one in none."
    assert f"{said} Tolerated are 1 in 1,000." in read(made).text
    table = tables(evaluation_page(made))["Constraints, and in how many of 4 intervals each was broken"]
    assert table.columns[2:] == ("the default settings", "the best static setting", "policy version 10")
    assert table.rows == (
        ("P99 of the time to the first token", "at most 2 s", "0", "0", "2"),
        ("outdated answers among hits", "at most 0.05", "0", "0", "1"),
    )


def test_provenance_is_complete() -> None:
    footer = dict(evaluation_page(material()).footer)
    assert footer["Report made on"] == "2026-02-03"
    assert footer["SHA-256 of the trace"] == "ab" * 32
    assert footer["Intervals"] == "of 1 h: training 0 to 60, validation 60 to 80, test 80 to 84 (the end not included)"
    assert footer["Policy versions and seeds"] == "10 (seed 0), 11 (seed 1)"
    assert footer["Software"] == "setpoint 0.1.0, python 3.11.2"
    assert footer["MLflow run"] == "abc123"
    notes = evaluation_page(material()).notes
    assert notes[-1] == "Assumption: Made up."


def test_hostile_names_are_text() -> None:
    made = material(setting={"trace": HOSTILE, "source": HOSTILE, "assumptions": (HOSTILE,), "prices": {HOSTILE: 1.0}})
    page = read(made)
    assert page.all("script") == []
    assert page.text.count(HOSTILE) >= 4


def test_other_bounds_are_shown_too() -> None:
    """Whatever has "bound" in its role is one."""
    ghosts = Track("ghost bound", "ghost bound", track("x", "bound", [0.75] * 4).rows, None, None)  # type: ignore[arg-type]
    made = material([*four_tracks(), ghosts])
    assert "The ghost bound, which knows the future, costs 3 USD per 1,000 requests" in read(made).text.replace(
        "\u00a0", " "
    )


def test_pictures_show_the_judged_version_and_are_described() -> None:
    page = evaluation_page(material(moving()))
    pictures = [block for part in page.sections for block in part.blocks if isinstance(block, Picture)]
    assert len(pictures) == 3
    for picture in pictures:
        assert isinstance(picture.content, str)
        assert len(picture.alt.split()) > 10
    labels = re.findall(r">([^<>]+)</text>", str(pictures[1].content))
    assert {"version 10", "other seeds", "best static setting", "Cache size", "Warm-up share"} <= set(labels)


def test_an_hour_without_requests_leaves_a_gap_in_the_cost() -> None:
    """Of best static: nothing in the first hour, then 2 USD for 300, 500 and 100 requests."""
    quiet = [0.0, *REQUESTS[1:]]
    tracks = [replace(one, rows=np.where(IS_REQUESTS, np.array([quiet]).T, one.rows)) for one in four_tracks()]
    drawing = cost_picture(material(tracks)).content
    paths = re.findall(r'<path d="([^"]*)"', str(drawing))
    assert all(path.startswith("M250.0") for path in paths[:3])
    assert all(path.startswith("M0.0") for path in paths[3:])


def test_nothing_paid_gives_no_percentages() -> None:
    made = material([replace(one, rows=np.where(IS_COST, 0.0, one.rows)) for one in four_tracks()])
    page = evaluation_page(made)
    assert figures(page)["You pay now"] == "0 USD"
    assert figures(page)["How sure"] == "–"
    read(made)


@pytest.mark.parametrize(
    ("now", "then", "text"),
    [(10.0, 8.0, "20.0 % less"), (8.0, 10.0, "25.0 % more"), (8.0, 8.0, "the same"), (0.0, 1.0, "more")],
)
def test_differences_in_words(now: float, then: float, text: str) -> None:
    assert less(now, then) == text
