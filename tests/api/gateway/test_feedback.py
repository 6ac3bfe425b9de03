"""Feedback: what a client says of an answer, and what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from api.gateway.settings import key_hash
from tests.api.gateway.conftest import Backend, ask, chat, configured, metric, outcome, send
from tests.api.gateway.test_freshness import PLAIN, Oracle, fronted, told

ON = "[freshness]\nfeedback = true\n"
BY_MEANING = "[tiers.disk]\nenabled = false\n"
ONE, OTHER = "How far is the moon from here?", "How far is the moon from here ?"


def say(front: str, key: str, verdict: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return send("POST", f"{front}/v1/cache/feedback", json={"key": key, "verdict": verdict}, headers=named)


def key_of(response: httpx.Response) -> str:
    return str(response.headers["x-setpoint-key"])


@pytest.mark.parametrize(("verdict", "removed"), [("useful", {}), ("wrong", {"memory": 1}), ("stale", {"memory": 1})])
def test_a_bad_answer_is_removed(tmp_path: Path, verdict: str, removed: dict[str, int]) -> None:
    with fronted(Oracle(), tmp_path, ON) as front:
        ask(front)
        key = key_of(ask(front))
        answer = say(front, key, verdict)
        assert answer.status_code == 200
        assert answer.json() == {"namespace": "default", "key": key, "verdict": verdict, "removed": removed}
        assert outcome(ask(front)) == ("miss" if removed else "hit-l1")
        (counts,) = told(front)["feedback"]
        assert counts[verdict] == 1
        assert metric(front, f'setpoint_freshness_verdicts_total{{verdict="{verdict}"') == 1


def test_stale_is_evidence_of_change_once_for_each_answer(tmp_path: Path) -> None:
    with fronted(Oracle(), tmp_path, ON) as front:
        ask(front)
        key = key_of(ask(front))
        for _ in range(3):
            say(front, key, "stale")
        (change,) = told(front)["change"]
        assert (change["looks"], change["changed"]) == (1, 1)


def test_verdicts_are_counted_and_the_wrong_ones_have_an_interval(tmp_path: Path) -> None:
    """The worst of feedback leaves 0.3 + 1.2 x 0.9 x 7/12 = 0.93 of the lifetime, so nothing is seen at once; but
    verdicts are counted, and the share of wrong ones has an interval."""
    with fronted(Oracle(), tmp_path, ON + '[namespaces.default]\nfreshness = "quality"\n') as front:
        ask(front)
        key = key_of(ask(front))
        for verdict in ("wrong", "useful", "useful", "useful"):
            assert say(front, key, verdict).status_code == 200
        (counts,) = told(front)["feedback"]
        assert (counts["wrong"], counts["useful"], counts["wrong_share"]) == (1, 3, 0.25)
        low, high = counts["wrong_share_95"]
        assert 0.0 < low < 0.25 < high < 1.0


@pytest.mark.parametrize(("trusted", "verified"), [("false", 0), ("true", 1)])
def test_a_wrong_answer_by_meaning_is_not_given_again_and_the_other_question_keeps_its_own(
    backend: Backend, tmp_path: Path, trusted: str, verified: int
) -> None:
    text = f"{BY_MEANING}{ON}feedback_is_trusted = {trusted}\n"
    with configured(backend.address, tmp_path / "gateway.toml", text) as front:
        ask(front, chat(ONE))
        near = ask(front, chat(OTHER))
        assert outcome(near) == "hit-l3"
        assert say(front, key_of(near), "wrong").json()["removed"] == {}
        assert outcome(ask(front, chat(OTHER))) == "miss"
        assert outcome(ask(front, chat(ONE))) == "hit-l1"
        (counts,) = told(front)["feedback"]
        assert (counts["wrong"], counts["wrong_by_meaning"]) == (1, 1)
        partitions = send("GET", f"{front}/v1/cache/stats").json()["semantic"]["partitions"]
        assert sum(one["wrong"] for one in partitions) == verified


def test_it_is_limited_by_tenant_and_each_has_its_own(tmp_path: Path) -> None:
    keys = "".join(f'[[gateway.keys]]\nsha256 = "{key_hash(name)}"\ntenant = "{name}"\n' for name in ("a", "b"))
    log = tmp_path / "audit.jsonl"
    with fronted(Oracle(), tmp_path, ON + "feedback_per_minute = 2\n", f'audit_log = "{log}"\n{keys}{PLAIN}') as front:
        bearer = {"authorization": "Bearer a"}
        ask(front, **bearer)
        key = key_of(ask(front, **bearer))
        assert say(front, key, "wrong").status_code == 401
        assert say(front, key, "wrong", authorization="Bearer b").json()["removed"] == {"memory": 0}
        assert [say(front, key, "useful", **bearer).status_code for _ in range(3)] == [200, 200, 429]
        assert int(say(front, key, "useful", **bearer).headers["retry-after"]) >= 1
        assert say(front, key, "useful", authorization="Bearer b").status_code == 200
        assert outcome(ask(front, **bearer)) == "hit-l1"
    lines = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    assert (lines[0]["event"], lines[0]["verdict"]) == ("feedback", "wrong")
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"verdict": "wrong"}, "key"),
        ({"key": "0" * 63, "verdict": "wrong"}, "key"),
        ({"key": "0" * 64}, "verdict"),
        ({"key": "0" * 64, "verdict": "bad"}, "verdict"),
        ({"key": "0" * 64, "verdict": ["wrong"]}, "verdict"),
        ({"key": "0" * 64, "verdict": "wrong", "tenant": "b"}, None),
        ([], None),
    ],
)
def test_what_is_not_understood_is_refused(shared_feedback: str, body: Any, field: str | None) -> None:
    answer = send("POST", f"{shared_feedback}/v1/cache/feedback", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


@pytest.fixture(scope="module")
def shared_feedback(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with fronted(Oracle(), tmp_path_factory.mktemp("feedback"), ON) as front:
        yield front
