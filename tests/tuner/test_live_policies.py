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
from envs.observation import SIZE
from tests.agents.bundles import REFERENCE, SPACE, layered_weights, ppo_bundle, rule_bundle, static_bundle
from tuner.loop.policies import RegistryPolicies, require_fit


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


def test_a_policy_goes_on_from_its_memory() -> None:
    home = SPACE.positions(REFERENCE)
    bundle = rule_bundle(WhatIfController(home, SPACE.max_steps, 0.001))
    policy, other = BundlePolicy("rule", bundle), BundlePolicy("rule", bundle)
    policy.recall([0.1, 0.2, 0.3])
    other.recall(policy.memory())
    assert other.memory() == [0.1, 0.2, 0.3]
    assert BundlePolicy("fixed", static_bundle()).memory() == []
