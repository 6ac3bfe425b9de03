"""Guardrails that hold a number against an objective: what they say, and when it is a rollback."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from caches.target import Arm
from tests.tuner.situations import ALLOW, HERE, HOLD, OBJECTIVES, ROLLBACK, SIGNAL_VALUES, WINDOW, here, said
from tuner.guardrails import check, reasons, remembered, worst
from tuner.records import Verdict
from tuner.signals import Signal


def test_a_broken_objective_says_by_how_much_and_beside_what() -> None:
    verdict, reason = said("p99_ttft", here({"p99_ttft_seconds": 2.4}, {"p99_ttft_seconds": 1.1}))
    assert verdict is HOLD
    assert reason == (
        "P99 of the time to the first token was 2.4 s in the treatment arm, above the objective of 2 s and above the "
        "control arm's 1.1 s. It is rolled back after 3 such intervals in a row; this is number 1."
    )


def test_it_rolls_back_after_so_many_intervals_in_a_row() -> None:
    bad, memory, verdicts = here({"p99_ttft_seconds": 2.4}), {}, []
    for _ in range(3):
        findings = check(replace(bad, memory=memory), OBJECTIVES)
        verdicts.append(worst(findings))
        memory = json.loads(json.dumps(remembered(memory, findings)))
    assert verdicts == [HOLD, HOLD, ROLLBACK]
    assert memory == {"p99_ttft": 3}
    assert reasons(findings)[0].endswith("above the control arm's 1 s, for 3 intervals in a row.")


def test_an_interval_in_order_breaks_the_row_and_one_that_says_nothing_does_not() -> None:
    bad = check(here({"p99_ttft_seconds": 2.4}), OBJECTIVES)
    little = check(here({"p99_ttft_seconds": 2.4, "requests": 5.0}), OBJECTIVES)
    alike = check(here({"p99_ttft_seconds": 2.4}, {"p99_ttft_seconds": 2.4}), OBJECTIVES)
    gone = check(replace(here(), window=None), OBJECTIVES)
    good = check(here(), OBJECTIVES)
    once = remembered({}, bad)
    assert once == {"p99_ttft": 1}
    assert remembered(once, little) == remembered(once, alike) == remembered(once, gone) == once
    assert remembered(once, good) == {}
    assert remembered(remembered(once, good), bad) == {"p99_ttft": 1}


def test_far_above_an_objective_it_rolls_back_at_once_given_enough_requests() -> None:
    bad = {"p99_ttft_seconds": 4.0}
    assert said("p99_ttft", here(bad | {"requests": 999.0}))[0] is HOLD
    verdict, reason = said("p99_ttft", here(bad | {"requests": 1000.0}))
    assert verdict is ROLLBACK
    assert reason.endswith("above the control arm's 1 s; 2 times an objective is rolled back at once.")
    assert said("p99_ttft", here({"p99_ttft_seconds": 3.99, "requests": 1000.0}))[0] is HOLD


def test_what_both_arms_break_alike_is_not_the_challengers_fault() -> None:
    memory = {"p99_ttft": 9}
    both = here({"p99_ttft_seconds": 9.0, "requests": 5000.0}, {"p99_ttft_seconds": 8.5}, memory=memory)
    assert said("p99_ttft", both) == (
        HOLD,
        "P99 of the time to the first token was 9 s in the treatment arm, above the objective of 2 s; the control "
        "arm's 8.5 s is alike, so it is not the challenger's doing.",
    )
    just_above = here({"p99_ttft_seconds": 2.05}, {"p99_ttft_seconds": 1.95}, memory=memory)
    assert said("p99_ttft", just_above)[0] is HOLD  # control keeps it, but hardly
    worse = here({"p99_ttft_seconds": 9.0}, {"p99_ttft_seconds": 3.0}, memory=memory)
    assert said("p99_ttft", worse)[0] is ROLLBACK  # both break it, one far more


def test_without_a_control_window_in_doubt_against_the_challenger() -> None:
    alone = here({"p99_ttft_seconds": 2.4}, memory={"p99_ttft": 2})
    assert said("p99_ttft", replace(alone, control=None)) == (
        ROLLBACK,
        "P99 of the time to the first token was 2.4 s in the treatment arm, above the objective of 2 s, for 3 "
        "intervals in a row.",
    )


def test_a_control_arm_with_hardly_a_request_is_no_reference() -> None:
    """As where the challenger has all keys. What Prometheus says of the whole cache is then the challenger's own."""
    whole = {"p99_ttft_seconds": Signal("p99_ttft_seconds", 2.4, 1.0)}
    bad = here({"p99_ttft_seconds": 2.4}, {"p99_ttft_seconds": 2.4, "requests": 99.0}, signals=whole)
    verdict, reason = said("p99_ttft", replace(bad, memory={"p99_ttft": 2}))
    assert verdict is ROLLBACK
    assert "control arm" not in reason
    assert said("p99_ttft", replace(bad, control=None, memory={"p99_ttft": 2}))[0] is ROLLBACK


def test_the_control_arm_has_no_reference_and_may_have_nowhere_to_go() -> None:
    champion = here({"p99_ttft_seconds": 2.4}, {"p99_ttft_seconds": 2.4}, arm=Arm.CONTROL, memory={"p99_ttft": 2})
    assert said("p99_ttft", champion)[0] is ROLLBACK
    assert said("p99_ttft", replace(champion, good=HERE)) == (
        HOLD,
        "P99 of the time to the first token was 2.4 s in the control arm, above the objective of 2 s; these are the "
        "settings that a rollback would restore.",
    )


@pytest.mark.parametrize(
    ("guardrail", "change", "reason"),
    [
        (
            "p99_latency",
            {"p99_latency_seconds": 25.0},
            "P99 of the time to the whole answer was 25 s in the treatment arm, above the objective of 20 s and above "
            "the control arm's 9 s.",
        ),
        (
            "errors",
            {"error_ratio": 0.035},
            "The share of requests that ended in an error was 3.5 % in the treatment arm, above the objective of 2 % "
            "and above the control arm's 0.1 %.",
        ),
        (
            "staleness",
            {"stale_ratio": 0.0625},
            "The expected share of outdated answers among hits was 6.25 % in the treatment arm, above the objective of "
            "5 % and above the control arm's 1 %.",
        ),
        (
            "wrong_hits",
            {"wrong_hit_ratio": 0.03},
            "The share of wrong answers among verified hits by meaning was 3 % in the treatment arm, above the "
            "objective of 2 % and above the control arm's 0.5 %.",
        ),
    ],
)
def test_every_objective_has_its_sentence(guardrail: str, change: dict[str, float], reason: str) -> None:
    verdict, found = said(guardrail, here(change, {"wrong_hit_ratio": 0.005}))
    assert verdict is HOLD
    assert found == f"{reason} It is rolled back after 3 such intervals in a row; this is number 1."
    assert said(guardrail, here(change, memory={guardrail: 2}))[0] is ROLLBACK


@pytest.mark.parametrize(
    ("wrong", "verified", "verdict", "least"),
    [
        (0.0, 9.0, ALLOW, "0 %"),
        (1.0, 2.0, ALLOW, "1.26 %"),  # 1 - (1 - 0.025) ** (1 / 2): half of two, and it may be chance
        (1.0, 1.0, HOLD, "2.5 %"),  # 0.025 ** (1 / 1)
        (2.0, 2.0, HOLD, "15.8 %"),  # 0.025 ** (1 / 2); severe, but of 400 requests
    ],
)
def test_of_few_verified_hits_only_what_is_known_counts(
    wrong: float, verified: float, verdict: Verdict, least: str
) -> None:
    counts = {"wrong_hits": wrong, "verified_hits": verified}
    found, reason = said("wrong_hits", here(counts, {"wrong_hits": 0.0, "verified_hits": 50.0}))
    assert found is verdict
    assert f"that verified hits by meaning leave possible was {least} in the treatment arm" in reason
    severe = said("wrong_hits", here(counts | {"requests": 1000.0}))[0]
    assert severe is (ROLLBACK if wrong == 2.0 else verdict)


def test_the_control_arms_wrong_hits_excuse_the_challengers() -> None:
    """5 wrong of 20 in both: known to be 8.66 % at least."""
    counts = {"wrong_hits": 5.0, "verified_hits": 20.0}
    verdict, reason = said("wrong_hits", here(counts, counts))
    assert verdict is HOLD
    assert "not the challenger's doing" in reason


def test_without_verified_hits_none_is_wrong() -> None:
    verdict, reason = said("wrong_hits", replace(here({"verified_hits": 0.0, "wrong_hits": 0.0}), signals={}))
    assert verdict is ALLOW
    assert "there were no verified hits in the treatment arm" in reason
    assert said("wrong_hits", replace(here(), signals={}))[0] is HOLD


def test_a_signal_of_the_whole_cache_accuses_nobody() -> None:
    """Both arms are told the same number."""
    signals = {name: Signal(name, value, 1.0) for name, value in SIGNAL_VALUES.items()}
    errors = {name: value for name, value in WINDOW.items() if name != "error_ratio"}
    broken = here(signals=signals | {"error_ratio": Signal("error_ratio", 0.5, 1.0)}, memory={"errors": 9})
    verdict, reason = said("errors", replace(broken, window=errors, control=errors))
    assert verdict is HOLD
    assert "not the challenger's doing" in reason


def test_numbers_that_differ_look_different() -> None:
    _, reason = said("p99_ttft", here({"p99_ttft_seconds": 2.0004}, {"p99_ttft_seconds": 1.0}))
    assert "was 2.0004 s in the treatment arm, above the objective of 2 s" in reason


def test_at_the_objective_it_is_kept() -> None:
    assert said("p99_ttft", here({"p99_ttft_seconds": 2.0}))[0] is ALLOW


def test_without_hits_none_is_outdated() -> None:
    none = {"hits": 0.0, "stale_ratio": None}
    assert said("staleness", here(none))[0] is ALLOW
    assert said("staleness", here({"hits": None, "stale_ratio": None}))[0] is HOLD


# --- memory and VRAM --------------------------------------------------------------------------------------------------


def test_memory_counts_for_the_whole_cache() -> None:
    """The arm has a twentieth of the keys and holds 45 MB, so the whole cache would hold 900 MB of 800."""
    full = here({"used_bytes": 4.5e7})
    assert said("memory", full) == (
        HOLD,
        "The memory that the cache holds was 858 MiB in the treatment arm, above the objective of 763 MiB, with a "
        "cache of 191 MiB instead of 95.4 MiB. It is rolled back after 3 such intervals in a row; this is number 1.",
    )
    assert said("memory", replace(full, memory={"memory": 2}))[0] is ROLLBACK
    assert said("memory", here({"used_bytes": 4.0e7}))[0] is ALLOW


def test_memory_of_a_cache_no_larger_than_before_is_not_its_doing() -> None:
    full = here({"used_bytes": 4.5e7}, good=replace(HERE, ttl_seconds=1.0), memory={"memory": 9})
    verdict, reason = said("memory", full)
    assert verdict is HOLD
    assert reason.endswith("its cache of 191 MiB is not larger than the 191 MiB of before, so that is not its doing.")


def test_a_proposal_above_the_cap_is_held() -> None:
    asked = here(proposed=replace(HERE, cache_size=9e8))
    assert said("memory", asked) == (
        HOLD,
        "The policy asks for a cache of 858 MiB; at most 763 MiB are allowed.",
    )
    assert said("memory", asked, OBJECTIVES.model_copy(update={"memory_bytes": None}))[0] is ALLOW  # the knob's 1e9


def test_vram_is_the_fault_of_a_cache_that_grew() -> None:
    full = here({"vram_ratio": 0.99}, memory={"vram": 2})
    assert said("vram", full)[0] is ROLLBACK
    assert said("vram", replace(full, good=HERE))[0] is HOLD
