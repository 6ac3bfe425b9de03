"""What is counted of requests, for each arm of the tuned tier."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from api.gateway.settings import NamespaceRules
from api.gateway.warming_settings import WarmingSettings
from caches.histograms import quantile
from caches.hot_keys import HotRule
from caches.keys.rules import KeyRules
from caches.place import Place
from caches.stack import StackRules
from caches.target import Arm
from caches.tiers.memory import MemoryTier
from caches.warming import WarmRule
from tests.api.gateway.conftest import (
    CHAT,
    EMBEDDINGS,
    SPACE,
    Backend,
    ask,
    chat,
    configured,
    emulated,
    metric,
    outcome,
    send,
    until,
)
from tests.api.gateway.tuned import DEFAULT, HALVES, QUIET, Tuned, questions, tuned
from tests.servers import free_port
from tuner.live.arms_document import ArmsDocument

CONTROL, TREATMENT = Arm.CONTROL, Arm.TREATMENT


@pytest.fixture
def one(backend: Backend) -> Iterator[Tuned]:
    backend.calls.clear()
    with tuned(backend.address) as made:
        yield made


def test_whole_answers_and_streams_are_counted_alike(one: Tuned) -> None:
    one.put()
    for arm in Arm:
        (text,) = questions(arm, 1)
        whole, streamed = chat(text), chat(text, stream=True)
        outcomes = [outcome(ask(one.address, body)) for body in (streamed, whole, streamed)]
        assert outcomes == ["miss", "hit-l1", "hit-l1"]
    until(lambda: one.sum_of("requests") == 6)
    for counters in one.told()["arms"].values():
        assert (counters["hits"], counters["errors"], counters["entries"]) == (2, 0, 1)
        assert counters["hit_bytes"] == 2 * counters["miss_bytes"] > 0
        tokens = counters["miss_prompt_tokens"] + counters["miss_output_tokens"]
        assert counters["hit_tokens"] == 2 * tokens
        assert counters["tokens"] == 3 * tokens > 0
        assert sum(counters["latency_seconds"]["counts"]) == sum(counters["ttft_seconds"]["counts"]) == 3
        assert sum(counters["hit_age_seconds"]["counts"]) == 2


def test_a_stream_ends_later_than_it_begins() -> None:
    """At the emulator's own pace thirty tokens take most of a second."""
    with emulated(speed=2.0) as backend, tuned(backend.address) as one:
        ask(one.address, chat(stream=True, min_tokens=30, max_tokens=30))
        until(lambda: one.sum_of("requests") == 1)
        counters = ArmsDocument.model_validate(one.told(), strict=False).counted().arms[CONTROL]
        first, last = quantile(counters.ttft_seconds, 0.5), quantile(counters.latency_seconds, 0.5)
        assert first is not None
        assert last is not None
        assert 0.0 < 2.0 * first < last
        assert last == pytest.approx(counters.latency_seconds.total, rel=0.16)


def test_equal_requests_that_wait_for_one_call_are_misses_and_pay_once() -> None:
    with (
        emulated(speed=2.0) as backend,
        tuned(backend.address) as one,
        httpx.Client(verify=False, timeout=30) as client,
    ):
        with client.stream("POST", one.address + CHAT, json=chat(stream=True, min_tokens=30)) as first:
            pieces = first.iter_bytes()
            next(pieces)
            assert outcome(ask(one.address, chat(min_tokens=30))) == "miss"
            b"".join(pieces)
        until(lambda: one.sum_of("requests") == 2)
        assert len(backend.calls) == 1
        assert one.sum_of("hits") == 0
        assert one.sum_of("tokens") == 2 * (one.sum_of("miss_prompt_tokens") + one.sum_of("miss_output_tokens"))


def test_requests_that_the_cache_has_nothing_to_do_with_are_nobodys(one: Tuned) -> None:
    assert outcome(ask(one.address, chat(temperature=1))) == "bypass"
    assert outcome(ask(one.address, cache_control="no-store")) == "bypass"
    assert ask(one.address, x_setpoint_namespace="a/b").status_code == 400
    assert one.sum_of("requests") == 0
    assert outcome(ask(one.address, {"model": "m", "input": "text"}, EMBEDDINGS)) == "miss"
    assert one.sum_of("requests") == 1


def test_what_the_backend_cannot_do_is_an_error_and_what_the_client_did_wrong_is_none(one: Tuned) -> None:
    assert ask(one.address, chat(max_tokens=-1)).status_code == 400
    assert (one.sum_of("requests"), one.sum_of("errors")) == (1, 0)
    with emulated(fail_ratio=1.0) as failing, tuned(failing.address) as other:
        for number in range(4):
            assert ask(other.address, chat(f"{number}")).status_code in {429, 500}
            assert ask(other.address, chat(f"{number}", stream=True)).status_code in {429, 500}
        assert (other.sum_of("requests"), other.sum_of("errors"), other.sum_of("tokens")) == (8, 8, 0)
    with tuned(f"http://127.0.0.1:{free_port()}") as lost:
        assert ask(lost.address).status_code == 502
        assert (lost.sum_of("requests"), lost.sum_of("errors")) == (1, 1)


def test_who_hangs_up_in_a_stream_is_counted_and_is_no_error() -> None:
    with (
        emulated(speed=0.5) as backend,
        tuned(backend.address) as one,
        httpx.Client(verify=False, timeout=30) as client,
    ):
        with client.stream("POST", one.address + CHAT, json=chat(stream=True, min_tokens=200)) as response:
            next(response.iter_bytes())
        until(lambda: one.sum_of("requests") == 1)
        assert (one.sum_of("errors"), one.sum_of("hits"), one.sum_of("tokens")) == (0, 0, 0)


def test_a_renewal_counts_as_a_warm_up_of_the_keys_arm(backend: Backend) -> None:
    """With such an eagerness every hit is due."""
    with tuned(backend.address, StackRules(refresh_beta=1e9)) as one:
        one.put()
        (text,) = questions(TREATMENT, 1)
        assert [outcome(ask(one.address, chat(text))) for _ in range(2)] == ["miss", "hit-l1"]
        until(lambda: one.told()["arms"]["treatment"]["warmups"] == 1)
        counters = one.told()["arms"]["treatment"]
        assert counters["warmup_prompt_tokens"] == counters["miss_prompt_tokens"] > 0
        assert counters["warmup_output_tokens"] == counters["miss_output_tokens"] > 0
        assert (counters["requests"], counters["hits"], one.told()["arms"]["control"]["warmups"]) == (2, 1, 0)


def test_a_hit_below_counts_as_a_hit_and_other_namespaces_do_not_count(backend: Backend) -> None:
    below = Place(MemoryTier(SPACE, "lower"), level=2)
    with tuned(backend.address, below=below) as one:
        ask(one.address)
        one.tier.aim(replace(one.tier.plan, control=replace(one.tier.plan.control, ttl_seconds=0.1)), time.time())
        time.sleep(0.15)
        assert outcome(ask(one.address)) == "hit-l2"
        assert [outcome(ask(one.address, x_setpoint_namespace="other")) for _ in range(2)] == ["miss", "hit-l2"]
        assert (one.sum_of("requests"), one.sum_of("hits")) == (2, 1)
        assert metric(one.address, 'setpoint_arm_tier_hits_total{arm="control"}') == 0
        assert metric(one.address, 'setpoint_arm_tier_misses_total{arm="control"}') == 2


def test_an_arms_longer_lifetime_holds_in_the_stack_too(one: Tuned) -> None:
    """The stack shortens lifetimes a little, by those of the arm."""
    plan = {"split": HALVES, "control": DEFAULT | {"ttl_seconds": 0.1}, "treatment": DEFAULT}
    one.put(plan=plan)
    texts = [questions(arm, 1)[0] for arm in Arm]
    for text in texts:
        ask(one.address, chat(text))
    until(lambda: one.told()["arms"]["control"]["expirations"] == 1)  # housekeeping has been there, and read lifetimes
    assert [outcome(ask(one.address, chat(text))) for text in texts] == ["miss", "hit-l1"]


def test_each_arm_is_warmed_by_its_own_ratio(backend: Backend) -> None:
    warming = WarmingSettings(
        every_seconds=0.1,
        rule=WarmRule(stages=(1.0,), per_second=10_000.0, gate_seconds=0.0),
        hot=HotRule(most=1_000),
        from_backend=True,
    )
    with tuned(backend.address, warming=warming, upstream_key="key") as one:
        plan = {"split": HALVES, "control": DEFAULT, "treatment": DEFAULT}
        one.put(plan=plan)
        texts = {arm: questions(arm, 6) for arm in Arm}
        for text in (*texts[CONTROL], *texts[TREATMENT]):
            ask(one.address, chat(text))
        send("POST", f"{one.address}/v1/cache/invalidate", json={"namespace": "default"})
        assert one.sum_of("entries") == 0
        one.put(plan=plan | {"treatment": DEFAULT | {"warmup_ratio": 0.5}})
        until(lambda: one.told()["arms"]["treatment"]["warmups"] == 3)
        rounds = send("GET", f"{one.address}/v1/cache/stats").json()["warming"]["rounds"]
        until(lambda: send("GET", f"{one.address}/v1/cache/stats").json()["warming"]["rounds"] > rounds + 1)
        told = one.told()["arms"]
        assert (told["control"]["warmups"], told["control"]["entries"]) == (0, 0)
        assert (told["treatment"]["warmups"], told["treatment"]["entries"]) == (3, 3)


def test_metrics_have_what_the_endpoint_says(one: Tuned) -> None:
    one.put(plan={"split": {"salt": "s", "treatment": 0.25}, "control": DEFAULT, "treatment": DEFAULT}, fence=6)
    for number in range(20):
        for _ in range(2):
            ask(one.address, chat(f"question {number}"))
    told = one.told()
    for arm, counters in told["arms"].items():
        for name, value in counters.items():
            if isinstance(value, int):
                metric_name = f"setpoint_arm_{name}" + ("" if name in {"entries", "used_bytes"} else "_total")
                assert metric(one.address, f'{metric_name}{{arm="{arm}"}}') == value, name
            else:
                assert metric(one.address, f'setpoint_arm_{name}_count{{arm="{arm}"}}') == sum(value["counts"])
                assert metric(one.address, f'setpoint_arm_{name}_sum{{arm="{arm}"}}') == pytest.approx(value["total"])
        below = sum(
            count
            for bound, count in zip(
                counters["latency_seconds"]["bounds"], counters["latency_seconds"]["counts"], strict=False
            )
            if bound <= 0.01
        )
        assert metric(one.address, f'setpoint_arm_latency_seconds_bucket{{arm="{arm}",le="0.01"}}') == below
    assert metric(one.address, 'setpoint_arm_share_ratio{arm="treatment"}') == 0.25
    assert metric(one.address, 'setpoint_arm_cache_size_bytes{arm="treatment"}') == 1e7
    assert metric(one.address, 'setpoint_arm_ttl_seconds{arm="control"}') == 3600
    assert metric(one.address, "setpoint_arms_fence") == 6


def test_an_access_log_beside_it_sees_the_same_requests(backend: Backend, tmp_path: Path) -> None:
    text = f"""
{QUIET}[tuning]
enabled = true
[access_log]
place = "{tmp_path / "log"}"
"""
    with configured(backend.address, tmp_path / "gateway.toml", text) as address:
        for body in (chat(), chat(), chat(stream=True), chat("other", stream=True)):
            ask(address, body)
        until(lambda: metric(address, "setpoint_arm_requests_total") == 4)
        assert metric(address, "setpoint_access_log_recorded_total") == 4
        assert metric(address, "setpoint_arm_hits_total") == 2


def test_key_rules_of_a_namespace_hold_as_ever(backend: Backend) -> None:
    rules = NamespaceRules(KeyRules(allow_sampled=True))
    with tuned(backend.address, namespaces={"sampled": rules}) as one:
        body = chat(temperature=1)
        assert [outcome(ask(one.address, body, x_setpoint_namespace="sampled")) for _ in range(2)] == ["miss", "hit-l1"]
        assert one.sum_of("requests") == 2
