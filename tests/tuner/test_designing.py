"""What past traffic has to say about the design of an experiment that begins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caches.shadow.sampling import mixed
from caches.target import BalancedSalt, CacheUnavailable
from envs.journal import GROUPS
from tests.tuner.loops import DESIGN, LARGE, Bench, Crash, HandPolicies, policy, rules
from tuner.experiment import ExperimentDesign, imbalance
from tuner.keys.past import PastTraffic
from tuner.live.shadow_cache import key_name
from tuner.loop.designing import TAKEN, TOO_LITTLE, filled, seed_of, wants_salt
from tuner.loop.experiments import DESIGN as PLAN
from tuner.loop.experiments import Running, design_json
from tuner.records import ExperimentRecord, Phase
from tuner.router import points

SALT = BalancedSalt("00ff", 0.25, 1_200)
SHARES = (0.2, 0.5)


def record(**changes: object) -> ExperimentRecord:
    design = ExperimentDesign.model_validate({"salt": "cache-7-v3", "share": 0.2} | changes)
    return ExperimentRecord("cache-7-v3", "cache", 0.0, 2, 3, design_json(design, None))


def past() -> PastTraffic:
    """Four keys that cost alike, but for the first, which costs twice as much."""
    known = PastTraffic()
    ids = mixed(np.arange(4, dtype=np.uint64), 0)
    group = (ids % np.uint64(GROUPS)).astype(int)
    assert len(set(group)) == 4
    usd, requests = (np.bincount(group, weights, GROUPS) for weights in ([2.0, 1.0, 1.0, 1.0], np.ones(4)))
    for _ in range(20):
        known.add(ids)
        known.close(usd, requests, 1.0, 5.0)
    return known


def design_of(one: ExperimentRecord) -> ExperimentDesign:
    return Running.of(one).design


def test_what_nobody_set_is_taken_from_the_past() -> None:
    """A quarter for each of four keys: as concentrated as 4 / 16. They cost 1.25 on average, so keys are 0.75 and
    thrice -0.25 over it, of 5 in all; at a fifth of the keys the difference spreads by 1 / 0.4 of that. Squares count
    64 / 63 times, as groups differ from their mean, which they made themselves."""
    found = filled(record(), past(), SALT, SHARES)
    design = design_of(found)
    assert design.salt == "00ff"
    assert design.concentration == pytest.approx(0.25, rel=1e-3)
    assert design.luck_ratio == pytest.approx(np.sqrt((0.75**2 + 3 * 0.25**2) * 64 / 63) / 0.4 / 5.0)
    assert found.design[TAKEN] == {
        "salt": "The one of those tried that splits past traffic best, by the 1,200 heaviest keys of the cache: 0.25 "
        "standard deviations off at most.",
        "concentration": "By the requests of the last 20 intervals in the key stream.",
        "luck_ratio": "By what keys cost under the control's settings, of the last 20 intervals in the key stream: "
        "over splits at random with the share 0.2, the smallest.",
    }
    assert design == ExperimentDesign.model_validate(
        design_of(record()).model_dump()
        | {"salt": "00ff", "concentration": design.concentration, "luck_ratio": design.luck_ratio}
    )


def test_what_the_operator_set_stays() -> None:
    told = record(salt="march", concentration=0.5, luck_ratio=0.125)
    assert not wants_salt(told)
    found = filled(told, past(), None, SHARES)
    assert design_of(found) == design_of(told)
    assert found.design[TAKEN] == {}


@pytest.mark.parametrize("known", [None, PastTraffic()])
def test_where_nothing_is_known_nothing_changes(known: PastTraffic | None) -> None:
    found = filled(record(), known, None, SHARES)
    assert design_of(found) == design_of(record())
    assert found.design[TAKEN] == {
        "salt": "The experiment's name: the cache knows of no requests yet.",
        "concentration": TOO_LITTLE,
        "luck_ratio": TOO_LITTLE,
    }


def test_seeds_are_those_of_names() -> None:
    other = ExperimentRecord("cache-8-v3", "cache", 0.0, 2, 3, {})
    assert seed_of(record()) == seed_of(record(share=0.4)) != seed_of(other)
    assert 0 <= seed_of(record()) < 2**63


def begun(bench: Bench) -> ExperimentRecord:
    """The experiment, when it has two arms."""
    while bench.run(1).state.phase is not Phase.CANARY:  # type: ignore[union-attr]
        assert bench.now < 30 * 60.0
    (experiment,) = bench.ledger.experiments("shadow")
    return experiment


def test_an_experiment_begins_with_a_balanced_salt_and_keeps_it(folder: Path) -> None:
    """Better balanced than most, on all requests that the cache had by then."""
    bench = Bench(folder, policies=HandPolicies(None, None))
    bench.run(3)
    asked = bench.cache.cache._asked.copy()
    bench.policies.second = policy(7, LARGE)
    experiment = begun(bench)
    design = design_of(experiment)
    assert design.model_copy(update={"salt": "", "share": 0.5}) == DESIGN
    assert bench.state.plan.split.salt == design.salt != experiment.id
    taken = experiment.design[TAKEN]
    assert isinstance(taken, dict)
    assert set(taken) == {"salt", "concentration"}  # how far luck goes was set
    names, parts = [key_name(key) for key in asked], np.array([[count] for count in asked.values()], float)
    off = [
        imbalance(points(names, salt), parts / parts.sum(), SHARES)
        for salt in (design.salt, *(f"s{number}" for number in range(40)))
    ]
    assert off[0] < np.percentile(off[1:], 20)
    assert design_of(begun(bench)) == design


def test_without_a_word_of_the_cache_the_salt_is_the_name(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(None, None))
    bench.run(2)
    bench.policies.second = policy(7, LARGE)
    bench.cache.before["balanced_salt"] = CacheUnavailable("gateway: got status 404, nothing is tuned there")
    experiment = begun(bench)
    assert design_of(experiment).salt == experiment.id == bench.state.plan.split.salt
    taken = experiment.design[TAKEN]
    assert isinstance(taken, dict)
    assert taken["salt"] == "The experiment's name: gateway: got status 404, nothing is tuned there"


def test_a_salt_of_the_operators_own_is_not_asked_for(folder: Path) -> None:
    chosen = rules(designed=lambda _name: DESIGN.model_copy(update={"salt": "march"}))
    bench = Bench(folder, rules=chosen, policies=HandPolicies(None, policy(7, LARGE)))
    bench.cache.before["balanced_salt"] = Crash()
    assert design_of(begun(bench)).salt == bench.state.plan.split.salt == "march"


def test_a_daemon_that_dies_when_it_has_a_salt_leaves_none_behind(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(None, policy(7, LARGE)))
    bench.cache.after["balanced_salt"] = Crash()
    with pytest.raises(Crash):
        bench.run(2)
    assert bench.ledger.experiments("shadow") == []
    bench.loop = bench.started("one")
    experiment = begun(bench)
    plan = experiment.design[PLAN]
    assert isinstance(plan, dict)
    assert plan["salt"] != experiment.id
