"""Promotion: the rule as a table, and that of two at the same time exactly one wins."""

from __future__ import annotations

import multiprocessing
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.mlflow_store import Store, default_tracking_uri
from agents.promotion import (
    Promotion,
    PromotionEvidence,
    Saving,
    decide,
    promote,
    record_evidence,
    recorded_evidence,
)
from agents.registry import Registry
from caches.errors import InputError, NotFound

ABOVE = Saving(0.5, 0.25, 0.75)
TOUCHING = Saving(0.5, 0.0, 1.0)
BELOW = Saving(-0.5, -0.75, -0.25)


def evidence(**changes: object) -> PromotionEvidence:
    """Evidence that promotes version 2 over version 1, with changes."""
    fields: dict[str, object] = {
        "candidate": 2,
        "champion": 1,
        "intervals": 100,
        "saving_over_champion": ABOVE,
        "saving_over_best_static": ABOVE,
        "violated_intervals": {"p99_latency": 0, "staleness": 0},
    }
    return PromotionEvidence(**(fields | changes))  # type: ignore[arg-type]


def first_evidence(candidate: int, **changes: object) -> PromotionEvidence:
    """Evidence from when there was no champion."""
    return evidence(candidate=candidate, champion=None, saving_over_champion=None, **changes)


def add_versions(uri: str, count: int) -> None:
    """Versions without files, which promotion does not read."""
    with Store(uri).asking("add versions") as client:
        client.create_registered_model("cache-policy")
        for _ in range(count):
            client.create_model_version("cache-policy", source="s3://none/none")


@pytest.fixture
def two_versions(registry: Registry, mlruns: Path) -> Registry:
    add_versions(default_tracking_uri(mlruns, {}), 2)
    return registry


@pytest.mark.parametrize(
    ("counts", "tolerated", "promoted"), [((2, 0), 2, True), ((1, 1), 2, True), ((2, 1), 2, False)]
)
def test_violations_are_tolerated_up_to_a_number_in_all(
    counts: tuple[int, int], tolerated: int, promoted: bool
) -> None:
    found = evidence(
        violated_intervals={"p99_ttft": counts[0], "stale_ratio": counts[1]}, tolerated_violations=tolerated
    )
    assert decide(found).promote == promoted


def test_too_many_violations_are_named_with_what_is_tolerated() -> None:
    found = evidence(violated_intervals={"p99_ttft": 2, "stale_ratio": 0}, tolerated_violations=1)
    reason = "Constraint p99_ttft was violated in 2 of 100 control intervals; 1 is tolerated in all."
    assert decide(found).reasons == (reason,)


def test_fewer_than_no_violations_cannot_be_tolerated() -> None:
    with pytest.raises(InputError, match="got -1 tolerated, expected 0 or more"):
        evidence(tolerated_violations=-1)


def test_better_than_champion_and_best_static_is_promoted() -> None:
    assert decide(evidence()) == Promotion(reasons=())
    assert decide(first_evidence(1)).promote


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"saving_over_champion": TOUCHING},
            "The saving against the champion, version 1 is 0.5 USD per 1,000 requests "
            "(95% interval 0 to 1): its lower bound is not above zero.",
        ),
        (
            {"saving_over_best_static": BELOW},
            "The saving against the best static setting is -0.5 USD per 1,000 requests "
            "(95% interval -0.75 to -0.25): its lower bound is not above zero.",
        ),
        (
            {"violated_intervals": {"staleness": 3, "p99_latency": 0}},
            "Constraint staleness was violated in 3 of 100 control intervals.",
        ),
        ({"saving_over_champion": None}, "There is no measured saving against the champion, version 1."),
        ({"saving_over_best_static": None}, "There is no measured saving against the best static setting."),
        ({"violated_intervals": None}, "The constraints were not measured."),
        (
            {"intervals": 0, "violated_intervals": {}},
            "The evaluation covers no control interval.",
        ),
        ({"candidate": 1}, "Version 1 is the champion already."),
    ],
)
def test_single_reason_against_is_given_with_its_numbers(changes: dict[str, object], reason: str) -> None:
    assert decide(evidence(**changes)).reasons == (reason,)


def test_every_reason_is_listed() -> None:
    reasons = decide(
        evidence(
            saving_over_champion=BELOW,
            saving_over_best_static=None,
            violated_intervals={"p99_latency": 1, "memory": 2},
        )
    ).reasons
    assert [reason.split()[0:4] for reason in reasons] == [
        ["The", "saving", "against", "the"],
        ["There", "is", "no", "measured"],
        ["Constraint", "memory", "was", "violated"],
        ["Constraint", "p99_latency", "was", "violated"],
    ]


savings = st.none() | st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3).map(sorted).map(
    lambda bounds: Saving(bounds[1], bounds[0], bounds[2])
)


@given(
    over_champion=savings,
    over_static=savings,
    champion=st.none() | st.integers(1, 3),
    violated=st.none() | st.dictionaries(st.sampled_from(["p99", "memory", "staleness"]), st.integers(0, 9)),
    intervals=st.sampled_from([0, 9]),
)
def test_decision_table(over_champion, over_static, champion, violated, intervals) -> None:
    """Promoted exactly when all of the rule's conditions hold; one reason for each that does not."""
    if intervals == 0 and violated is not None:
        violated = dict.fromkeys(violated, 0)
    if champion is None:
        over_champion = None
    conditions = [
        intervals > 0,
        over_static is not None and over_static.low_usd_per_1000 > 0,
        violated is not None,
        *[count == 0 for count in (violated or {}).values()],
    ]
    if champion == 2:
        conditions.append(False)
    elif champion is not None:
        conditions.append(over_champion is not None and over_champion.low_usd_per_1000 > 0)
    decision = decide(PromotionEvidence(2, champion, intervals, over_champion, over_static, violated))
    assert decision.promote == all(conditions)
    assert len(decision.reasons) == conditions.count(False)


@pytest.mark.parametrize(
    "numbers", [(0.5, 0.6, 0.7), (0.5, 0.1, 0.4), (float("nan"), 0.0, 1.0), (0.5, 0.0, float("inf"))]
)
def test_saving_outside_its_interval_or_not_finite_cannot_be(numbers: tuple[float, float, float]) -> None:
    with pytest.raises(InputError, match="saving"):
        Saving(*numbers)


def test_contradictory_evidence_cannot_be() -> None:
    with pytest.raises(InputError, match="no champion"):
        evidence(champion=None)
    with pytest.raises(InputError, match="101"):
        evidence(violated_intervals={"p99": 101})


def test_promote_moves_the_champion_once(registry: Registry, mlruns: Path) -> None:
    add_versions(default_tracking_uri(mlruns, {}), 3)
    assert promote(registry, first_evidence(1)).promote
    assert registry.champion() == 1
    assert promote(registry, evidence()).promote
    assert registry.champion() == 2
    # The same champion is still expected by evidence made earlier.
    late = promote(registry, evidence(candidate=3))
    assert late.reasons == (
        "The champion changed: the evidence was made against version 1, now it is version 2; evaluate again.",
    )
    assert registry.champion() == 2


def test_dry_run_and_refusal_move_nothing(two_versions: Registry) -> None:
    registry = two_versions
    assert promote(registry, first_evidence(1), dry_run=True).promote
    assert registry.champion() is None
    refused = promote(registry, first_evidence(1, violated_intervals={"p99": 1}))
    assert not refused.promote
    assert registry.champion() is None
    # The dry run sees a changed champion too: here there is none although version 1 is expected.
    (reason,) = promote(registry, evidence(), dry_run=True).reasons
    assert "made against version 1, now it is no champion" in reason


def test_promoting_an_unknown_version_is_not_found(registry: Registry, mlruns: Path) -> None:
    with pytest.raises(NotFound, match="nothing registered yet"):
        promote(registry, first_evidence(1))
    add_versions(default_tracking_uri(mlruns, {}), 1)
    with pytest.raises(NotFound, match="9"):
        promote(registry, first_evidence(9))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    saving=savings,
    violated=st.none() | st.dictionaries(st.text(max_size=9), st.integers(0, 50), max_size=3),
)
def test_evidence_survives_its_text_form(two_versions: Registry, saving, violated) -> None:
    kept = evidence(saving_over_champion=saving, violated_intervals=violated)
    record_evidence(two_versions, kept)
    assert recorded_evidence(two_versions, 2) == kept


def test_evidence_is_kept_with_its_version(two_versions: Registry) -> None:
    registry = two_versions
    with pytest.raises(NotFound, match="version 2: it was not evaluated yet"):
        recorded_evidence(registry, 2)
    record_evidence(registry, evidence(saving_over_champion=BELOW))
    record_evidence(registry, evidence())
    assert recorded_evidence(registry, 2) == evidence()
    registry.set_tag(2, "promotion_evidence", '{"candidate": 2}')
    with pytest.raises(InputError, match="version 2, tag promotion_evidence: field required"):
        recorded_evidence(registry, 2)


def contend(uri: str, versions: list[int], start: Barrier, outcomes: Queue[tuple[int, int, Promotion]]) -> None:
    """Run in a process of its own: in each round promote one's version over the champion of that moment."""
    registry = Registry(uri, "tuning", "cache-policy")
    for number, version in enumerate(versions):
        champion = registry.champion()
        over_champion = None if champion is None else ABOVE
        mine = evidence(candidate=version, champion=champion, saving_over_champion=over_champion)
        start.wait(120)  # both have read the same champion, and mlflow is imported
        outcomes.put((number, version, promote(registry, mine)))
        start.wait(120)  # neither reads the next champion before the round is over


def race(uri: str, rounds: int) -> None:
    add_versions(uri, 2 * rounds)
    spawn = multiprocessing.get_context("spawn")
    start, outcomes = spawn.Barrier(2), spawn.Queue()
    shares = [list(range(first, 2 * rounds + 1, 2)) for first in (1, 2)]
    processes = [spawn.Process(target=contend, args=(uri, share, start, outcomes)) for share in shares]
    for process in processes:
        process.start()
    results = [outcomes.get(timeout=150) for _ in range(2 * rounds)]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    for number in range(rounds):
        both = {version: decision for round_, version, decision in results if round_ == number}
        winners = [version for version, decision in both.items() if decision.promote]
        assert len(winners) == 1
        (loser,) = both.keys() - winners
        assert both[loser].reasons[0].startswith("The champion changed")
        assert f"now it is version {winners[0]}" in both[loser].reasons[0]
    assert Registry(uri, "tuning", "cache-policy").champion() == winners[0]


def test_of_two_processes_promoting_at_once_exactly_one_wins(mlruns: Path) -> None:
    race(default_tracking_uri(mlruns, {}), rounds=8)


@pytest.mark.slow
def test_of_two_processes_promoting_on_a_server_exactly_one_wins(mlflow_server: str) -> None:
    race(mlflow_server, rounds=6)
