"""What guardrails say of traffic, signals, observations and changes; and that together they never let through what
cannot be known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.target import Arm
from envs.observation import SIGNALS, SIZE, names
from envs.reward import Constraints
from tests.agents.bundles import SPACE
from tests.tuner.situations import ALLOW, HERE, HOLD, OBJECTIVES, ROLLBACK, SEEN, here, said
from tuner import guardrails
from tuner.guardrails import GUARDRAILS, check, reasons, remembered, worst
from tuner.guards import objective_guardrails
from tuner.guards.objectives import Objectives
from tuner.guards.situation import Finding
from tuner.signals import Signal


def test_with_everything_in_order_all_allow_it_in_a_fixed_order() -> None:
    findings = check(here(), OBJECTIVES)
    assert [finding.guardrail for finding in findings] == [
        *("p99_ttft", "p99_latency", "errors", "staleness", "wrong_hits", "memory", "vram"),
        *("traffic", "signals", "distribution", "rate_of_change", "freeze"),
    ]
    assert {finding.verdict for finding in findings} == {ALLOW}
    assert worst(findings) is ALLOW
    assert reasons(findings) == ("No guardrail has anything against it.",)


# --- traffic, signals, distribution -----------------------------------------------------------------------------------


def test_too_little_traffic_holds_and_nothing_is_concluded_from_it() -> None:
    little = here({"requests": 37.0, "p99_ttft_seconds": 60.0}, memory={"p99_ttft": 9})
    findings = check(little, OBJECTIVES)
    assert worst(findings) is HOLD
    assert said("traffic", little) == (HOLD, "The treatment arm had 37 requests; it takes 100.")
    assert said("p99_ttft", little) == (
        HOLD,
        "P99 of the time to the first token cannot be told from 37 requests of the treatment arm; it takes 100.",
    )
    assert said("traffic", here({"requests": 100.0}))[0] is ALLOW


def test_missing_signals_hold_and_say_why() -> None:
    gone = {"hit_ratio": None}
    signals = dict(here().signals) | {"hit_ratio": Signal("hit_ratio", missing="Prometheus does not answer.")}
    assert said("signals", here(gone, signals=signals)) == (
        HOLD,
        "Without hit_ratio (Prometheus does not answer) nothing is changed.",
    )
    stale = {name: Signal(name, missing="too old") for name in ("utilisation", "vram_ratio")}
    assert said("signals", here(signals=dict(here().signals) | stale)) == (
        HOLD,
        "2 of 4 signals are missing, more than 25 %: vram_ratio (too old), utilisation (too old).",
    )
    one = {"utilisation": Signal("utilisation", missing="too old")}
    assert said("signals", here(signals=dict(here().signals) | one))[0] is ALLOW  # a quarter


def test_a_policy_that_is_blind_where_it_learned_to_see_is_held() -> None:
    blind = SEEN.copy()
    blind[len(SIGNALS) : len(SIGNALS) + 5] = 0.0  # 5 of 18 are more than a quarter
    verdict, reason = said("signals", here(observation=blind))
    assert verdict is HOLD
    assert reason == (
        "The policy does not see 5 of the 18 signals that it learned with, more than 25 %: qps, hit_ratio, "
        "byte_hit_ratio and 2 more."
    )
    blind[len(SIGNALS) + 4] = 1.0
    assert said("signals", here(observation=blind))[0] is ALLOW


def test_an_observation_outside_the_training_is_held_and_named() -> None:
    far = SEEN.copy()
    far[names().index("qps")] = 0.75  # the range is 0 to 0, the least deviation a tenth
    assert said("distribution", here(observation=far)) == (
        HOLD,
        "The observed qps of 0.75 lies 7.5 deviations outside the 0 to 0 of the policy's training; at most 5 are "
        "allowed.",
    )
    far[names().index("qps")] = 0.25
    assert said("distribution", here(observation=far))[0] is ALLOW


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"observation": None}, "There is no observation to decide by."),
        ({"observation": np.full(SIZE, np.nan, np.float32)}, "There is no observation to decide by."),
        ({"training": None}, "The policy's bundle does not say what it was trained on."),
    ],
)
def test_without_observation_or_range_it_is_held(change: dict[str, Any], reason: str) -> None:
    assert said("distribution", here(**change)) == (HOLD, reason)


def test_a_policy_that_does_not_observe_has_no_range() -> None:
    static = here(observes=False, observation=None, training=None)
    assert worst(check(static, OBJECTIVES)) is ALLOW


# --- rate of change, freeze -------------------------------------------------------------------------------------------


def test_a_change_beyond_the_largest_step_is_held() -> None:
    """The size's range is three decades: from 2e8 to 4e8 is log10(2) / 3 of it."""
    assert said("rate_of_change", here(proposed=replace(HERE, cache_size=4e8))) == (
        HOLD,
        "cache_size would change by 10.03 % of its range; at most 10 % are allowed in an interval.",
    )


def test_the_largest_step_itself_is_allowed() -> None:
    there = SPACE.settings(SPACE.positions(HERE) + SPACE.max_steps)
    assert said("rate_of_change", here(proposed=there)) == (
        ALLOW,
        "Within the largest steps change: cache_size, ttl_seconds, warmup_ratio.",
    )
    assert said("rate_of_change", here()) == (ALLOW, "No knob would change.")


def test_a_proposal_outside_the_range_or_none_is_held() -> None:
    assert said("rate_of_change", here(proposed=replace(HERE, warmup_ratio=1.5))) == (
        HOLD,
        "warmup_ratio would be 1.5, outside its range of 0 to 1.",
    )
    assert said("rate_of_change", here(proposed=None)) == (HOLD, "The policy proposed nothing.")


def test_in_a_freeze_window_nothing_changes_but_a_rollback() -> None:
    frozen = OBJECTIVES.model_copy(update={"freeze": ("Mon-Fri 09:00-17:00 UTC",)})
    monday_noon = 1_796_040_000.0  # 2026-11-30 12:00 UTC
    assert said("freeze", here(now_seconds=monday_noon), Objectives(**frozen.model_dump())) == (
        HOLD,
        "The operator has frozen the settings until Mon 2026-11-30 17:00 UTC.",
    )
    bad = here({"p99_ttft_seconds": 2.4}, memory={"p99_ttft": 2}, now_seconds=monday_noon)
    assert worst(check(bad, Objectives(**frozen.model_dump()))) is ROLLBACK


# --- all together -----------------------------------------------------------------------------------------------------


def test_nothing_known_is_held_by_every_guardrail_that_looks_at_it() -> None:
    dark = replace(here(), window=None, control=None, signals={}, observation=None, training=None, proposed=None)
    verdicts = {finding.guardrail: finding.verdict for finding in check(dark, OBJECTIVES)}
    assert {name for name, verdict in verdicts.items() if verdict is ALLOW} == {"freeze"}
    assert ROLLBACK not in verdicts.values()


def test_the_worst_counts_and_of_nothing_it_is_hold() -> None:
    findings = [Finding("a", verdict, "") for verdict in (ALLOW, ROLLBACK, HOLD)]
    assert worst(findings) is ROLLBACK
    assert worst(findings[:1]) is ALLOW
    assert worst([]) is HOLD


def test_the_first_reason_is_the_most_severe() -> None:
    findings = [Finding("a", HOLD, "First."), Finding("b", ALLOW, "Fine."), Finding("c", ROLLBACK, "Bad.")]
    assert reasons(findings) == ("Bad.", "First.")


WATCHED = (
    "requests",
    "p99_ttft_seconds",
    "p99_latency_seconds",
    "error_ratio",
    "used_bytes",
    "hit_ratio",
    "stale_ratio",
)
NUMBERS = st.one_of(st.none(), st.just(float("nan")), st.just(float("inf")), st.floats(0, 1e9))
WINDOWS = st.one_of(st.none(), st.fixed_dictionaries(dict.fromkeys(WATCHED, NUMBERS)))


@given(WINDOWS, WINDOWS, st.sampled_from(Arm), st.integers(0, 5), st.floats(0.0, 1.0))
def test_what_is_missing_never_counts_as_in_order(
    window: dict[str, Any] | None, control: dict[str, Any] | None, arm: Arm, row: int, share: float
) -> None:
    """And every finding is a sentence, whatever was poisoned."""
    memory = {guardrail: row for guardrail in ("p99_ttft", "errors", "memory") if row}
    situation = replace(here(), window=window, control=control, arm=arm, share=share, memory=memory)
    findings = check(situation, OBJECTIVES)
    assert all(finding.reason.endswith(".") for finding in findings)
    assert all("nan" not in finding.reason and "inf" not in finding.reason.split() for finding in findings)
    value = None if window is None else window["p99_ttft_seconds"]
    if value is None or not np.isfinite(value):
        assert worst(findings) is not ALLOW
        assert findings[0].verdict is HOLD
    assert all(isinstance(count, int) and count > 0 for count in remembered(memory, findings).values())


def test_every_guardrail_is_in_the_list() -> None:
    public = [
        one
        for module in (guardrails, objective_guardrails)
        for name, one in vars(module).items()
        if getattr(one, "__module__", "") == module.__name__
        and callable(one)
        and list(getattr(one, "__annotations__", {}).values()) == ["Situation", "Objectives", "Finding"]
        and not name.startswith("_")
    ]
    assert set(public) == set(GUARDRAILS)


def test_what_is_not_set_follows_from_the_constraints() -> None:
    filled = Objectives().within(Constraints(p99_ttft_seconds=3.0, stale_ratio=0.1))
    assert (filled.p99_ttft_seconds, filled.stale_ratio) == (3.0, 0.1)
    kept = Objectives(p99_ttft_seconds=1.0, stale_ratio=0.2).within(Constraints())
    assert (kept.p99_ttft_seconds, kept.stale_ratio) == (1.0, 0.2)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"required_signals": ("hitratio",)}, "names of signals, and 'hitratio' is none"),
        ({"freeze": ("Mon 9-10",)}, "a window such as"),
        ({"severe_ratio": 1.0}, "greater than 1"),
        ({"least_requests": 0}, "greater than or equal to 1"),
    ],
)
def test_objectives_that_make_no_sense_are_refused(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Objectives(**change)
