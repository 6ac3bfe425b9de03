"""The cache's policy in the settings of training, evaluation and the daemon."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.registry import Registry
from agents.tracks import Depth
from agents.uncertainty import Resampling
from api.rehearsal.settings import daemon_config
from caches.errors import InputError, Mismatch
from caches.policies.pair import PLAIN, CachePolicy
from caches.policies.settings import SecondHit
from tests.agents.bundles import static_bundle
from tests.envs.worlds import random_trace
from tests.stores import FirstUse
from tests.tuner.test_live_policies import SPACE
from traces.store import save_trace
from tuner.config import TunerConfig, load_tuner_config
from tuner.evaluating import evaluate_and_record
from tuner.loop.policies import require_fit
from tuner.problem import problem_of, under_bundle
from tuner.starting import ghost_rules
from tuner.training import find_training, train_and_register, training_key

TINY: dict[str, object] = {
    "trace.interval_seconds": 10.0,
    "serving.max_sequences": 2,
    "constraints.p99_ttft_seconds": 1e6,
    "run.seeds": [0],
    "run.workers": 1,
    "ppo.total_steps": 128,
    "ppo.lanes": 8,
    "ppo.steps_per_update": 8,
    "ppo.batch_size": 32,
    "ppo.epochs": 1,
    "ppo.horizon": 8,
    "ppo.starts": 2,
    "ppo.evaluate_every": 1,
}


def config_of(**sections: Any) -> TunerConfig:
    return load_tuner_config(None, Path("nowhere"), {}, TINY | sections)


def test_the_problem_has_the_policy_of_the_settings() -> None:
    config = config_of(**{"cache.eviction_policy": "s3-fifo", "cache.admission": "second-hit"})
    assert problem_of(config, random_trace(0)).policy == CachePolicy("s3-fifo", "second-hit")
    assert problem_of(config_of(), random_trace(0)).policy == PLAIN
    with pytest.raises(InputError, match=r"cache\.eviction_policy: got lru, lfu, expected one: a cache is replayed"):
        problem_of(config_of(**{"cache.eviction_policy": ["lru", "lfu"]}), random_trace(0))


def test_trainings_of_least_recently_used_keep_their_keys() -> None:
    """Fixed once: a training that was registered before there were other policies is found."""
    trace = replace(random_trace(0), sha256="ab" * 32)
    plain = training_key(config_of(), trace)
    assert plain == training_key(config_of(**{"cache.eviction_policy": ["lru"]}), trace)
    others: list[dict[str, Any]] = [
        {"cache.eviction_policy": "sieve"},
        {"cache.eviction_policy": ["lru", "sieve"]},
        {"cache.admission": "second-hit"},
    ]
    assert len({plain, *(training_key(config_of(**other), trace) for other in others)}) == 4
    settings = config_of().model_dump(mode="json")["cache"]
    assert (settings["eviction_policy"], settings["admission"]) == ("lru", "all")


def test_settings_that_do_not_name_a_bundles_policy_refuse_it() -> None:
    bundle = replace(static_bundle(), policy=CachePolicy("sieve"))
    several = under_bundle(config_of(**{"cache.eviction_policy": "all"}), bundle)
    assert several.cache.policy == CachePolicy("sieve")
    with pytest.raises(
        Mismatch, match=r"made for a cache under sieve, cache\.eviction_policy and cache\.admission say lru"
    ):
        under_bundle(config_of(), bundle)
    with pytest.raises(Mismatch, match="policy of the cache: the bundle has 'sieve', this program has 'lru'"):
        require_fit(bundle, SPACE, 60.0)
    require_fit(bundle, SPACE, 60.0, [CachePolicy("sieve")])


def test_ghosts_beside_live_traffic_follow_the_policies_of_the_settings() -> None:
    """The cache's own is the first that they name."""
    other = config_of(**{"cache.eviction_policy": "sieve", "cache.admission": "second-hit"})
    assert ghost_rules(other).terms.policies == (CachePolicy("sieve", "second-hit"),)
    assert ghost_rules(daemon_config(other, "http://127.0.0.1:1", Path("ledger.db"))) == ghost_rules(other)
    terms = ghost_rules(config_of()).terms
    assert (terms.policies, terms.warmup_candidates) == ((PLAIN,), 128)
    several = config_of(**{"cache.eviction_policy": ["lfu", "lru"]})
    assert ghost_rules(several).terms.policies == (CachePolicy("lfu"), PLAIN)


def test_what_the_second_hit_remembers_is_what_the_catalog_says() -> None:
    assert CachePolicy("lru", "second-hit").rules.remembered == SecondHit().remembered


def test_training_on_several_policies_keeps_the_cheapest(tmp_path: Path, first_use: FirstUse) -> None:
    """Every second request comes once; the rest are a few keys that LFU keeps in a cache too small for LRU."""
    shutil.copy(first_use.mlruns / "mlflow.db", tmp_path / "mlflow.db")
    save_trace(_trace(), tmp_path / "mixed.trace")
    config = config_of(
        **{
            "trace.path": str(tmp_path / "mixed.trace"),
            "cache.eviction_policy": ["lru", "lfu"],
            "tracking.output": str(tmp_path / "out"),
            "knobs.cache_size.low": 700.0,
            "knobs.cache_size.high": 800.0,
            "prices.answer_lifetime_seconds": 1e9,
        }
    )
    registry = Registry(f"sqlite:///{tmp_path}/mlflow.db", "policies", "policy")
    done = train_and_register(config, _trace(), registry, tmp_path / "checkpoints")
    bundles = [registry.load(version.version) for version in registry.versions()]
    assert len(bundles) == 3
    assert {bundle.policy for bundle in bundles} == {CachePolicy("lfu")}
    assert find_training(registry, training_key(config, _trace()), (0,)) is not None
    judged = evaluate_and_record(config, _trace(), registry, done.best.version, Resampling(200), depth=Depth.QUICK)
    assert judged.evaluation.setting.cache_policy == "lfu"
    fixed = config.model_copy(update={"cache": config.cache.under(PLAIN)})
    with pytest.raises(Mismatch, match="made for a cache under lfu"):
        evaluate_and_record(fixed, _trace(), registry, done.best.version, Resampling(200), depth=Depth.QUICK)


def _trace() -> Any:
    turns = [k for turn in range(600) for i in range(4) for k in (i, i, 4 + 8 * turn + 2 * i, 5 + 8 * turn + 2 * i)]
    key = np.array(turns, np.int32)
    return replace(
        random_trace(0),
        arrival_seconds=np.arange(len(key)) / 20.0,
        key=key,
        size_bytes=np.full(len(key), 100, np.int32),
        num_keys=int(key.max()) + 1,
        prompt_tokens=np.full(len(key), 500, np.int32),
        output_tokens=np.full(len(key), 40, np.int32),
    )
