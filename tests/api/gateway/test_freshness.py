"""Freshness end to end: schedules, answers asked again, doubtful answers, drift and tags, through a real gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from api.gateway.building import built
from api.gateway.config import load_serve_config
from caches.errors import InputError
from caches.tiers.memory import MemoryTier
from caches.tiers.retaining import RetainingTier
from tests.api.gateway.conftest import Backend, ask, chat, configured, metric, outcome, send, serving, until

PLAIN = "[tiers.disk]\nenabled = false\n[tiers.semantic]\nenabled = false\n"


class Oracle:
    """A backend that answers what it is told to answer, and counts."""

    def __init__(self, text: str = "one") -> None:
        self.text, self.calls, self.status = text, 0, 200
        self.logprob: float | None = None
        self.app = FastAPI()
        self.app.post("/v1/chat/completions")(self.answer)

    async def answer(self, request: Request) -> JSONResponse:
        await request.body()
        self.calls += 1
        if self.status != 200:
            return JSONResponse({"error": {"message": "told to fail"}}, self.status)
        choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": self.text}}
        choice["finish_reason"] = "stop"
        if self.logprob is not None:
            choice["logprobs"] = {"content": [{"token": "x", "logprob": self.logprob}]}
        return JSONResponse({"id": "a", "object": "chat.completion", "choices": [choice]})


@contextmanager
def fronted(oracle: Oracle, folder: Path, text: str, plain: str = PLAIN) -> Iterator[str]:
    with serving(oracle.app) as upstream, configured(upstream, folder / "gateway.toml", plain + text) as address:
        yield address


def told(address: str) -> Any:
    return send("GET", f"{address}/v1/cache/stats").json()["freshness"]


def asked_until(address: str, true: Callable[[], object], **headers: str) -> None:
    """Goes on asking until it is so."""

    def once() -> object:
        ask(address, **headers)
        return true()

    until(once)


def test_without_a_section_nothing_of_it_is_there(backend: Backend, tmp_path: Path) -> None:
    with configured(backend.address, tmp_path / "gateway.toml", PLAIN) as front:
        assert told(front) == {"epochs": 0, "epochs_last": False, "epoch_stores_failed": 0}
        assert send("POST", f"{front}/v1/cache/feedback", json={}).status_code == 404


def test_a_hit_is_asked_again_and_its_change_shortens_lifetimes(tmp_path: Path) -> None:
    """Everything changes all the time, so the lifetime falls to the operator's shortest. A restart forgets nothing."""
    oracle = Oracle()
    settings = f"""
[tiers.memory]
ttl_seconds = 1000
[freshness]
looks_file = "{tmp_path / "gateway.looks"}"
asked_again_share = 1.0
asked_again_per_second = 1000.0
shortest_share = 0.001
[namespaces.default]
freshness = "hazard"
"""
    with fronted(oracle, tmp_path, settings) as front:
        assert outcome(ask(front)) == "miss"
        numbers = iter(range(100_000))

        def changes_told() -> bool:
            oracle.text = f"answer {next(numbers)}"
            return bool(told(front)["change"] and told(front)["change"][0]["changes_per_day_95"])

        asked_until(front, changes_told)
        (change,) = told(front)["change"]
        assert change["looks"] >= 20
        assert change["changed"] >= 15
        assert told(front)["asked_again"] >= 20
        assert metric(front, "setpoint_freshness_asked_again_total") >= 20
        time.sleep(1.1)  # a thousandth of the lifetime
        assert outcome(ask(front)) == "miss"
    with fronted(oracle, tmp_path, settings) as front:
        (again,) = told(front)["change"]
        assert again["looks"] >= change["looks"]
        assert again["changes_per_day_95"]
    (tmp_path / "gateway.looks").write_text("damaged\n")
    with pytest.raises(InputError, match=r"gateway\.looks, line 1: got b'damaged'"):
        built(load_serve_config(tmp_path / "gateway.toml", {}), "gateway.toml", {})


def test_other_namespaces_are_not_asked_again(tmp_path: Path) -> None:
    oracle = Oracle()
    settings = '[freshness]\nasked_again_share = 1.0\n[namespaces.other]\nfreshness = "hazard"\n'
    with fronted(oracle, tmp_path, settings) as front:
        for _ in range(5):
            ask(front)
        assert (oracle.calls, told(front)["asked_again"]) == (1, 0)


def test_a_spending_limit_holds(tmp_path: Path) -> None:
    oracle = Oracle()
    settings = (
        "[freshness]\nasked_again_share = 1.0\nasked_again_per_second = 0.001\n"
        '[namespaces.default]\nfreshness = "hazard"\n'
    )
    with fronted(oracle, tmp_path, settings) as front:
        asked_until(front, lambda: told(front)["asked_again_left_out"] >= 5)
        assert oracle.calls <= 2


def test_a_lifetime_by_sampling_ends_earlier(tmp_path: Path) -> None:
    """At a temperature of 2 an answer is good for 0.16 repetitions of the 8 that it takes for the whole lifetime."""
    settings = (
        "[tiers.memory]\nttl_seconds = 50\nlowest_ttl_seconds = 1.0\n[freshness]\nshortest_share = 0.02\n"
        '[namespaces.default]\nfreshness = "sampling"\nallow_sampled = true\n'
    )
    with fronted(Oracle(), tmp_path, settings) as front:
        for temperature in (0, 2):
            assert outcome(ask(front, chat(temperature=temperature))) == "miss"
        assert outcome(ask(front, chat(temperature=0))) == "hit-l1"
        time.sleep(1.1)
        assert outcome(ask(front, chat(temperature=2))) == "miss"
        assert outcome(ask(front, chat(temperature=0))) == "hit-l1"


def test_what_the_model_is_unsure_of_is_served_and_not_kept(tmp_path: Path) -> None:
    oracle = Oracle()
    with fronted(oracle, tmp_path, "[freshness]\nleast_mean_logprob = -2.3\n") as front:
        oracle.logprob = -2.31
        answers = [ask(front) for _ in range(2)]
        assert [outcome(one) for one in answers] == ["miss", "miss"]
        assert answers[0].json()["choices"][0]["message"]["content"] == "one"
        assert told(front)["not_kept"] == 2
        oracle.logprob = -2.3
        assert [outcome(ask(front)) for _ in range(2)] == ["miss", "hit-l1"]
        oracle.logprob = None
        assert [outcome(ask(front, chat("other"))) for _ in range(2)] == ["miss", "hit-l1"]


SEMANTIC = "[tiers.disk]\nenabled = false\n"


@pytest.mark.parametrize(("on_shift", "flushed"), [("report", 0), ("shorten", 0), ("flush", 1)])
def test_answers_that_drift_are_noticed(tmp_path: Path, on_shift: str, flushed: int) -> None:
    oracle = Oracle("Refunds take thirty days and need a receipt.")
    settings = f"""
[freshness]
asked_again_share = 1.0
asked_again_per_second = 1000.0
on_shift = "{on_shift}"
[namespaces.default]
freshness = "hazard"
"""
    with fronted(oracle, tmp_path, settings, SEMANTIC) as front:
        for number in range(7):
            assert outcome(ask(front, chat(f"{number}?"))) == "miss"
        ask(front, chat("kept"))
        oracle.text = "Bananas grow in the tropics."
        for number in range(7):
            ask(front, chat(f"{number}?"))
        until(lambda: told(front)["shifts"] >= 5)
        until(lambda: told(front)["flushed"] >= 1 if flushed else told(front)["shifted"])
        if flushed:
            assert told(front)["epochs"] == 1
            assert outcome(ask(front, chat("kept"))) == "miss"
        else:
            assert told(front)["shifted"] == [{"tenant": "default", "namespace": "default", "model": "m"}]
            assert outcome(ask(front, chat("kept"))) == "hit-l1"


def test_metadata_tags_answers(tmp_path: Path) -> None:
    settings = '[freshness]\ntag_metadata = ["model_version", "document_versions"]\n'
    with fronted(Oracle(), tmp_path, settings) as front:
        metadata = {"model_version": "2024-08", "document_versions": "kb-12, faq-3", "customer": "not a tag"}
        ask(front, chat("1", metadata=metadata), x_setpoint_tags="own")
        ask(front, chat("2", metadata={"document_versions": "kb-12"}))
        ask(front, chat("3"))
        counts = {}
        for tag in ("model_version.2024-08", "document_versions.kb-12", "document_versions.faq-3", "own", "customer"):
            body = {"namespace": "default", "tag": tag, "dry_run": True}
            counts[tag] = send("POST", f"{front}/v1/cache/invalidate", json=body).json()["tiers"]["memory"]
        assert list(counts.values()) == [1, 2, 1, 1, 0]
        refused = ask(front, chat("4", metadata={"model_version": "a b"}))
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "metadata.model_version")
        assert outcome(ask(front, chat("1"))) == "hit-l1"  # they are no part of the key


def test_failures_of_the_backend_count_for_load(tmp_path: Path) -> None:
    """Within a second: 1.5 - 2 x 1 + 0.3 log10(q + 1) is at most 0.5 for the few requests that fail here."""
    oracle = Oracle()
    settings = (
        "[tiers.memory]\nttl_seconds = 3\n[freshness]\nload_period_seconds = 0.5\n"
        '[namespaces.default]\nfreshness = "load"\n'
    )
    with fronted(oracle, tmp_path, settings) as front:
        ask(front, chat("kept"))
        oracle.status = 500
        began = time.monotonic()
        while time.monotonic() < began + 2.0:
            ask(front, chat("fails"))
            time.sleep(0.02)
        assert outcome(ask(front, chat("kept"))) != "hit-l1"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[freshness]\non_shift = "report"\n',
            r"freshness.on_shift: got 'report', expected a semantic tier beside it",
        ),
        (
            '[freshness]\nsame_answer = "facts"\n',
            r"freshness.same_answer: got 'facts', expected a semantic tier beside it",
        ),
        (
            '[tiers.redis]\nurl = "redis://127.0.0.1:1/0"\n[namespaces.a]\nfreshness = "load"\n',
            r"tiers.redis.ttl_seconds: not set, expected a lifetime where a namespace has a schedule",
        ),
        ("[freshness]\nlongest_share = 0.5\n", r"freshness.longest_share"),
        ('[freshness]\ntag_metadata = ["a b"]\n', r"freshness.tag_metadata"),
        ('[namespaces.a]\nfreshness = "other"\n', r"namespaces.a.freshness"),
    ],
)
def test_settings_that_do_not_fit_are_told_at_the_start(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f'[gateway]\nupstream = "http://127.0.0.1:1"\n{PLAIN}{text}', encoding="utf-8")
    with pytest.raises(InputError, match=told):
        built(load_serve_config(file, {}), str(file), {})


def test_tiers_are_kept_longer_only_where_a_schedule_may_need_it(tmp_path: Path) -> None:
    def tier_of(text: str) -> object:
        file = tmp_path / "gateway.toml"
        file.write_text(f'[gateway]\nupstream = "http://127.0.0.1:1"\n{PLAIN}{text}', encoding="utf-8")
        return built(load_serve_config(file, {}), str(file), {}).places["memory"].tier

    assert isinstance(tier_of(""), MemoryTier)
    assert isinstance(tier_of("[freshness]\nfeedback = true\n"), MemoryTier)
    assert isinstance(tier_of('[namespaces.a]\nfreshness = "load"\n'), RetainingTier)
    assert isinstance(
        tier_of('[freshness]\nlongest_share = 1.0\n[namespaces.a]\nfreshness = "load"\n'),
        MemoryTier,
    )
