"""Hits by meaning in a gateway whose cache is tuned: of the own arm only, and counted for it where verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api.gateway.config import NamespaceConfig
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.request_key import Partition
from caches.target import Arm, Split
from tests.api.gateway.conftest import Backend, ask, configured, metric, outcome, send, until
from tests.api.gateway.test_semantic import ONE, SAME, asked
from tests.api.gateway.tuned import ARMS, DEFAULT, HALVES
from tuner.live.arms_document import ArmsDocument
from tuner.router import assign

CONTROL, TREATMENT = Arm.CONTROL, Arm.TREATMENT
TUNED = """
[tuning]
enabled = true
[tiers.disk]
enabled = false
[tiers.semantic]
"""
NONE_VERIFIED = TUNED + "verified_share = 0.0\n"
ALL_VERIFIED = (
    TUNED
    + """verified_share = 1.0
same_answer = "exact"
wrong_hit_budget = 1.0
"""
)
UNTUNED_NAMESPACE = """
[namespaces.aside]
tiers = ["semantic"]
"""


def contexts(of_one: Arm, of_same: Arm, count: int) -> list[str]:
    """Systems with which both questions are of these arms."""
    systems = (f"Be brief, {number}." for number in range(400))
    return [system for system in systems if (arm(ONE, system), arm(SAME, system)) == (of_one, of_same)][:count]


def arm(question: str, system: str, partition: Partition = Partition()) -> Arm:
    key = request_key(Endpoint.CHAT, asked(question, system), partition, NamespaceConfig().key_rules())
    return assign(key.id, Split(**HALVES))  # type: ignore[arg-type]


def split(address: str, **changes: Any) -> None:
    plan = {"split": HALVES | changes, "control": DEFAULT, "treatment": DEFAULT}
    assert send("PUT", address + ARMS, json={"plan": plan, "fence": 1}).status_code == 200


def verified(address: str) -> dict[Arm, tuple[int, int]]:
    """Verified and wrong hits by arm."""
    told = ArmsDocument.model_validate(send("GET", address + ARMS).json(), strict=False).counted()
    return {arm: (counters.verified_hits, counters.wrong_hits) for arm, counters in told.arms.items()}


def test_a_question_finds_what_its_own_arm_has_stored_while_there_are_two(backend: Backend, tmp_path: Path) -> None:
    (across, later), (within,) = contexts(CONTROL, TREATMENT, 2), contexts(TREATMENT, TREATMENT, 1)
    with configured(backend.address, tmp_path / "gateway.toml", NONE_VERIFIED + UNTUNED_NAMESPACE) as address:
        for system in (across, later, within):  # before there are arms
            ask(address, asked(ONE, system))
        split(address)
        assert outcome(ask(address, asked(SAME, within))) == "hit-l3"
        assert outcome(ask(address, asked(SAME, across))) == "miss"
        split(address, treatment=0.0)
        assert outcome(ask(address, asked(SAME, later))) == "hit-l3"
        split(address)
        ask(address, asked(ONE, across), x_setpoint_namespace="aside")
        assert outcome(ask(address, asked(SAME, across), x_setpoint_namespace="aside")) == "hit-l3"


def test_a_namespace_without_the_tuned_tier_has_no_arms_whichever_way_it_is_named(
    backend: Backend, tmp_path: Path
) -> None:
    some = UNTUNED_NAMESPACE.replace("aside", '"aside-*"')
    inside = Partition(namespace="aside-7")
    apart = next(
        system
        for system in (f"Be brief, {number}." for number in range(400))
        if arm(ONE, system, inside) is not arm(SAME, system, inside)
    )
    with configured(backend.address, tmp_path / "gateway.toml", NONE_VERIFIED + some) as address:
        split(address)
        ask(address, asked(ONE, apart), x_setpoint_namespace="aside-7")
        assert outcome(ask(address, asked(SAME, apart), x_setpoint_namespace="aside-7")) == "hit-l3"


def test_verified_and_wrong_hits_are_counted_for_the_arm_that_hit(backend: Backend, tmp_path: Path) -> None:
    """The emulator answers each question differently, so every hit by meaning is wrong by the letter."""
    ours, theirs = contexts(CONTROL, CONTROL, 1), contexts(TREATMENT, TREATMENT, 2)
    with configured(backend.address, tmp_path / "gateway.toml", ALL_VERIFIED) as address:
        split(address)
        assert verified(address) == {CONTROL: (0, 0), TREATMENT: (0, 0)}
        for system in (*ours, *theirs):
            ask(address, asked(ONE, system))
            assert outcome(ask(address, asked(SAME, system))) == "hit-l3"
        until(lambda: sum(count for count, _ in verified(address).values()) == 3)
        assert verified(address) == {CONTROL: (1, 1), TREATMENT: (2, 2)}
        assert metric(address, 'setpoint_arm_verified_hits_total{arm="treatment"}') == 2
        assert metric(address, 'setpoint_arm_wrong_hits_total{arm="control"}') == 1
