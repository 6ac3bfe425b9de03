"""Flushes: a new epoch in one step, in all tiers, over a restart and over gateways; and the audit log."""

from __future__ import annotations

import stat
import uuid
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.gateway.settings import key_hash
from tests.api.gateway.conftest import Backend, ask, chat, configured, outcome, send, until

NO_SEMANTIC = "[tiers.semantic]\nenabled = false\n"


def flush(front: str, status: int = 200, **asked: Any) -> Any:
    body = {"namespace": "default", "flush": True, **asked}
    answer = send("POST", f"{front}/v1/cache/invalidate", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def tiers(folder: Path, redis: str | None = None, prefix: str = "") -> str:
    if redis is not None:
        shared = f'[tiers.redis]\nurl = "{redis}"\nprefix = "{prefix}"\nslow_seconds = 10.0\n'
        return f"{NO_SEMANTIC}[tiers.disk]\nenabled = false\n{shared}"
    return f'{NO_SEMANTIC}[tiers.disk]\npath = "{folder}/tier.db"\nslow_seconds = 10.0\n'


def test_a_flush_takes_what_its_selection_takes_and_removes_nothing(backend: Backend, tmp_path: Path) -> None:
    with configured(backend.address, tmp_path / "gateway.toml", tiers(tmp_path)) as front:
        ask(front, chat("1"), x_setpoint_tags="policy-v3")
        ask(front, chat("2"))
        ask(front, chat("3"), x_setpoint_tags="policy-v3", x_setpoint_namespace="other")
        told = flush(front, tag="policy-v3")
        assert told.pop("epoch_seconds") > 1e9
        assert told == {
            "tenant": "default",
            "namespace": "default",
            "tag": "policy-v3",
            "dry_run": False,
            "flush": True,
            "kept": True,
        }
        assert outcome(ask(front, chat("2"))) == "hit-l1"
        assert outcome(ask(front, chat("3"), x_setpoint_namespace="other")) == "hit-l1"
        exported = send("GET", f"{front}/v1/cache/hot?share=1").text.splitlines()
        assert sorted(orjson.loads(line)["question"] for line in exported) == ["2", "3"]
        counted = flush(front, dry_run=True)
        assert counted["tiers"] == {"memory": 2, "disk": 2}  # they are there, and served to nobody
        assert outcome(ask(front, chat("1"))) == "miss"
        assert outcome(ask(front, chat("1"))) == "hit-l1"  # written since


def test_what_was_flushed_stays_so_after_a_restart(backend: Backend, tmp_path: Path) -> None:
    settings = tiers(tmp_path)
    with configured(backend.address, tmp_path / "gateway.toml", settings) as front:
        ask(front, chat("1"))
        ask(front, chat("2"), x_setpoint_namespace="other")
    with configured(backend.address, tmp_path / "gateway.toml", settings) as front:
        assert outcome(ask(front, chat("1"))) == "hit-l2"
        flush(front)
        assert (tmp_path / "tier.db.epochs").exists()
    with configured(backend.address, tmp_path / "gateway.toml", settings) as front:
        assert outcome(ask(front, chat("2"), x_setpoint_namespace="other")) == "hit-l2"
        assert outcome(ask(front, chat("1"))) == "miss"


def test_gateways_over_one_redis_hear_of_each_others_flushes(
    backend: Backend, redis_server: str, tmp_path: Path
) -> None:
    settings = tiers(tmp_path, redis_server, f"test-{uuid.uuid4().hex[:8]}")
    with (
        configured(backend.address, tmp_path / "one.toml", settings) as one,
        configured(backend.address, tmp_path / "two.toml", settings) as two,
    ):
        ask(one, chat("1"))
        assert outcome(ask(two, chat("1"))) == "hit-l2"
        assert outcome(ask(two, chat("1"))) == "hit-l1"
        assert flush(one)["kept"]
        until(lambda: send("GET", f"{two}/v1/cache/stats").json()["freshness"]["epochs"] == 1)
        assert outcome(ask(two, chat("1"))) == "miss"
    with configured(backend.address, tmp_path / "one.toml", settings) as one:
        assert outcome(ask(one, chat("1"))) == "hit-l2"  # written since


def test_what_answers_by_meaning_is_cleared_as_well(backend: Backend, tmp_path: Path) -> None:
    text = "[tiers.disk]\nenabled = false\n"
    with configured(backend.address, tmp_path / "gateway.toml", text) as front:
        ask(front, chat("How far is the moon from here?"))
        assert outcome(ask(front, chat("How far is the moon from here ?"))) == "hit-l3"
        told = flush(front)
        assert told["kept"]
        until(lambda: flush(front, dry_run=True)["tiers"]["semantic"] == 0)
        assert outcome(ask(front, chat("How far is the moon from here ?"))) == "miss"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"namespace": "a", "flush": "yes"}, "flush"),
        ({"namespace": "a", "flush": None}, "flush"),
        ({"namespace": "a", "flush": True, "key": "0" * 64}, "flush"),
    ],
)
def test_what_is_not_understood_flushes_nothing(front: str, body: Any, field: str) -> None:
    ask(front, x_setpoint_namespace="a")
    answer = send("POST", f"{front}/v1/cache/invalidate", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert outcome(ask(front, x_setpoint_namespace="a")) == "hit-l1"


def test_the_audit_log_says_who_had_what_removed_and_what_came_of_it(backend: Backend, tmp_path: Path) -> None:
    log, key = tmp_path / "audit.jsonl", "key of the operator"
    held = f'audit_log = "{log}"\n[[gateway.keys]]\nsha256 = "{key_hash(key)}"\ntenant = "acme"\nrole = "operator"\n'
    text = f"{held}{NO_SEMANTIC}[tiers.disk]\nenabled = false\n"
    with configured(backend.address, tmp_path / "gateway.toml", text) as front:
        ask(front)
        address, bearer = f"{front}/v1/cache/invalidate", {"authorization": f"Bearer {key}"}
        for more in ({"dry_run": True}, {}, {"flush": True, "tag": "t"}):
            body = {"namespace": "default", "tenant": "default", **more}
            assert send("POST", address, json=body, headers=bearer).status_code == 200
    lines = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    assert [line["event"] for line in lines] == ["invalidate", "invalidated"] * 2
    assert {line["who"] for line in lines} == {f"operator acme {key_hash(key)[:8]}"}
    assert {line["address"] for line in lines} == {"127.0.0.1"}
    assert (lines[0]["namespace"], lines[1]["tiers"]) == ("default", {"memory": 1})
    assert (lines[3]["flush"], lines[3]["tag"], lines[3]["kept"]) == (True, "t", True)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
