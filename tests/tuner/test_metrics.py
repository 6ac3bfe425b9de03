"""From records to samples: by hand, and with nothing known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.policy import Ghosts
from caches.target import Arm, Plan, Split
from tests.tuner.interval_records import SETTINGS, record
from tuner.exporting import metric_table as table
from tuner.exporting.metric_table import MEASURES, Kind, Measure
from tuner.exporting.metrics import Counts, Known, Sample, Terms, Traffic, samples
from tuner.exporting.regret import LATELY, GhostInterval, Regret, ghost_interval
from tuner.loop.closing import Looked
from tuner.loop.sight import KeysSeen
from tuner.records import ControlState, Decision, IntervalRecord, Mode, Phase, Verdict

TERMS = Terms(60.0, 1.5, None)
CONTROL, TREATMENT = Arm.CONTROL, Arm.TREATMENT
PLAN = Plan(Split("salt", 0.2), SETTINGS, replace(SETTINGS, ttl_seconds=120.0))
STATE = ControlState("cache", 8, 480.0, None, PLAN, True, Phase.CANARY)


def looked(requests: float, entropy: float = 3.0, drift: float = 0.25, usd: tuple[float, ...] = (1.0, 2.0)) -> Looked:
    traffic = np.array([requests, entropy, drift, 0.0, 0.0, 0.0, 0.0])
    unsafe = np.zeros((len(usd), 1), np.bool_)
    ghosts = Ghosts(np.zeros((len(usd), 3)), np.array(usd)[:, None], unsafe)
    return Looked(0.0, keys=KeysSeen(traffic, np.nan, np.full(6, np.nan), ghosts))


def decision(arm: Arm, verdict: Verdict = Verdict.ALLOW, index: int = 8) -> Decision:
    return Decision("cache", index, arm, 480.0, "ppo", 3, Mode.CANARY, verdict, ("Why.",), None, SETTINGS)


def ghosts_of(*usd: float, unsafe: tuple[bool, ...] | None = None) -> GhostInterval:
    broken = np.array(unsafe or (False,) * len(usd))
    return GhostInterval(np.arange(len(usd) * 3.0).reshape(-1, 3), np.array(usd), broken)


def told(known: Known) -> dict[tuple[str, ...], float]:
    found = samples(known, TERMS)
    by_name = {(sample.measure.name.removeprefix("setpoint_tuner_"), *sample.labels): sample.value for sample in found}
    assert len(by_name) == len(found)  # no series twice
    return by_name


def test_of_a_daemon_in_standby_only_what_it_is_and_has_counted() -> None:
    found = {name: value for name, value in told(Known()).items() if len(name) == 1}
    assert found == {
        ("lease_held",): 0.0,
        ("interval_seconds",): 60.0,
        ("p99_ttft_objective_seconds",): 1.5,
        ("rollbacks_total",): 0.0,
    }
    counted = {name: value for name, value in told(Known()).items() if len(name) > 1}
    assert {name[0] for name in counted} == {"intervals_total", "decisions_total"}
    assert set(counted.values()) == {0.0}


def test_an_interval_of_two_arms_by_hand() -> None:
    records = [
        record(7, CONTROL, 2.0, window={"hit_ratio": 0.8, "memory_usd": 0.5, "p99_ttft_seconds": 1.25}),
        record(7, TREATMENT, 1.0, requests=500.0, window={"hit_ratio": 0.9, "p99_ttft_seconds": None}),
    ]
    decisions = [decision(CONTROL), decision(TREATMENT, Verdict.HOLD)]
    known = replace(Known(), fence=4).after(STATE, records, decisions, looked(1_500.0))
    expected = {
        ("lease_held",): 1.0,
        ("fence",): 4.0,
        ("hit_ratio", "control"): 0.8,
        ("hit_ratio", "treatment"): 0.9,
        ("p99_ttft_seconds", "control"): 1.25,
        ("cost_usd_total", "control", "compute"): 2.0,
        ("cost_usd_total", "control", "memory"): 0.5,
        ("cost_usd_total", "treatment", "compute"): 1.0,
        ("requests_total", "control"): 1_000.0,
        ("requests_total", "treatment"): 500.0,
        ("cost_usd_per_1000_requests", "control"): 2.5,
        ("cost_usd_per_1000_requests", "treatment"): 2.0,
        ("entropy_bits",): 3.0,
        ("drift_bits",): 0.25,
        # 3.5 USD were spent, the cheaper ghost would have spent 1: 2.5 USD on 1,500 requests
        ("regret_usd_per_1000_requests",): 2.5 / 1.5,
        ("intervals_total", "control", "recorded"): 1.0,
        ("decisions_total", "control", "allow"): 1.0,
        ("decisions_total", "treatment", "hold"): 1.0,
        ("policy_info", "control", "ppo", "3", "canary"): 1.0,
        ("share_ratio", "control"): 0.8,
        ("share_ratio", "treatment"): 0.2,
        ("ttl_seconds", "control"): 60.0,
        ("ttl_seconds", "treatment"): 120.0,
        ("cache_size_bytes", "treatment"): 1_000.0,
        ("phase", "canary"): 1.0,
        ("phase", "shadow"): 0.0,
        ("plan_confirmed",): 1.0,
        ("paused",): 0.0,
        ("rollback_latched",): 0.0,
        ("last_good_interval_timestamp_seconds",): 8.0,
    }
    found = told(known)
    assert {name: found.get(name) for name in expected} == pytest.approx(expected)
    assert ("p99_ttft_seconds", "treatment") not in found  # not known, so not there
    assert ("entropy_change_bits",) not in found


def test_what_is_not_known_is_absent_and_never_zero() -> None:
    gap = record(7, CONTROL, 1.0)
    gap = replace(gap, window=None, reason="The cache was started anew in the interval.")
    found = told(replace(Known(), fence=1).after(STATE, [gap], [], None))
    absent = (
        "hit_ratio",
        "cost_usd_total",
        "requests_total",
        "entropy_bits",
        "drift_bits",
        "cost_usd_per_1000_requests",
    )
    absent += ("regret_usd_per_1000_requests", "last_good_interval_timestamp_seconds", "guardrail_active")
    assert [name for name in found if name[0] in absent] == []
    assert found["intervals_total", "control", "missed"] == 1.0


def test_an_arm_without_keys_has_no_settings() -> None:
    plan = Plan(Split(), SETTINGS, SETTINGS)
    found = told(replace(Known(), fence=1).after(replace(STATE, plan=plan), [], [], None))
    assert found["share_ratio", "treatment"] == 0.0
    assert ("ttl_seconds", "treatment") not in found


def test_a_guardrail_is_told_by_name_for_the_arm_of_its_role() -> None:
    verdicts = {"p99_ttft": "rollback", "traffic": "allow", "freeze": "hold"}
    state = replace(STATE, memory={"roles": {"challenger": {"verdicts": verdicts}}})
    found = told(replace(Known(), fence=1).after(state, [], [], None))
    states = {name[1:]: value for name, value in found.items() if name[0] == "guardrail_active"}
    assert states == {("treatment", "p99_ttft"): 1.0, ("treatment", "traffic"): 0.0, ("treatment", "freeze"): 1.0}


def test_a_rollback_counts_once_and_not_where_it_was_there_before() -> None:
    back = replace(STATE, phase=Phase.ROLLED_BACK, latched="It was worse.")
    known = Known().after(STATE, [], [], None).after(back, [], [], None).after(replace(back, index=9), [], [], None)
    assert known.counts.rollbacks == 1.0
    assert Known().after(back, [], [], None).counts.rollbacks == 0.0


def test_entropy_changes_by_what_it_was_in_the_interval_before() -> None:
    first = Traffic().after(looked(10.0, entropy=3.0))
    assert first.after(looked(10.0, entropy=4.5)).entropy_change_bits == 1.5
    assert first.after(looked(np.nan, entropy=np.nan)).after(looked(10.0, entropy=4.0)).entropy_change_bits is None


def test_regret_is_against_the_best_fixed_setting_and_not_the_best_of_each_interval() -> None:
    """Ghosts cost 1 and 3, then 4 and 1.5: fixed, 5 and 4.5; we paid 6 on 2,000 requests."""
    regret = Regret().after([record(0, CONTROL, 3.0)], ghosts_of(1.0, 3.0))
    regret = regret.after([record(1, CONTROL, 3.0)], ghosts_of(4.0, 1.5))
    assert regret.usd_per_1000() == pytest.approx((6.0 - 4.5) / 2.0)


def test_a_fixed_setting_that_breaks_constraints_more_often_does_not_count() -> None:
    regret = Regret().after([record(0, CONTROL, 3.0)], ghosts_of(1.0, 2.0, unsafe=(True, False)))
    assert regret.usd_per_1000() == pytest.approx(1.0)


def test_regret_needs_both_arms_and_the_ghosts_of_the_same_interval() -> None:
    both = [record(0, CONTROL, 3.0), replace(record(0, TREATMENT, 3.0), window=None)]
    assert Regret().after(both, ghosts_of(1.0)).usd_per_1000() is None
    assert Regret().after([record(0, CONTROL, 3.0)], None).usd_per_1000() is None
    assert ghost_interval(looked(np.nan)) is None  # ghosts of intervals before


def test_regret_looks_back_no_further_than_lately_and_not_past_another_grid() -> None:
    regret = Regret()
    for index in range(LATELY + 5):
        regret = regret.after([record(index, CONTROL, float(index >= 5))], ghosts_of(0.0, 1.0))
    assert len(regret.spent) == LATELY
    assert regret.usd_per_1000() == pytest.approx(1.0)
    assert len(regret.after([record(0, CONTROL, 1.0)], ghosts_of(1.0, 2.0, 3.0)).spent) == 1


BATCHES = st.lists(
    st.lists(
        st.builds(
            lambda arm, usd, known: record(0, arm, usd) if known else replace(record(0, arm, usd), window=None),
            st.sampled_from(Arm),
            st.floats(0.0, 1e3),
            st.booleans(),
        ),
        max_size=4,
    ),
    max_size=8,
)


@given(BATCHES)
def test_counts_only_grow_and_do_not_depend_on_how_records_come(batches: list[list[IntervalRecord]]) -> None:
    counts = Counts()
    for batch in batches:
        after = counts.after(batch, (), False)
        for before, now in ((counts.usd, after.usd), (counts.intervals, after.intervals)):
            assert all(now[name] >= value for name, value in before.items())
        counts = after
    at_once = Counts().after([one for batch in batches for one in batch], (), False)
    assert at_once.usd == pytest.approx(counts.usd)
    assert at_once.intervals == counts.intervals


def test_names_and_labels_follow_the_conventions() -> None:
    assert len({measure.name for measure in MEASURES}) == len(MEASURES)
    for measure in MEASURES:
        assert measure.name.endswith("_total") is (measure.kind is Kind.COUNTER)
        assert {"key", "hash", "holder", "salt"}.isdisjoint(measure.labels)
        assert ("version" in measure.labels) is (measure.kind is Kind.INFO)
    listed = {id(one) for one in vars(table).values() if isinstance(one, Measure)}
    assert listed == {id(measure) for measure in MEASURES}


def test_samples_have_the_labels_of_their_measure() -> None:
    known = replace(Known(), fence=1).after(STATE, [record(7, CONTROL, 1.0)], [decision(CONTROL)], looked(9.0))
    wrong: list[Sample] = [one for one in samples(known, TERMS) if len(one.labels) != len(one.measure.labels)]
    assert wrong == []
