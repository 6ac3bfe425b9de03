"""What a stack is told: lifetimes by namespace, out of requests, answers, load, evidence, drift and feedback."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from caches.freshness.change_rate import Look, safe_age_seconds
from caches.freshness.freshness import Freshness, Rule
from caches.freshness.lifetime import Bounded, Bounds, Verdict
from caches.freshness.load_meter import LoadMeter
from caches.freshness.schedules import FIXED, NAMES, quality_share, schedule_of
from caches.freshness.shift import Drift
from caches.keys.by_name import ByName
from caches.keys.request_key import Partition, RequestKey
from caches.tiers.tier import Answer, Found
from tests.caches.freshness.test_answer_facts import chat
from tests.caches.freshness.test_shift import SHIFTED, Directions
from tests.contracts.tier_contract import key_of

BASE, NOW = 1_000.0, 1e9


def freshness(drift: Drift | None = None) -> Freshness:
    """A namespace for each schedule, by its name."""
    bounds = Bounds(0.1, 2.0)
    rules = {name: Rule(name, Bounded(schedule_of(name), bounds)) for name in NAMES}
    return Freshness(ByName(rules, rules[FIXED]), LoadMeter(10.0), drift)


def key(namespace: str, number: int = 1) -> RequestKey:
    return replace(key_of(number), partition=Partition("a", namespace))


def found(body: bytes = b"{}", similarity: float = 1.0, written: float = NOW) -> Found:
    return Found(Answer(body, written), similarity)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_known_changes_nothing(name: str) -> None:
    assert freshness().lifetime(key(name), found(), BASE, NOW) == pytest.approx(BASE)


def test_load_is_that_of_the_namespace() -> None:
    known = freshness()
    for second in range(10):
        known.asked(key("load"), 0, None, NOW + second)
    for failed in (True, True, False, False, False):
        known.called(key("load"), failed, NOW + 9.0)
    assert known.lifetime(key("load"), found(), BASE, NOW + 9.0) == BASE
    expected = 1.5 - 0.8 + 0.3 * math.log10(2.0)
    assert known.lifetime(key("load"), found(), BASE, NOW + 10.0) == pytest.approx(BASE * expected)


def test_quality_is_read_from_the_answer_and_from_feedback() -> None:
    known, body = freshness(), chat((0.5, {"x": 0.5, "y": 0.5}))
    share = quality_share(1.0, math.log(0.5), ())
    assert known.lifetime(key("quality"), found(body), BASE, NOW) == pytest.approx(BASE * share)
    known.judged(key("quality"), Verdict.WRONG, by_meaning=False)
    share = quality_share(1.0, math.log(0.5), (Verdict.WRONG,))
    assert known.lifetime(key("quality"), found(body), BASE, NOW) == pytest.approx(BASE * share)
    other = chat((1.0, {"x": 1.0}))
    share = quality_share(0.0, 0.0, (Verdict.WRONG,))
    renewed = found(other, written=NOW + 1.0)
    assert known.lifetime(key("quality"), renewed, BASE, NOW) == pytest.approx(BASE * share)


def test_sampling_is_what_the_request_states() -> None:
    known = freshness()
    known.asked(key("sampling"), math.log(2.0), 1, NOW)
    assert known.lifetime(key("sampling"), found(), BASE, NOW) == pytest.approx(BASE / 8)
    known.asked(key("sampling"), "hot", True, NOW)  # no numbers
    assert known.lifetime(key("sampling"), found(), BASE, NOW) == BASE


def test_hazard_is_that_of_the_partition_once_it_is_estimated() -> None:
    known, here = freshness(), key("hazard")
    for number in range(100):
        known.evidence.record(here.partition, Look(500.0, number < 10))
    assert known.lifetime(here, found(), BASE, NOW) == BASE
    rate = known.evidence.estimate(here.partition)
    assert rate is not None
    assert known.lifetime(here, found(), BASE, NOW) == pytest.approx(safe_age_seconds(rate.high, 0.05))
    elsewhere = replace(here, partition=Partition("b", "hazard"))
    assert known.lifetime(elsewhere, found(), BASE, NOW) == BASE


def test_a_family_that_drifts_lives_shorter_under_every_schedule() -> None:
    drift = Drift(Directions(), lambda _: "0")
    for namespace in ("fixed", "sampling"):
        for _ in range(5):
            drift.record(key(namespace), SHIFTED)
    known = freshness(drift)
    assert known.lifetime(key("fixed"), found(), BASE, NOW) == BASE / 2
    assert known.lifetime(key("sampling"), found(), BASE, NOW) == BASE / 2
    assert known.lifetime(key("hazard"), found(), BASE, NOW) == BASE


def test_a_question_that_was_answered_badly_by_meaning_is_not_so_again() -> None:
    known, here = freshness(), key("fixed")
    near = found(similarity=0.95)
    known.judged(here, Verdict.USEFUL, by_meaning=True)
    assert known.lifetime(here, near, BASE, NOW) == BASE
    known.judged(here, Verdict.WRONG, by_meaning=True)
    assert known.lifetime(here, near, BASE, NOW) == 0.0
    assert known.lifetime(here, found(), BASE, NOW) == BASE  # an answer to this very question
    assert known.lifetime(key("fixed", 2), near, BASE, NOW) == BASE
    assert known.feedback(here) == ()


def test_only_the_latest_verdicts_are_remembered() -> None:
    known, here = freshness(), key("quality")
    for verdict in (Verdict.WRONG, Verdict.USEFUL, Verdict.STALE, Verdict.USEFUL):
        known.judged(here, verdict, by_meaning=False)
    assert known.feedback(here) == (Verdict.USEFUL, Verdict.STALE, Verdict.USEFUL)
