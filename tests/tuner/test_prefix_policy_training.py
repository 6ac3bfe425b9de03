"""A policy of a prefix cache through training and judgement: everything runs under it, and its bundles carry it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agents.registry import Registry
from agents.tracks import Depth
from agents.uncertainty import Resampling
from caches.errors import Mismatch
from caches.policies.pair import PLAIN, CachePolicy
from tests.envs.test_prefix_policies import long_traffic
from tests.stores import FirstUse
from tests.tuner.test_cache_policy import config_of
from traces.store import save_trace
from traces.trace import Trace
from tuner.config import TunerConfig
from tuner.evaluating import evaluate_and_record
from tuner.training import train_and_register


def training_of(
    tmp_path: Path, first_use: FirstUse, intervals: int, **cache: object
) -> tuple[TunerConfig, Trace, Registry]:
    """What to train with, in a registry of its own. cache: settings of that section."""
    shutil.copy(first_use.mlruns / "mlflow.db", tmp_path / "mlflow.db")
    trace = long_traffic(intervals)
    save_trace(trace, tmp_path / "prompts.trace")
    settings = {
        "trace.path": str(tmp_path / "prompts.trace"),
        "trace.interval_seconds": 1.0,
        "tracking.output": str(tmp_path / "out"),
        "cache.kind": "prefix",
        **{f"cache.{name}": value for name, value in cache.items()},
    }
    return config_of(**settings), trace, Registry(f"sqlite:///{tmp_path}/mlflow.db", "policies", "policy")


def test_a_training_under_a_policy_of_prefix_caches(tmp_path: Path, first_use: FirstUse) -> None:
    told = {"eviction_policy": "hit-density", "admission": "second-hit"}
    config, trace, registry = training_of(tmp_path, first_use, 200, **told)
    policy = CachePolicy("hit-density", "second-hit")
    done = train_and_register(config, trace, registry, tmp_path / "checkpoints")
    assert {registry.load(version.version).policy for version in registry.versions()} == {policy}
    judged = evaluate_and_record(config, trace, registry, done.best.version, Resampling(200), depth=Depth.QUICK)
    assert judged.evaluation.setting.cache_policy == "hit-density + second-hit"
    plain = config.model_copy(update={"cache": config.cache.under(PLAIN)})
    with pytest.raises(Mismatch, match="made for a cache under hit-density"):
        evaluate_and_record(plain, trace, registry, done.best.version, Resampling(200), depth=Depth.QUICK)


def test_of_several_policies_of_prefix_caches_one_is_kept(tmp_path: Path, first_use: FirstUse) -> None:
    """Nothing moves between them: a prefix cache stays under the one that it was made with."""
    config, trace, registry = training_of(tmp_path, first_use, 120, eviction_policy=("lru", "lru-2"))
    train_and_register(config, trace, registry, tmp_path / "checkpoints")
    bundles = [registry.load(version.version) for version in registry.versions()]
    assert len({bundle.policy for bundle in bundles}) == 1
    assert {bundle.choices for bundle in bundles} == {()}
