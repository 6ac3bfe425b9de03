"""Asking the daemon for something: what is written down, done once, and refused."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.api.rest.conftest import ADMIN, OPERATOR, VIEWER, Place, Placing, placed
from tests.api.rest.history import CACHE, EXPERIMENT, FIRST, INTERVAL, Told, ended, state
from tuner.records import Outcome, Tick, Wish, WishKind

WISHES, EXPERIMENTS = f"/v1/caches/{CACHE}/wishes", f"/v1/caches/{CACHE}/experiments"
PROBLEM = "application/problem+json"


async def ask(place: Place, path: str, body: Any, key: str | None = None, **headers: str) -> httpx.Response:
    async with place.client(key, **headers) as client:
        return await client.post(path, json=body)


async def test_a_wish_is_written_down_for_the_daemon(placing: Placing) -> None:
    place = placing()
    answer = await ask(place, WISHES, {"kind": "kill", "reason": "It costs more than it should."})
    assert answer.status_code == 202
    assert answer.headers["location"] == f"{WISHES}/{answer.json()['id']}"
    (open_wish,) = place.ledger.open_wishes(CACHE)
    expected = Wish(CACHE, WishKind.KILL, "local", place.now[0], "It costs more than it should.", {}, open_wish.id)
    assert open_wish == expected
    async with place.client() as client:
        assert (await client.get(answer.headers["location"])).json() == answer.json()
        listed = (await client.get(WISHES)).json()["items"]
    assert listed == [answer.json()]
    assert place.lines() == [
        {
            "at_seconds": place.now[0],
            "event": "wish",
            "who": "local",
            "address": "127.0.0.1",
            "cache": CACHE,
            "kind": "kill",
            "reason": "It costs more than it should.",
        }
    ]


async def test_what_came_of_a_wish_can_be_read(placing: Placing) -> None:
    place, told = placing(), Told(intervals=3, lead_in=1)
    made = (await ask(place, WISHES, {"kind": "pause"})).json()
    (wish,) = place.ledger.open_wishes(CACHE)
    done = Wish(wish.cache, wish.kind, wish.by, wish.at_seconds, "", {}, wish.id, FIRST + 4, "Settings are held.")
    now = (FIRST + 4) * INTERVAL
    lease = place.ledger.take_lease(CACHE, "host-1:4711", now, 60.0)
    assert lease is not None
    place.ledger.commit(lease, Tick(state(told, 4), wishes=(done,)), now)
    async with place.client() as client:
        found = (await client.get(f"{WISHES}/{made['id']}")).json()
    assert (found["done_index"], found["answer"]) == (FIRST + 4, "Settings are held.")


async def test_an_experiment_is_asked_for_with_what_was_said_of_it(placing: Placing) -> None:
    """Only what was said: the rest is the daemon's default."""
    told = Told(intervals=3, lead_in=1)
    place = placing(told)
    assert place.lease is not None
    ended(place.ledger, told, place.lease, Outcome.INCONCLUSIVE)
    answer = await ask(place, EXPERIMENTS, {"challenger": 5, "design": {"share": 0.1}, "reason": "It is newer."})
    assert answer.status_code == 202
    (wish,) = place.ledger.open_wishes(CACHE)
    assert (wish.kind, wish.arguments) == (WishKind.START, {"challenger": 5, "design": {"share": 0.1}})


async def test_a_running_experiment_is_stopped_by_its_id(placing: Placing) -> None:
    place = placing()
    answer = await ask(place, f"/v1/experiments/{EXPERIMENT}/stop", {"reason": "Enough."})
    assert answer.status_code == 202
    (wish,) = place.ledger.open_wishes(CACHE)
    assert (wish.kind, wish.arguments) == (WishKind.STOP, {"experiment": EXPERIMENT})


@pytest.mark.parametrize("kind", ["stop", "promote", "release"])
async def test_what_would_change_nothing_is_refused(placing: Placing, kind: str) -> None:
    """Where no experiment runs, and nothing was rolled back."""
    told = Told(intervals=3, lead_in=1)
    place = placing(told)
    assert place.lease is not None
    ended(place.ledger, told, place.lease, Outcome.BETTER)
    answer = await ask(place, WISHES, {"kind": kind})
    assert (answer.status_code, answer.headers["content-type"]) == (409, PROBLEM)
    assert place.ledger.open_wishes(CACHE) == []
    stopped = await ask(place, f"/v1/experiments/{EXPERIMENT}/stop", {})
    assert stopped.status_code == 409


async def test_two_experiments_do_not_run_at_once(placing: Placing) -> None:
    answer = await ask(placing(), EXPERIMENTS, {"challenger": 5})
    assert (answer.status_code, answer.json()["detail"]) == (409, "An experiment runs: stop it first.")


# --- idempotency ------------------------------------------------------------------------------------------------------


async def test_the_same_key_and_body_are_done_once(placing: Placing) -> None:
    place = placing()
    answers = [
        await ask(place, WISHES, {"kind": "pause", "reason": "x"}, **{"idempotency-key": "k1"}) for _ in range(3)
    ]
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert len(place.ledger.wishes(CACHE)) == 1
    assert len(place.lines()) == 1


async def test_the_answer_is_the_same_after_the_daemon_acted(placing: Placing) -> None:
    """Also where the wish would be refused by now: it was done."""
    place, told = placing(), Told(intervals=3, lead_in=1)
    first = await ask(place, WISHES, {"kind": "stop"}, **{"idempotency-key": "k1"})
    assert place.lease is not None
    ended(place.ledger, told, place.lease, Outcome.INCONCLUSIVE)
    again = await ask(place, WISHES, {"kind": "stop"}, **{"idempotency-key": "k1"})
    assert (again.status_code, again.content) == (202, first.content)


async def test_the_same_key_with_another_body_is_refused(placing: Placing) -> None:
    place = placing()
    await ask(place, WISHES, {"kind": "pause"}, **{"idempotency-key": "k1"})
    answer = await ask(place, WISHES, {"kind": "kill"}, **{"idempotency-key": "k1"})
    assert (answer.status_code, answer.headers["content-type"]) == (422, PROBLEM)
    assert [one.kind for one in place.ledger.wishes(CACHE)] == [WishKind.PAUSE]


async def test_without_a_key_or_with_another_it_is_another_wish(placing: Placing) -> None:
    place = placing()
    for headers in ({}, {}, {"idempotency-key": "a"}, {"idempotency-key": "b"}):
        await ask(place, WISHES, {"kind": "pause"}, **headers)
    assert len(place.ledger.wishes(CACHE)) == 4


async def test_keys_of_others_are_others(keyed: Place) -> None:
    before = len(keyed.ledger.wishes(CACHE))
    for key in (OPERATOR, ADMIN):
        answer = await ask(keyed, WISHES, {"kind": "pause"}, key, **{"idempotency-key": "same"})
        assert answer.status_code == 202
    assert [one.by for one in keyed.ledger.wishes(CACHE)][: -before or None] == ["ada", "otto"]


async def test_a_key_holds_for_a_day_and_after_a_restart(placing: Placing, tmp_path: Any) -> None:
    place = placing()
    first = await ask(place, WISHES, {"kind": "pause"}, **{"idempotency-key": "k"})
    place.now[0] += 86_399.0
    anew = placed(place.audit.parent, None)
    anew.now[0] = place.now[0]
    again = await ask(anew, WISHES, {"kind": "pause"}, **{"idempotency-key": "k"})
    anew.now[0] += 2.0
    later = await ask(anew, WISHES, {"kind": "pause"}, **{"idempotency-key": "k"})
    anew.ledger.close()
    assert again.content == first.content
    assert later.json()["id"] != first.json()["id"]


async def test_many_at_once_with_one_key_are_one_wish(placing: Placing) -> None:
    place = placing()
    async with place.client(**{"idempotency-key": "k"}) as client:
        answers = await asyncio.gather(*(client.post(WISHES, json={"kind": "pause"}) for _ in range(8)))
    assert {answer.status_code for answer in answers} == {202}
    assert {answer.json()["id"] for answer in answers} == {1}


# --- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"", 422),
        (b"[]", 422),
        (b'{"kind": "start"}', 422),
        (b'{"kind": "pause", "more": 1}', 422),
        (b'{"kind": "pause", "reason": 1}', 422),
        (b'{"kind": "pause", "reason": "\\u0000"}', 422),
        (b'{"kind": "pause", "reason": "\\ud800"}', 422),
        (b'{"kind": "pause", "reason": "' + b"x" * 501 + b'"}', 422),
    ],
)
async def test_bodies_that_are_wrong(place: Place, body: bytes, status: int) -> None:
    async with place.client(**{"content-type": "application/json"}) as client:
        answer = await client.post(WISHES, content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM)
    assert answer.json()["status"] == status


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_body_of_another_kind_is_a_415(place: Place, kind: str) -> None:
    async with place.client(**{"content-type": kind}) as client:
        answer = await client.post(WISHES, content=b'{"kind": "pause"}')
    assert (answer.status_code, answer.headers["content-type"]) == (415, PROBLEM)


async def test_a_body_that_is_too_large_is_a_413(place: Place) -> None:
    async with place.client(**{"content-type": "application/json"}) as client:
        told = await client.post(WISHES, content=b" " * 70_000)

        async def pieces() -> Any:
            for _ in range(70):
                yield b" " * 1_000

        untold = await client.post(WISHES, content=pieces())
    assert [told.status_code, untold.status_code] == [413, 413]
    assert {told.headers["content-type"], untold.headers["content-type"]} == {PROBLEM}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/caches/another/status", 404),
        ("GET", "/v1/experiments/another", 404),
        ("GET", f"{WISHES}/999999", 404),
        ("GET", "/v1/policies/9", 404),
        ("GET", f"{WISHES}/0", 422),
        ("GET", f"/v1/caches/{CACHE}/decisions?limit=0", 422),
        ("GET", f"/v1/caches/{CACHE}/decisions?limit=501", 422),
        ("GET", f"/v1/caches/{CACHE}/decisions?cursor=nonsense", 422),
        ("GET", f"/v1/caches/{CACHE}/intervals?first=5&last=4", 422),
        ("GET", f"/v1/caches/{CACHE}/intervals?arm=third", 422),
        ("PUT", WISHES, 405),
        ("DELETE", "/v1/caches", 405),
    ],
)
async def test_errors_are_problems(place: Place, method: str, path: str, status: int) -> None:
    async with place.client() as client:
        answer = await client.request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM)
    body = answer.json()
    assert (body["type"], body["status"]) == ("about:blank", status)
    assert body["title"]
    assert body["detail"]


async def test_a_method_that_does_not_go_names_all_that_do(place: Place) -> None:
    async with place.client() as client:
        answer = await client.put(WISHES)
    assert answer.headers["allow"] == "GET, POST"


async def test_a_ledger_that_is_gone_is_a_503(placing: Placing) -> None:
    place = placing()
    for path in place.audit.parent.glob("ledger.db*"):
        path.unlink()
    place.ledger.close()  # its connections: the next one finds no file
    async with place.client() as client:
        answer = await client.get("/v1/caches")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


async def test_what_cannot_be_recorded_is_not_done(placing: Placing) -> None:
    place = placing(audit_log=None)
    place.app.state.access.audit.close()
    place.app.state.access.audit._file = 0  # a descriptor that cannot be written
    answer = await ask(place, WISHES, {"kind": "pause"})
    place.app.state.access.audit._file = None
    assert answer.status_code == 503
    assert place.ledger.open_wishes(CACHE) == []


async def test_a_viewer_may_not_ask(keyed: Place) -> None:
    answer = await ask(keyed, WISHES, {"kind": "pause"}, VIEWER)
    assert (answer.status_code, answer.headers["content-type"]) == (403, PROBLEM)
