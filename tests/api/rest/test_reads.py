"""Every read of the REST interface, against what the history wrote into a real ledger."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from api.errors import Problem
from api.routes.media import chosen
from caches.target import Arm, Plan, Split
from tests.api.html_pages import HtmlPage
from tests.api.rest.conftest import Place, Placing
from tests.api.rest.history import CACHE, DAEMON, EXPERIMENT, FIRST, INTERVAL, STATIC, Told, decisions, ended, state
from tuner.ledger import DecisionFilter
from tuner.records import ControlState, Outcome, Tick

STATUS = f"/v1/caches/{CACHE}/status"


async def read(place: Place, path: str, **more: Any) -> Any:
    async with place.client() as client:
        answer = await client.get(path, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_caches(place: Place) -> None:
    assert await read(place, "/v1/caches") == {"items": [{"name": CACHE, "status": STATUS}]}


async def test_status(place: Place) -> None:
    told = await read(place, STATUS)
    assert told["index"] == FIRST + 60
    assert (told["phase"], told["experiment"], told["paused"], told["latched"]) == ("canary", EXPERIMENT, None, None)
    assert told["in_words"] == "A challenger has 20 % of the keys."
    assert told["confirmed"] is True
    assert told["split"] == {"treatment": 0.2}
    assert told["lease"] == {
        "holder": DAEMON,
        "fence": 1,
        "until_seconds": (FIRST + 62) * INTERVAL,
        "active": True,
    }
    assert [(one["arm"], one["index"]) for one in told["decisions"]] == [
        ("treatment", FIRST + 60),
        ("control", FIRST + 60),
    ]
    assert [(one["arm"], one["index"]) for one in told["intervals"]] == [
        ("control", FIRST + 59),
        ("treatment", FIRST + 59),
    ]


async def test_a_lease_that_has_run_out_is_not_active_and_changes_the_tag(placing: Placing) -> None:
    """Nothing is written for it: the clock alone says so."""
    place = placing()
    async with place.client() as client:
        alive = await client.get(STATUS)
        place.now[0] += 10 * INTERVAL
        gone = await client.get(STATUS, headers={"if-none-match": alive.headers["etag"]})
    assert (alive.json()["lease"]["active"], gone.status_code, gone.json()["lease"]["active"]) == (True, 200, False)


async def test_settings_and_limits(place: Place) -> None:
    told = await read(place, f"/v1/caches/{CACHE}/settings")
    knobs = {"cache_size_bytes": 2.0**28, "ttl_seconds": 3_600.0, "warmup_ratio": 0.0}
    assert told["control"] == knobs | {"eviction_policy": None}
    assert told["treatment"] == told["control"]  # after 60 intervals it is where it began
    size, ttl, warmup = told["limits"]
    assert size == {
        "name": "cache_size",
        "unit": "bytes",
        "low": 2.0**24,
        "high": 2.0**32,
        "default": 2.0**28,
        "max_step": 0.1,
        "scale": "log",
    }
    assert (ttl["high"], warmup["scale"]) == (86_400.0, "linear")


async def test_limits_that_the_daemon_has_not_said_are_null(placing: Placing) -> None:
    place = placing(None)
    lease = place.ledger.take_lease("other", "d", 0.0, 1e12)
    assert lease is not None
    plan = Plan(Split(), STATIC, STATIC)
    place.ledger.commit(lease, Tick(ControlState("other", 7, 0.0, None, plan, False)), 0.0)
    assert (await read(place, "/v1/caches/other/settings"))["limits"] is None
    assert await read(place, "/v1/caches/other/intervals") == {"items": [], "next": None}
    assert await read(place, "/v1/caches/other/decisions") == {"items": [], "next": None}


async def test_an_interval_says_what_it_cost(place: Place) -> None:
    """Interval 59: cost factor 1 + 0.1 × (59 mod 5 − 2) = 1.2, so 0.048 USD per 1,000 for control, 0.0432 treated."""
    told = await read(place, f"/v1/caches/{CACHE}/intervals", params={"limit": 1})
    control, treatment = told["items"]
    assert control["usd_per_1000_requests"] == pytest.approx(0.048)
    assert treatment["usd_per_1000_requests"] == pytest.approx(0.0432)
    assert treatment["window"]["hit_ratio"] == pytest.approx(0.66)
    assert treatment["window"]["utilisation"] is None
    assert control["ttft_seconds"] is None
    assert (control["share"], treatment["share"]) == (0.8, 0.2)


async def test_an_interval_of_which_nothing_is_known_says_why(place: Place) -> None:
    index = FIRST + 30
    told = await read(place, f"/v1/caches/{CACHE}/intervals", params={"first": index, "last": index, "arm": "control"})
    (only,) = told["items"]
    assert (only["window"], only["usd_per_1000_requests"]) == (None, None)
    assert only["reason"] == "The cache was started anew."
    assert told["next"] is None


async def test_histograms_are_there_where_they_are_asked_for(place: Place) -> None:
    told = await read(place, f"/v1/caches/{CACHE}/intervals", params={"limit": 1, "histograms": "true"})
    assert told["items"][0]["ttft_seconds"]["counts"] == [780, 5, 10, 5, 0, 0]


async def test_intervals_are_paged_to_the_oldest(place: Place) -> None:
    """60 intervals of two arms, 25 to a page, each page in order and the newest page first."""
    seen, path = [], f"/v1/caches/{CACHE}/intervals?limit=25"
    async with place.client() as client:
        while path is not None:
            told = (await client.get(path)).json()
            page = [(one["index"] - FIRST, one["arm"]) for one in told["items"]]
            assert page == sorted(page)
            seen, path = [*page, *seen], told["next"]
    assert seen == [(number, arm.value) for number in range(60) for arm in Arm]


async def test_more_than_a_thousand_decisions_are_paged_each_once(placing: Placing) -> None:
    """505 ticks that decide for two arms, in pages of 97; every tenth of the treatment is held."""
    place, told = placing(None), Told()
    lease = place.ledger.take_lease(CACHE, DAEMON, 0.0, 1e12)
    assert lease is not None
    for number in range(505):
        place.ledger.commit(lease, Tick(state(told, number), decisions=decisions(told, number)), 0.0)
    seen, path, pages = [], f"/v1/caches/{CACHE}/decisions?limit=97", 0
    async with place.client() as client:
        while path is not None:
            answer = await client.get(path)
            body = answer.json()
            assert len(body["items"]) <= 97
            assert ('rel="next"' in answer.headers.get("link", "")) == (body["next"] is not None)
            seen += [(one["index"] - FIRST, one["arm"]) for one in body["items"]]
            path, pages = body["next"], pages + 1
        held = await client.get(f"/v1/caches/{CACHE}/decisions", params={"verdict": "hold", "limit": 100})
        control = await client.get(f"/v1/caches/{CACHE}/decisions", params={"arm": "control", "changed": "true"})
    assert seen == [(number, arm.value) for number in reversed(range(505)) for arm in Arm]
    assert pages == 11
    assert [one["index"] - FIRST for one in held.json()["items"]] == list(range(499, 0, -10))
    assert [one["index"] - FIRST for one in control.json()["items"]] == [0]  # the static settings never change


async def test_a_decision_has_its_reasons(place: Place) -> None:
    told = await read(place, f"/v1/caches/{CACHE}/decisions", params={"verdict": "hold", "limit": 1})
    (held,) = told["items"]
    assert (held["index"], held["arm"], held["mode"], held["version"]) == (FIRST + 59, "treatment", "canary", 4)
    assert held["reasons"][0].startswith("P99 of the time to the first token was 2.4 s")
    assert held["applied"] == held["limited"] == held["proposed"]
    assert held["predicted_usd_per_1000"] == 0.0035


async def test_experiments_and_what_was_said_last(place: Place) -> None:
    listed = await read(place, "/v1/experiments", params={"cache": CACHE})
    assert [one["id"] for one in listed["items"]] == [EXPERIMENT]
    assert (await read(place, "/v1/experiments", params={"cache": "another"}))["items"] == []
    told = await read(place, f"/v1/experiments/{EXPERIMENT}")
    assert told["experiment"] == listed["items"][0]
    assert (told["judgement"]["outcome"], told["judgement"]["index"]) == ("better", FIRST + 59)
    assert told["judgements"] == 47


async def test_report_as_json(place: Place) -> None:
    """Of 60 intervals each arm knows 59. The treatment is predicted to save 0.0035 USD and saves 0.004 per 1,000."""
    told = await read(place, f"/v1/experiments/{EXPERIMENT}/report")
    assert told["outcome"] == "better"
    assert (told["control"]["intervals"], told["control"]["known"]) == (60, 59)
    assert told["control"]["requests"] == pytest.approx(59 * 800)
    assert told["treatment"]["requests"] == pytest.approx(59 * 200)
    # factors 0.8 to 1.2 in turn, 12 times each, but for one of 0.8 (30 mod 5 = 0), which is not known
    assert told["control"]["usd_per_1000_requests"] == pytest.approx(0.04 * (60 - 0.8) / 59)
    assert told["control"]["hit_ratio"] == pytest.approx(0.6)
    # 780 of 800 below 0.1 s, 5 to 0.5 s, 10 to 1 s: the 792nd is the 7th of these ten
    assert told["control"]["p99_ttft_seconds"] == pytest.approx(0.5 + 0.5 * 7 / 10)
    saving = told["saving"]
    assert saving["realised_usd_per_1000_requests"]["mean"] == pytest.approx(0.004)
    assert saving["realised_percent"]["mean"] == 10.0
    assert saving["realised_usd"]["mean"] == pytest.approx(0.004 * 59 * 200 / 1_000)
    assert saving["predicted_usd_per_1000_requests"] == pytest.approx(0.0035)
    ends = saving["realised_usd_per_1000_requests"]
    assert ends["low"] < ends["mean"] < ends["high"]


async def test_report_as_csv(place: Place) -> None:
    async with place.client(accept="text/csv") as client:
        answer = await client.get(f"/v1/experiments/{EXPERIMENT}/report")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 120
    last = rows[-1]
    assert (last["arm"], last["index"], last["outcome"]) == ("treatment", str(FIRST + 59), "better")
    assert float(last["usd_per_1000_requests"]) == pytest.approx(0.0432)
    unknown = [row for row in rows if row["reason"]]
    assert len(unknown) == 2
    assert {row["requests"] for row in unknown} == {""}


async def test_report_as_a_page(place: Place) -> None:
    async with place.client(accept="text/html,application/xhtml+xml;q=0.9,*/*;q=0.8") as client:
        answer = await client.get(f"/v1/experiments/{EXPERIMENT}/report")
    page = HtmlPage(answer.text)
    assert page.faults == []
    assert page.outside() == []
    text = page.text.lower().replace("\u00a0", " ")
    for said in ("version 4 was tried against version 3", "better: it saves money", "10.00 %", "0.0035 usd", "47,200"):
        assert said in text
    assert "script" not in answer.headers["content-security-policy"]


async def test_a_report_that_nobody_offers_is_a_406(place: Place) -> None:
    async with place.client(accept="application/pdf") as client:
        answer = await client.get(f"/v1/experiments/{EXPERIMENT}/report")
    assert (answer.status_code, answer.headers["content-type"]) == (406, "application/problem+json")


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "a/j"),
        ("*/*", "a/j"),
        ("t/c", "t/c"),
        ("t/*", "t/c"),
        ("t/h, */*;q=0.1", "t/h"),
        ("a/j;q=0.2, t/h;q=0.3", "t/h"),
        ("*/*, a/j;q=0", "t/c"),
        ("T/H", "t/h"),
    ],
)
def test_the_accept_header_chooses(accept: str | None, kind: str) -> None:
    assert chosen(accept, ("a/j", "t/c", "t/h")) == kind


def test_an_accept_header_that_refuses_all() -> None:
    with pytest.raises(Problem):
        chosen("*/*;q=0", ("a/j",))


async def test_an_experiment_that_has_ended_keeps_its_account(placing: Placing) -> None:
    told = Told(intervals=20, lead_in=2)
    place = placing(told)
    assert place.lease is not None
    ended(place.ledger, told, place.lease, Outcome.BETTER)
    found = await read(place, f"/v1/experiments/{EXPERIMENT}/report")
    assert found["experiment"]["answer"] == "Promoted."
    assert found["outcome"] == "better"
    # judged from interval 3 on, 17 of them
    assert found["control"]["intervals"] == 17
    assert len(place.ledger.decisions(CACHE, DecisionFilter(limit=100))) == 42


async def test_no_registry_has_no_policies(place: Place) -> None:
    assert await read(place, "/v1/policies") == {"items": []}
    assert await read(place, "/v1/aliases") == {"aliases": {}}


async def test_who_you_are(place: Place) -> None:
    assert await read(place, "/v1/me") == {"name": "local", "role": "admin"}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/caches",
        STATUS,
        f"/v1/caches/{CACHE}/settings",
        f"/v1/caches/{CACHE}/intervals",
        f"/v1/caches/{CACHE}/decisions",
        f"/v1/caches/{CACHE}/wishes",
        "/v1/experiments",
        f"/v1/experiments/{EXPERIMENT}",
        f"/v1/experiments/{EXPERIMENT}/report",
        "/v1/policies",
        "/v1/aliases",
    ],
)
async def test_reads_have_a_tag_and_are_not_sent_twice(place: Place, path: str) -> None:
    async with place.client() as client:
        first = await client.get(path)
        again = await client.get(path, headers={"if-none-match": f'"other", {first.headers["etag"]}'})
        other = await client.get(path, headers={"if-none-match": '"other"'})
    assert first.headers["cache-control"] == "private, no-cache"
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert other.status_code == 200


async def test_a_write_changes_the_tag(placing: Placing) -> None:
    place = placing()
    async with place.client() as client:
        before = await client.get(STATUS)
        await client.post(f"/v1/caches/{CACHE}/wishes", json={"kind": "pause"})
        after = await client.get(STATUS, headers={"if-none-match": before.headers["etag"]})
    assert after.status_code == 200
    assert [one["kind"] for one in after.json()["open_wishes"]] == ["pause"]


async def test_the_kinds_of_a_report_have_tags_of_their_own(place: Place) -> None:
    async with place.client() as client:
        tags = {
            (await client.get(f"/v1/experiments/{EXPERIMENT}/report", headers={"accept": kind})).headers["etag"]
            for kind in ("application/json", "text/csv", "text/html")
        }
    assert len(tags) == 3
