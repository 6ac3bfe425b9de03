"""Policies are exchanged between ticks, and what does not fit never acts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agents.actor import Scaler
from agents.bundle import PolicyBundle
from agents.bundle_policy import BundlePolicy
from agents.registry import CHALLENGER, CHAMPION, Registry
from agents.whatif import WhatIfController
from caches.errors import Mismatch
from caches.policies.pair import CachePolicy, policies_called
from envs.observation import SIZE
from tests.agents.bundles import REFERENCE, SPACE, layered_weights, ppo_bundle, rule_bundle, static_bundle
from tuner.keys.view import Viewpoint
from tuner.loop.policies import RegistryPolicies, require_fit
from tuner.starting import viewpoint_of


def fitting_bundle(seed: int = 0) -> PolicyBundle:
    scaler = Scaler(np.zeros(SIZE), np.ones(SIZE))
    weights = layered_weights((SIZE, 8, 3), seed)
    return replace(ppo_bundle(), observation_size=SIZE, weights=weights, scaler=scaler)


def add(registry: Registry, folder: Path, bundle: PolicyBundle, alias: str | None = None) -> int:
    place = folder / bundle.sha256[:8]
    bundle.save(place)
    with registry.start_run("train", {}) as run:
        version = registry.register(place, run, {})
    if alias == CHALLENGER:
        registry.set_challenger(version)
    if alias == CHAMPION:
        registry.swap_champion(version, registry.champion())
    return version


@pytest.fixture
def policies(registry: Registry) -> RegistryPolicies:
    return RegistryPolicies(registry, SPACE, 300.0)


def test_nothing_registered_is_no_policy_and_no_problem(policies: RegistryPolicies) -> None:
    policies.refresh()
    assert policies.champion() is None
    assert policies.challenger() is None
    assert policies.problems() == {}


def test_aliases_are_followed_at_each_refresh(policies: RegistryPolicies, registry: Registry, tmp_path: Path) -> None:
    first = add(registry, tmp_path, static_bundle(), CHAMPION)
    second = add(registry, tmp_path, fitting_bundle(), CHALLENGER)
    assert policies.champion() is None  # not before it is told to look
    policies.refresh()
    champion, challenger = policies.champion(), policies.challenger()
    assert champion is not None
    assert challenger is not None
    assert (champion.version, champion.name, challenger.version, challenger.name) == (first, "static", second, "PPO")
    registry.swap_champion(second, first)
    policies.refresh()
    assert policies.champion() is not None
    assert policies.champion().version == second  # type: ignore[union-attr]
    assert policies.challenger() is None


def test_what_does_not_fit_is_refused_and_the_last_good_one_stays(
    policies: RegistryPolicies, registry: Registry, tmp_path: Path
) -> None:
    good = add(registry, tmp_path, fitting_bundle(1), CHALLENGER)
    policies.refresh()
    bad = add(registry, tmp_path, ppo_bundle(), CHALLENGER)  # takes 5 entries to observe
    for _ in range(2):  # it goes on being told
        policies.refresh()
        assert policies.challenger() is not None
        assert policies.challenger().version == good  # type: ignore[union-attr]
        told = policies.problems()[CHALLENGER]
        assert told.startswith(f"Version {bad} is refused")
        assert "observation size" in told
        assert told.endswith(f"Version {good} goes on.")


def test_a_registry_that_is_gone_changes_nothing(
    policies: RegistryPolicies, registry: Registry, mlruns: Path, tmp_path: Path
) -> None:
    add(registry, tmp_path, fitting_bundle(), CHAMPION)
    policies.refresh()
    before = policies.champion()
    (mlruns / "mlflow.db").write_bytes(b"no database" * 1_000)
    policies.refresh()
    assert policies.champion() is before
    assert list(policies.problems()) == ["registry"]


def test_a_registry_that_lost_everything_is_no_decision(
    policies: RegistryPolicies, registry: Registry, mlruns: Path, tmp_path: Path
) -> None:
    add(registry, tmp_path, fitting_bundle(), CHAMPION)
    policies.refresh()
    before = policies.champion()
    (mlruns / "mlflow.db").unlink()
    policies.refresh()
    assert policies.champion() is before
    assert list(policies.problems()) == ["registry"]


def test_promotion_waits_for_the_registry(policies: RegistryPolicies, registry: Registry, tmp_path: Path) -> None:
    first = add(registry, tmp_path, static_bundle(), CHAMPION)
    second = add(registry, tmp_path, fitting_bundle(), CHALLENGER)
    policies.refresh()
    policies.promote(second, first)
    assert registry.champion() == first
    policies.refresh()
    assert registry.champion() == second
    policies.promote(second, first)  # again, as after a restart
    policies.refresh()
    assert registry.champion() == second
    assert policies.problems() == {}


def test_promotion_over_another_champion_is_told(
    policies: RegistryPolicies, registry: Registry, tmp_path: Path
) -> None:
    first = add(registry, tmp_path, static_bundle(), CHAMPION)
    second = add(registry, tmp_path, fitting_bundle(), CHALLENGER)
    third = add(registry, tmp_path, fitting_bundle(2))
    registry.swap_champion(third, first)
    policies.promote(second, first)
    policies.refresh()
    assert registry.champion() == third
    assert f"the champion is {third} by now" in policies.problems()[CHAMPION]


def test_fit_names_both_sides() -> None:
    narrow = replace(SPACE, cache_size=replace(SPACE.cache_size, high=5e8))
    with pytest.raises(Mismatch, match=r"cache_size: it moves in 1e\+06 to 1e\+09, the cache in 1e\+06 to 5e\+08"):
        require_fit(fitting_bundle(), narrow, 300.0)
    with pytest.raises(Mismatch, match="trained at 300 s, control runs at 60 s"):
        require_fit(fitting_bundle(), SPACE, 60.0)
    wide = replace(SPACE, cache_size=replace(SPACE.cache_size, high=5e12))
    require_fit(fitting_bundle(), wide, 300.0)  # a cache that allows more than the policy asks for
    require_fit(static_bundle(), SPACE, 60.0)  # it has no interval


def choosing_bundle(*names: str) -> PolicyBundle:
    """One that chooses between these, made for the first."""
    choices = policies_called(names)
    rule = WhatIfController(SPACE.positions(REFERENCE), SPACE.max_steps, 0.001, choices=choices)
    return replace(rule_bundle(rule), policy=choices[0], choices=choices)


def test_who_chooses_fits_where_the_cache_is_followed_under_all_of_it() -> None:
    bundle = choosing_bundle("sieve", "lru", "gdsf")
    for names in (("sieve", "lru", "gdsf"), ("sieve", "gdsf", "lfu", "lru")):
        require_fit(bundle, SPACE, 300.0, policies_called(names))
    chooses = "eviction policy: it chooses between sieve, lru, gdsf, what is followed is sieve, lru; "
    with pytest.raises(Mismatch, match=rf"{chooses}\[cache\] eviction_policy of the daemon names what may be chosen"):
        require_fit(bundle, SPACE, 300.0, policies_called(("sieve", "lru")))
    with pytest.raises(Mismatch, match="policy of the cache: the bundle has 'sieve', this program has 'lru'"):
        require_fit(bundle, SPACE, 300.0, policies_called(("lru", "sieve", "gdsf")))
    with pytest.raises(
        Mismatch, match=r"it chooses between sieve, lru, gdsf, what is followed is sieve; .*; interval: "
    ):
        require_fit(bundle, SPACE, 60.0, policies_called("sieve"))
    with pytest.raises(Mismatch, match=r"the bundle has 'sieve', this program has 'sieve \+ second-hit'"):
        require_fit(bundle, SPACE, 300.0, policies_called(("sieve", "lru", "gdsf"), ("second-hit",)))


def test_who_does_not_choose_fits_the_first_and_no_other() -> None:
    bundle = replace(static_bundle(), policy=CachePolicy("sieve"))
    require_fit(bundle, SPACE, 300.0, policies_called(("sieve", "lru")))
    with pytest.raises(Mismatch, match="policy of the cache"):
        require_fit(bundle, SPACE, 300.0, policies_called(("lru", "sieve")))


def test_what_chooses_more_than_is_followed_never_acts(registry: Registry, tmp_path: Path) -> None:
    policies = RegistryPolicies(registry, SPACE, 300.0, policies_called(("sieve", "lru")))
    fits = add(registry, tmp_path, choosing_bundle("sieve", "lru"), CHALLENGER)
    policies.refresh()
    add(registry, tmp_path, choosing_bundle("sieve", "lru", "lfu"), CHALLENGER)
    policies.refresh()
    assert policies.challenger() is not None
    assert policies.challenger().version == fits  # type: ignore[union-attr]
    assert "it chooses between sieve, lru, lfu" in policies.problems()[CHALLENGER]


FOLLOWED = policies_called(("sieve", "lru", "lfu"))


def test_what_either_chooses_between_is_followed(registry: Registry, tmp_path: Path) -> None:
    """From the champion's ranges and reference, if there is one."""
    policies = RegistryPolicies(registry, SPACE, 300.0, FOLLOWED)
    assert viewpoint_of(policies) == Viewpoint(SPACE, SPACE.default())
    version = add(registry, tmp_path, choosing_bundle("sieve", "lfu"), CHALLENGER)
    policies.refresh()
    assert viewpoint_of(policies) == Viewpoint(SPACE, REFERENCE, ("sieve", "lfu"))
    add(registry, tmp_path, replace(fitting_bundle(), policy=FOLLOWED[0]), CHAMPION)
    policies.refresh()
    assert viewpoint_of(policies) == Viewpoint(SPACE, REFERENCE, ("sieve", "lfu"))
    registry.swap_champion(version, registry.champion())
    policies.refresh()
    assert policies.challenger() is None
    assert viewpoint_of(policies) == Viewpoint(SPACE, REFERENCE, ("sieve", "lfu"))


def test_a_challenger_that_chooses_between_others_than_the_champion_waits(registry: Registry, tmp_path: Path) -> None:
    """One ghost in a list would stand for another policy to each of them."""
    policies = RegistryPolicies(registry, SPACE, 300.0, FOLLOWED)
    first = add(registry, tmp_path, choosing_bundle("sieve", "lru"), CHAMPION)
    other = add(registry, tmp_path, choosing_bundle("sieve", "lfu"), CHALLENGER)
    for _ in range(2):
        policies.refresh()
        assert policies.challenger() is None
        told = f"Version {other} waits: it chooses between sieve, lfu, the champion between sieve, lru; "
        assert policies.problems()[CHALLENGER].startswith(told)
        assert viewpoint_of(policies).choices == ("sieve", "lru")
    plain = add(registry, tmp_path, replace(fitting_bundle(), policy=FOLLOWED[0]))
    registry.swap_champion(plain, first)
    policies.refresh()
    assert policies.problems() == {}
    assert policies.challenger() is not None
    assert policies.challenger().version == other  # type: ignore[union-attr]


def test_a_policy_goes_on_from_its_memory() -> None:
    home = SPACE.positions(REFERENCE)
    bundle = rule_bundle(WhatIfController(home, SPACE.max_steps, 0.001))
    policy, other = BundlePolicy("rule", bundle), BundlePolicy("rule", bundle)
    policy.recall([0.1, 0.2, 0.3])
    other.recall(policy.memory())
    assert other.memory() == [0.1, 0.2, 0.3]
    assert BundlePolicy("fixed", static_bundle()).memory() == []
