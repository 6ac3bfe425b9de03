"""The page without a browser: what it says, its forms, logging in, and what it may load."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from agents.units import readable
from api.web.rendering import STATIC
from api.web.surface import surface_of
from caches.knobs import KnobSettings
from caches.target import Arm, Plan, Split
from tests.api.html_pages import HtmlPage
from tests.api.rest.conftest import ADMIN, KEYS, OPERATOR, VIEWER, Client, Place, Placing
from tests.api.rest.history import CACHE, EXPERIMENT, INTERVAL, Told, ended
from tests.api.rest.history import STATIC as SETTINGS
from tuner.records import ControlState, Decision, Mode, Outcome, Tick, Verdict, Wish, WishKind

FORM = "application/x-www-form-urlencoded"


async def page_of(place: Place, path: str = "/", key: str | None = None) -> HtmlPage:
    async with place.client(key, accept="text/html") as client:
        answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    page = HtmlPage(answer.text)
    assert page.faults == []
    return page


def words(page: HtmlPage) -> str:
    return page.text.replace("\u00a0", " ")


# --- what it says -----------------------------------------------------------------------------------------------------


async def test_the_page_says_where_things_stand(place: Place) -> None:
    page = await page_of(place)
    said = words(page)
    for sentence in (
        "A challenger has 20 % of the keys.",
        "The daemon host-1:4711 is at work.",
        "better: it saves money, and nothing else got worse",
        "Saving, realised 10.00 %",
        "Predicted, per 1,000 requests 0.0035 USD",
        "P99 of the time to the first token was 2.4 s, above the objective of 2 s: settings are held.",
        "yours, which a kill restores 256 MiB 1 h 0 %",
    ):
        assert sentence in said
    assert len(page.all("svg")) > 4


async def test_nothing_on_the_page_comes_from_elsewhere(place: Place) -> None:
    page = await page_of(place)
    loaded = [one.get("href", "") for one in page.all("link")] + [one["src"] for one in page.all("script")]
    assert sorted(loaded) == ["/static/icon.svg", "/static/live.css", "/static/live.js", "/static/report.css"]
    assert not any("style" in one for _, one, _ in page.elements)
    async with place.client() as client:
        answer = await client.get("/")
        policy = answer.headers["content-security-policy"]
        for name in loaded:
            assert (await client.get(name)).status_code == 200
        assert (await client.get("/static/nothing.js")).status_code == 404
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    for path in STATIC.iterdir():
        assert not re.search(r"https?://(?!www\.w3\.org)", path.read_text(encoding="utf-8"))


async def test_nothing_yet_is_said_to_be_nothing_and_never_zero(placing: Placing) -> None:
    """A daemon that has begun, before the first interval is over and without an experiment."""
    place = placing(None)
    assert "No daemon has acted on any cache yet" in words(await page_of(place))
    lease = place.ledger.take_lease(CACHE, "d", 0.0, 60.0)
    assert lease is not None
    plan = Plan(Split(), SETTINGS, SETTINGS)
    place.ledger.commit(lease, Tick(ControlState(CACHE, 7, 0.0, None, plan, False)), 0.0)
    page = await page_of(place)
    said = words(page)
    for sentence in (
        "No experiment yet, so nothing was saved that could be proven.",
        "No interval yet whose cost is known.",
        "No interval yet in which hits or latency were measured.",
        "No decision yet.",
        "Nobody has asked for anything yet.",
        "None yet. Make one with setpoint whatif",
        "No daemon is at work: the lease of d ran out",
        "yours, which a kill restores not said",
        "the cache has not confirmed its settings yet",
    ):
        assert sentence in said
    assert page.all("svg") == []
    assert "USD" not in said


async def test_an_eviction_policy_is_told_where_one_is_named(placing: Placing) -> None:
    place = placing(None)
    lease = place.ledger.take_lease(CACHE, "d", 0.0, 60.0)
    assert lease is not None
    chosen = replace(SETTINGS, warmup_ratio=0.05, eviction_policy="s3-fifo")
    plan = Plan(Split("salt", 0.5), SETTINGS, chosen)
    rest: dict[str, Any] = {
        "policy": "ppo",
        "version": 1,
        "mode": Mode.LIVE,
        "verdict": Verdict.ALLOW,
        "reasons": ("why",),
    }
    decision = Decision(CACHE, 7, Arm.TREATMENT, 0.0, **rest, proposed=chosen, limited=chosen)
    place.ledger.commit(lease, Tick(ControlState(CACHE, 7, 0.0, None, plan, False), decisions=(decision,)), 0.0)
    said = words(await page_of(place))
    size = readable(SETTINGS.cache_size, "bytes")
    assert "warm-up eviction policy" in said
    assert re.search(rf"control arm {size} .* the cache's own treatment arm {size} .* 5 % s3-fifo", said)
    assert "yours, which a kill restores not said not said not said not said" in said
    assert ", warm-up 5 %, s3-fifo" in said  # of the decision
    async with place.client() as client:
        told = (await client.get(f"/v1/caches/{CACHE}/settings")).json()
    assert [told[arm]["eviction_policy"] for arm in ("control", "treatment")] == [None, "s3-fifo"]


async def test_older_decisions_are_a_click_away(place: Place) -> None:
    first = await page_of(place)
    (older,) = [one["href"] for one in first.all("a") if "older=" in one.get("href", "")]
    second = await page_of(place, older.partition("#")[0])
    assert "Decisions, older ones" in words(second)
    assert len([one for one in second.all("a") if "older=" in one.get("href", "")]) == 1


async def test_another_cache_is_a_404_for_people(place: Place) -> None:
    async with place.client(accept="text/html") as client:
        answer = await client.get("/?cache=another")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "no daemon has acted on it" in HtmlPage(answer.text).text


# --- asking, without a script -----------------------------------------------------------------------------------------


def fields(page: HtmlPage) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in page.all("input") if one.get("name")}


async def test_the_kill_switch_asks_and_then_is_asked_for_once(placing: Placing) -> None:
    """By links and a form alone; sent twice, it is one wish."""
    place = placing()
    page = await page_of(place)
    (link,) = [one["href"] for one in page.all("a") if one.get("id") == "kill"]
    confirm = await page_of(place, link)
    assert "Your own static settings are restored for all keys, and held until you resume." in words(confirm)
    assert place.ledger.open_wishes(CACHE) == []
    form = fields(confirm) | {"reason": "It burns money."}
    async with place.client(origin="http://127.0.0.1") as client:
        answers = [await client.post("/wish", data=form) for _ in range(2)]
        shown = HtmlPage((await client.get(answers[0].headers["location"])).text)
    assert [answer.status_code for answer in answers] == [303, 303]
    (wish,) = place.ledger.open_wishes(CACHE)
    assert (wish.kind, wish.by, wish.reason) == (WishKind.KILL, "local", "It burns money.")
    assert "Asked for: Kill switch (wish 1). The daemon acts on it at its next tick." in words(shown)


async def test_without_a_daemon_the_kill_switch_says_what_works(placing: Placing) -> None:
    place = placing()
    assert "setpoint kill" not in words(await page_of(place, f"/wish?cache={CACHE}&kind=kill"))
    place.now[0] += 10 * INTERVAL
    assert "The command `setpoint kill` does it without one." in words(
        await page_of(place, f"/wish?cache={CACHE}&kind=kill")
    )
    assert "setpoint kill" not in words(await page_of(place, f"/wish?cache={CACHE}&kind=pause"))


async def test_an_experiment_can_be_started_from_the_page(placing: Placing) -> None:
    told = Told(intervals=3, lead_in=1)
    place = placing(told)
    assert place.lease is not None
    ended(place.ledger, told, place.lease, Outcome.INCONCLUSIVE)
    confirm = await page_of(place, f"/wish?cache={CACHE}&kind=start")
    async with place.client() as client:
        bad = await client.post("/wish", data=fields(confirm) | {"challenger": "four"})
        good = await client.post("/wish", data=fields(confirm) | {"challenger": "4"})
    assert (bad.status_code, good.status_code) == (422, 303)
    (wish,) = place.ledger.open_wishes(CACHE)
    assert (wish.kind, wish.arguments) == (WishKind.START, {"challenger": 4, "design": {}})


@pytest.mark.parametrize("token", ["", "made-up", "é"])
async def test_a_form_of_another_page_is_refused(place: Place, token: str) -> None:
    before = len(place.ledger.wishes(CACHE))
    async with place.client() as client:
        answer = await client.post("/wish", data={"cache": CACHE, "kind": "kill", "token": token})
    assert answer.status_code == 403
    assert len(place.ledger.wishes(CACHE)) == before


async def test_forms_that_are_none(place: Place) -> None:
    async with place.client(**{"content-type": FORM}) as client:
        many = await client.post("/wish", content="&".join(f"a{i}=1" for i in range(30)))
        odd = await client.post("/wish", content=b"\xff\xfe")
    async with place.client() as client:
        other = await client.post("/wish", json={"kind": "kill"})
    assert [many.status_code, odd.status_code, other.status_code] == [400, 400, 415]


async def test_what_may_not_be_asked_is_not_offered(keyed: Place) -> None:
    offered = {}
    for name, key in (("viewer", VIEWER), ("operator", OPERATOR), ("admin", ADMIN)):
        page = await page_of(keyed, key=key)
        offered[name] = [one["id"] for one in page.all("a") if re.match("kill|ask-", one.get("id", ""))]
    assert offered == {
        "viewer": [],
        "operator": ["kill", "ask-pause", "ask-stop", "ask-roll_back"],
        "admin": ["kill", "ask-pause", "ask-stop", "ask-roll_back", "ask-promote"],
    }
    async with keyed.client(VIEWER) as client:
        assert (await client.get(f"/wish?cache={CACHE}&kind=kill")).status_code == 403


# --- logging in -------------------------------------------------------------------------------------------------------


async def logged_in(client: Client, key: str) -> httpx.Response:
    return await client.post("/login", data={"key": key})


async def test_a_browser_logs_in_by_a_key_and_out_again(placing: Placing) -> None:
    place = placing(keys=KEYS)
    async with place.client(accept="text/html") as client:
        sent = await client.get("/")
        assert (sent.status_code, sent.headers["location"]) == (303, "/login")
        assert "API key" in (await client.get("/login")).text
        answer = await logged_in(client, OPERATOR)
        cookie = answer.headers["set-cookie"]
        for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"):
            assert part in cookie
        assert OPERATOR not in cookie
        assert "Secure" not in cookie  # this is plain HTTP
        page = HtmlPage((await client.get("/")).text)
        assert "otto (operator)" in words(page)
        confirm = HtmlPage((await client.get(f"/wish?cache={CACHE}&kind=kill")).text)
        assert (await client.post("/wish", data=fields(confirm))).status_code == 303
        forged = await client.post("/logout", data={"token": "x"})
        left = await client.post("/logout", data={"token": fields(page)["token"]})
        gone = await client.get("/")
    assert [forged.status_code, left.status_code, gone.headers["location"]] == [403, 303, "/login"]
    assert [wish.by for wish in place.ledger.open_wishes(CACHE)] == ["otto"]
    assert [one["event"] for one in place.lines()] == ["login", "wish", "denied", "logout"]


async def test_over_https_the_cookie_stays_there(placing: Placing) -> None:
    place = placing(keys=KEYS)
    async with place.client(url="https://gateway.example") as client:
        assert "Secure" in (await logged_in(client, VIEWER)).headers["set-cookie"]


async def test_a_session_runs_out(placing: Placing) -> None:
    place = placing(keys=KEYS, session_seconds=60.0)
    async with place.client(accept="text/html") as client:
        await logged_in(client, VIEWER)
        assert (await client.get("/")).status_code == 200
        place.now[0] += 60.0
        assert (await client.get("/")).status_code == 303


async def test_a_wrong_key_does_not_log_in(placing: Placing) -> None:
    place = placing(keys=KEYS, failures_per_minute=2)
    async with place.client(accept="text/html", address="10.0.0.3") as client:
        answers = [await logged_in(client, "guess") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [401, 401, 429]
    assert "set-cookie" not in answers[0].headers
    assert "This key is none of this server" in answers[0].text


async def test_another_site_cannot_log_anybody_in(placing: Placing) -> None:
    place = placing(keys=KEYS)
    async with place.client(origin="http://evil.example") as client:
        assert (await logged_in(client, VIEWER)).status_code == 403


# --- the what-if surface ----------------------------------------------------------------------------------------------


def stored() -> dict[str, object]:
    """Three sizes and two lifetimes; the cheapest is the middle size at the longer one."""
    best = {
        "settings": {"cache_size": 2.0**21, "ttl_seconds": 3600.0, "warmup_ratio": 0.0},
        "usd_per_1000": 1.0,
        "safe": True,
    }
    return {
        "subject": {"trace": "shop", "requests": 1000},
        "axes": [
            {"name": "cache_size", "unit": "bytes", "values": [2.0**20, 2.0**21, 2.0**22]},
            {"name": "ttl_seconds", "unit": "s", "values": [60.0, 3600.0]},
        ],
        "usd_per_1000": {"values": [[3.0, 2.5], [2.0, 1.0], [2.2, 1.5]]},
        "best": best,
        "sentences": ["It costs 2.", "It could cost 1.", "More."],
        "more": 1,
    }


def test_the_surface_marks_where_the_cache_is(tmp_path: Path) -> None:
    path = tmp_path / "whatif.json"
    path.write_bytes(orjson.dumps(stored()))
    shown = surface_of(path, KnobSettings(2.0**20, 60.0, 0.0))
    assert shown.table is not None
    assert shown.table.rows == (
        ("1 MiB", "3 (now)", "2.5"),
        ("2 MiB", "2", "1 (best)"),
        ("4 MiB", "2.2", "1.5"),
    )
    assert shown.note == "1,000 requests of shop. It costs 2. It could cost 1."
    assert shown.picture is not None
    assert str(shown.picture.content).count("<rect") == 6
    outside = surface_of(path, KnobSettings(2.0**30, 60.0, 0.0))
    assert "outside of what was tried" in outside.note


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"\xff"])
def test_a_file_that_is_no_what_if_is_said_to_be_none(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "whatif.json"
    path.write_bytes(text)
    shown = surface_of(path, None)
    assert (shown.picture, shown.table) == (None, None)
    assert "is not what setpoint whatif prints" in shown.note
    assert "cannot be read" in surface_of(tmp_path / "none.json", None).note


def test_a_surface_that_does_not_fit_its_axes_is_not_drawn(tmp_path: Path) -> None:
    path = tmp_path / "whatif.json"
    path.write_bytes(orjson.dumps({**stored(), "usd_per_1000": {"values": [[1.0]]}}))
    assert surface_of(path, None).picture is None


async def test_what_was_asked_for_is_listed_with_what_came_of_it(placing: Placing) -> None:
    place = placing()
    place.ledger.wish(Wish(CACHE, WishKind.PAUSE, "ana", place.now[0] - INTERVAL, "<b>upgrade</b>"))
    said = words(await page_of(place))
    assert "1 wish is open." in said
    assert "<b>upgrade</b> open: the daemon acts on it at its next tick" in said  # as text, not as markup


async def test_experiments_link_to_their_reports(place: Place) -> None:
    page = await page_of(place)
    assert f"/v1/experiments/{EXPERIMENT}/report" in [one.get("href") for one in page.all("a")]
