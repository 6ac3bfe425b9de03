"""Answers by meaning that gateways share: the settings that say so, and what works as it does in one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis

from caches.errors import InputError
from caches.keys.request_key import Partition
from caches.semantic.shared import SharedSemanticTier
from caches.stack import Stack
from tests.api.gateway.conftest import Backend, ask, configured, metric, outcome, send, until
from tests.api.gateway.test_at_work import working
from tests.api.gateway.test_config import config, made
from tests.api.gateway.test_semantic import ONE, SAME, asked
from tests.caches.semantic.vector_stores import prefix
from tests.servers import free_port

SECRET = "redis://:secret@there:1"
OTHER = "How do I change my address?"


def section(url: str, start: str, more: str = "") -> str:
    return f'[tiers.semantic]\nentries = "{url}"\nprefix = "{start}"\nslow_seconds = 15\n{more}'


def verifications(address: str) -> int:
    """On their way, where every hit by meaning is verified."""
    told = send("GET", f"{address}/v1/cache/stats").json()["semantic"]
    ended = told["verifications_failed"] + told["verifications_left_out"]
    return int(told["semantic_hits"] - ended - sum(each["verified"] for each in told["partitions"]))


@pytest.fixture(scope="module")
def gateways(
    backend: Backend, vector_redis_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The second one verifies every hit by meaning."""
    folder, start = tmp_path_factory.mktemp("shared"), prefix()
    alone = '[namespaces.alone]\ntiers = ["semantic"]\n[namespaces.strict]\nsimilarity_threshold = 0.999\n'
    rest = ("verified_share = 0.0\n", 'verified_share = 1.0\nsame_answer = "exact"\nwrong_hit_budget = 1.0\n')
    with ExitStack() as stack:
        texts = [section(vector_redis_server, start, more + alone) for more in rest]
        one, other = (
            stack.enter_context(configured(backend.address, folder / f"{number}.toml", text))
            for number, text in enumerate(texts)
        )
        yield one, other
    with Redis.from_url(vector_redis_server) as redis:
        redis.flushall()


@pytest.fixture
def pair(gateways: tuple[str, str], backend: Backend) -> tuple[str, str]:
    """Emptied, when the verifications of the last test are done."""
    until(lambda: not verifications(gateways[1]))
    for address in gateways:
        for namespace in ("default", "alone", "strict"):
            send("POST", f"{address}/v1/cache/invalidate", json={"namespace": namespace})
    backend.calls.clear()
    return gateways


def test_what_one_was_asked_the_other_answers_by_meaning(pair: tuple[str, str], backend: Backend) -> None:
    one, other = pair
    first = ask(one, asked(ONE))
    again = ask(other, asked(SAME))
    equal = ask(other, asked(ONE))
    assert [outcome(each) for each in (first, again, equal)] == ["miss", "hit-l3", "hit-l3"]
    assert first.content == again.content == equal.content
    assert 0.9 < float(again.headers["x-setpoint-similarity"]) < 1.0
    assert "x-setpoint-similarity" not in equal.headers
    assert outcome(ask(other, asked(SAME, system="Be long."))) == "miss"
    assert outcome(ask(other, asked(SAME), x_setpoint_namespace="strict")) == "miss"


def test_hits_are_counted_and_verified_by_the_gateway_that_gave_them(pair: tuple[str, str]) -> None:
    one, other = pair

    def told(address: str) -> tuple[int, int]:
        stats = send("GET", f"{address}/v1/cache/stats").json()
        return stats["semantic"]["semantic_hits"], sum(each["verified"] for each in stats["semantic"]["partitions"])

    (hits, verified), ours = told(other), told(one)
    ask(one, asked(ONE))
    assert outcome(ask(other, asked(SAME))) == "hit-l3"
    until(lambda: told(other) == (hits + 1, verified + 1))
    assert told(one) == ours
    assert metric(other, "setpoint_semantic_hits_total") == hits + 1
    assert metric(other, 'setpoint_tier_entries{tier="semantic"}') == 2  # the backend's own answer is kept too
    assert send("GET", f"{one}/v1/cache/stats").json()["tiers"]["semantic"]["entries"] == 2


def test_knobs_are_of_all_and_thresholds_of_each(pair: tuple[str, str]) -> None:
    one, other = (f"{address}/v1/cache/settings" for address in pair)
    before = send("GET", one).json()["tiers"]["semantic"]
    wish = {"cache_size": 1e8, "ttl_seconds": 600.0, "warmup_ratio": 0.5, "similarity_threshold": 0.99}
    try:
        assert send("PUT", one, json={"semantic": wish}).json()["tiers"]["semantic"] == wish
        assert send("GET", other).json()["tiers"]["semantic"] == wish | {"similarity_threshold": 0.9}
        ask(pair[1], asked(ONE))
        assert outcome(ask(pair[0], asked(SAME))) == "miss"
    finally:
        send("PUT", one, json={"semantic": before})
    partitions = send("PUT", one, json={"partitions": [{"namespace": "strict", "similarity_threshold": 0.9}]})
    assert partitions.json()["partitions"][0]["similarity_threshold"] == 0.9
    ask(pair[1], asked(ONE), x_setpoint_namespace="strict")
    assert outcome(ask(pair[0], asked(SAME), x_setpoint_namespace="strict")) == "hit-l3"


def test_an_invalidation_at_one_removes_what_both_have_there(pair: tuple[str, str]) -> None:
    one, other = pair
    for question in (ONE, OTHER):
        ask(one, asked(question), x_setpoint_namespace="alone")
    body = {"namespace": "alone"}
    count = send("POST", f"{other}/v1/cache/invalidate", json=body | {"dry_run": True})
    assert count.json()["tiers"]["semantic"] == 2
    assert outcome(ask(other, asked(ONE), x_setpoint_namespace="alone")) == "hit-l3"
    assert send("POST", f"{other}/v1/cache/invalidate", json=body).json()["tiers"]["semantic"] == 2
    assert outcome(ask(one, asked(SAME), x_setpoint_namespace="alone")) == "miss"


def test_the_hot_set_comes_from_it_and_goes_into_it(pair: tuple[str, str]) -> None:
    one, other = pair
    ask(one, asked(ONE), x_setpoint_namespace="alone")
    lines = send("GET", f"{one}/v1/cache/hot?share=1").text.splitlines()
    mine = [line for line in lines if json.loads(line)["namespace"] == "alone" and json.loads(line)["question"] == ONE]
    assert len(mine) == 1
    send("POST", f"{one}/v1/cache/invalidate", json={"namespace": "alone"})
    taken = send("POST", f"{other}/v1/cache/hot", content=mine[0] + "\n").json()
    assert taken["taken"] == 1
    assert outcome(ask(one, asked(SAME), x_setpoint_namespace="alone")) == "hit-l3"


def test_a_tier_above_is_warmed_from_it(backend: Backend, vector_redis_server: str, tmp_path: Path) -> None:
    shared = section(vector_redis_server, prefix(), "verified_share = 0.0\n")
    often = "[tiers.memory]\nwarmup_ratio = 1.0\n[warming]\nevery_seconds = 0.05\ngate_seconds = 0.05\n"
    with configured(backend.address, tmp_path / "warm.toml", shared + often) as address:
        ask(address, asked(ONE))
        knobs = {"cache_size": 65_536, "ttl_seconds": 3_600.0, "warmup_ratio": 1.0}
        send("PUT", f"{address}/v1/cache/settings", json={"memory": knobs | {"ttl_seconds": 1.0}})
        until(lambda: send("GET", f"{address}/v1/cache/stats").json()["tiers"]["memory"]["entries"] == 0)
        send("PUT", f"{address}/v1/cache/settings", json={"memory": knobs})
        until(lambda: send("GET", f"{address}/v1/cache/stats").json()["warming"]["copied"] >= 1)
        assert outcome(ask(address, asked(ONE))) == "hit-l1"


# --- at the start -----------------------------------------------------------------------------------------------------


async def test_what_is_stated_is_set_and_the_rest_stays_as_it_was(vector_redis_server: str, tmp_path: Path) -> None:
    shared = section(vector_redis_server, prefix())
    async with working(tmp_path, f"{shared}cache_size = 1_000_000\nwarmup_ratio = 0.25") as (gateway, remarks):
        assert remarks == []
        assert isinstance(gateway.semantic, SharedSemanticTier)
        assert gateway.places["semantic"].level == 3
    async with working(tmp_path, f"{shared}ttl_seconds = 60") as (gateway, _):
        settings = await gateway.places["semantic"].tier.settings()
        assert (settings.cache_size, settings.ttl_seconds, settings.warmup_ratio) == (1_000_000.0, 60.0, 0.25)


async def test_a_server_that_cannot_is_an_error_and_one_that_is_away_a_remark(
    redis_server: str, tmp_path: Path
) -> None:
    """The server of Debian has no vector sets."""
    with pytest.raises(InputError, match=r"tier semantic: the server refuses vector sets .* expected Redis 8\.2"):
        async with working(tmp_path, section(redis_server, prefix())):
            pytest.fail("it started")
    away = f'vectors = "redis://127.0.0.1:{free_port()}"\n'
    for text in (section(redis_server, prefix(), away), section(f"redis://127.0.0.1:{free_port()}", prefix())):
        async with working(tmp_path, text) as (_, remarks):
            assert remarks == ["Tier semantic cannot be reached now; it is tried again while the gateway runs."]


async def test_entries_and_vectors_may_lie_apart_and_urls_come_from_the_environment(tmp_path: Path) -> None:
    text = '[gateway]\nupstream = "http://a"\n[tiers.semantic]\nvectors_env = "V"\nvectors_token_env = "T"\n'
    environ = {"E": SECRET, "V": "chroma+http://there:8", "T": "token"}
    gateway = made(tmp_path, f'{text}entries_env = "E"', environ)
    assert isinstance(gateway.semantic, SharedSemanticTier)
    assert type(gateway.semantic._vectors).__name__ == "ChromaVectors"
    assert "secret@" not in repr(config(tmp_path, f'{text}entries = "{SECRET}"'))
    stack = gateway.service.stack.of(Partition("t", "n"))  # type: ignore[union-attr]
    assert isinstance(stack, Stack)
    assert stack._lease is not None  # gateways that share it make one call together
    await gateway.service.stack.close()
    await gateway.service.client.aclose()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f'entries = "{SECRET}"\nfolder = "f"', "expected folder or entries: what is shared stays where it is"),
        (f'vectors = "{SECRET}"', "expected entries or entries_env beside vectors"),
        (f'entries = "{SECRET}"\nentries_env = "E"', "expected entries or entries_env"),
        (f'entries = "{SECRET}"\nvectors = "{SECRET}"\nvectors_env = "V"', "expected vectors or vectors_env"),
        (
            f'entries = "{SECRET}"\nvector_form = "fp16"',
            "tiers.semantic.vector_form: got 'fp16', expected 'fp32' or 'q8'",
        ),
    ],
)
def test_what_does_not_go_together_is_told_without_a_password(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        config(tmp_path, f"[tiers.semantic]\n{text}")
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "entries = 'http://:secret@a'",
            "gateway.toml, tiers.semantic.entries: redis: got 'http://a', expected redis://",
        ),
        (
            f"entries = '{SECRET}'\nvectors = 'chroma+ftp://:secret@a'",
            "tiers.semantic.vectors: vectors: got 'chroma+ftp'",
        ),
        (f"entries = '{SECRET}'\nvectors = 'http://:secret@a'", "tiers.semantic.vectors: redis: got 'http://a'"),
        (
            f"entries = '{SECRET}'\nvectors = 'chroma+http://a'\nvector_form = 'q8'",
            "tiers.semantic.vectors: form of vectors: got 'q8', expected fp32 with Chroma",
        ),
        (
            "entries_env = 'NONE'",
            "gateway.toml, tiers.semantic.entries_env: got 'NONE', expected the name of a variable",
        ),
    ],
)
def test_what_cannot_be_built_is_told_without_a_password(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        made(tmp_path, f'[gateway]\nupstream = "http://a"\n[tiers.semantic]\n{text}', {})
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)
