"""What a rehearsal asks, and what it tells gateway and daemon."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from agents.bundle import PolicyBundle
from agents.mlflow_store import default_tracking_uri
from agents.registry import Registry
from agents.rules import arrays_of
from agents.whatif import WhatIfController
from api.emulator.answers import chat_answer
from api.emulator.bodies import ChatBody, checked
from api.emulator.digests import request_digest
from api.rehearsal.enrolling import enrol
from api.rehearsal.keys import KeysDestination
from api.rehearsal.settings import daemon_config, for_bundle, gateway_config
from api.rehearsal.traffic import Questions
from caches.errors import InputError, Mismatch, NotFound
from caches.policies.catalog import ADMISSIONS, EVICTIONS
from caches.policies.pair import CachePolicy, policies_called
from caches.policies.settings import AdmitAll, SecondHit
from tests.agents.bundles import PROVENANCE, SCALE, static_bundle
from tests.api.rehearsal.worlds import INTERVAL_SECONDS, SETTINGS, problem_by_hand, trace_by_hand
from traces.access.record import AccessRecord
from tuner.config import TunerConfig
from tuner.keys.in_process import InProcessKeys
from tuner.loop.policies import require_fit
from tuner.problem import problem_of, under
from tuner.starting import require_offered


def test_a_question_costs_the_tokens_of_its_key() -> None:
    trace = problem_by_hand().trace
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    questions = Questions(trace, "model")
    for key in range(trace.num_keys):
        row = int(np.argmax(trace.key == key))
        raw = orjson.loads(questions.of(row))
        answer = chat_answer(checked(ChatBody, raw), request_digest(0, "/v1/chat/completions", raw))
        assert answer.prompt_tokens == trace.prompt_tokens[row]
        assert answer.completion_tokens == trace.output_tokens[row]
        assert answer.choices[0].finish_reason == "stop"  # a cut answer is not cached


def test_equal_keys_ask_the_same_and_others_do_not() -> None:
    trace = problem_by_hand().trace
    questions = Questions(trace, "model")
    asked = [questions.of(row) for row in range(len(trace))]
    by_key = {int(key): body for key, body in zip(trace.key, asked, strict=True)}
    assert asked == [by_key[int(key)] for key in trace.key]
    assert len(set(asked)) == trace.num_keys


def test_a_trace_without_tokens_is_refused() -> None:
    with pytest.raises(InputError, match="got no token counts"):
        Questions(replace(problem_by_hand().trace, output_tokens=None), "model")


def test_the_gateway_has_the_ranges_of_the_problem() -> None:
    problem = problem_by_hand()
    config = gateway_config(problem, "http://127.0.0.1:1", 50.0)
    assert config.tiers.memory.knobs.default() == problem.knobs.default()
    for name in ("cache_size", "ttl_seconds"):
        theirs, ours = getattr(config.tiers.memory.knobs, name), getattr(problem.knobs, name)
        assert (theirs.low, theirs.high) == (ours.low, ours.high)
    assert config.tuning.enabled
    assert (config.tiers.disk.enabled, config.tiers.semantic.enabled) == (False, False)
    assert config.warming.every_seconds == problem.interval_seconds / 50.0
    assert config.warming.most_keys == problem.warmup_candidates
    # an interval later a request counts popularity_decay
    assert 0.5 ** (60.0 / config.warming.half_life_seconds) == pytest.approx(problem.popularity_decay)


@pytest.mark.parametrize(("eviction", "admission"), [("lru", "all"), ("s3-fifo", "second-hit"), ("gdsf", "tinylfu")])
def test_the_gateway_runs_under_the_policy_of_the_problem(eviction: str, admission: str) -> None:
    """With the parameters that ghosts and training have it with."""
    policy = CachePolicy(eviction, admission)
    memory = gateway_config(replace(problem_by_hand(), policy=policy), "http://127.0.0.1:1", 50.0).tiers.memory
    assert memory.eviction == EVICTIONS[eviction]
    door = memory.doorkeeper({})
    assert (door is not None) == (admission == "second-hit")
    assert memory.judged_by == (AdmitAll() if door is not None else ADMISSIONS[admission])
    rule = ADMISSIONS["second-hit"]
    assert isinstance(rule, SecondHit)
    assert (memory.admission_requests or 2, memory.admission_window_seconds) == (rule.requests, rule.window_seconds)


def test_the_daemon_keeps_how_it_decides() -> None:
    told = TunerConfig.model_validate({"rollout": {"shadow_intervals": 7}, "control": {"mode": "shadow"}})
    config = daemon_config(told, "http://127.0.0.1:1", Path("/there/ledger.db"))
    assert config.rollout == told.rollout
    assert config.control.ledger == "sqlite:////there/ledger.db"
    assert (config.control.mode, config.signals.prometheus) == ("live", None)
    assert config.tracking == told.tracking
    prefix = TunerConfig.model_validate({"cache": {"kind": "prefix"}})
    with pytest.raises(InputError, match=r"cache\.kind: got 'prefix', expected 'response'"):
        daemon_config(prefix, "http://127.0.0.1:1", Path("/there/ledger.db"))


def test_a_policy_that_chooses_has_a_cache_that_offers_it_all() -> None:
    """Whatever else the settings name, and in whichever order: gateway, problem, ghosts and policy agree."""
    bundle = bundle_that_chooses("sieve", "lru")
    told = TunerConfig.model_validate(tomllib.loads(SETTINGS + '[cache]\neviction_policy = ["lru", "gdsf", "sieve"]\n'))
    config = for_bundle(told, bundle)
    assert config == told.model_copy(update={"cache": config.cache})
    assert config.cache.policies == policies_called(("sieve", "lru"))
    problem = problem_of(under(config, bundle.policy), trace_by_hand())
    assert problem.policy == CachePolicy("sieve")
    memory = gateway_config(problem, "http://127.0.0.1:1", 50.0, config.cache.policies).tiers.memory
    assert memory.eviction == EVICTIONS["sieve"]
    assert memory.offered_policies == ("sieve", "lru")
    daemon = daemon_config(config, "http://127.0.0.1:1", Path("ledger.db"))
    require_offered(daemon.cache.policies, memory.offered_policies)
    require_fit(bundle, problem.knobs, INTERVAL_SECONDS, daemon.cache.policies)


def test_a_policy_that_does_not_choose_has_the_cache_that_it_was_made_for() -> None:
    bundle = replace(static_bundle(), policy=CachePolicy("sieve", "second-hit"))
    several = TunerConfig.model_validate({"cache": {"eviction_policy": "all", "admission": "second-hit"}})
    assert for_bundle(several, bundle).cache.policies == (CachePolicy("sieve", "second-hit"),)
    with pytest.raises(
        Mismatch, match=r"made for a cache under sieve \+ second-hit, cache\.eviction_policy .* say lru"
    ):
        for_bundle(TunerConfig(), bundle)


def bundle_that_chooses(*names: str) -> PolicyBundle:
    knobs, choices = problem_by_hand().knobs, policies_called(names)
    rule = WhatIfController(knobs.positions(knobs.default()), knobs.max_steps, 0.0, choices=choices)
    scale, arrays = replace(SCALE, interval_seconds=INTERVAL_SECONDS), arrays_of(rule)
    made = PolicyBundle("whatif", knobs, knobs.default(), PROVENANCE, scale=scale, weights=arrays)
    return replace(made, policy=choices[0], choices=choices)


def test_records_of_the_access_log_are_the_key_stream() -> None:
    keys = InProcessKeys(b"secret of sixteen")
    log = KeysDestination(keys)
    record = AccessRecord(7.0, b"key", "", "default", "miss", 200, 100, 10, 20)
    log.write([record, record._replace(arrival_seconds=9.0, key_id=None)], 10.0)
    taken = keys.take(20.0)
    assert taken.requests.time.tolist() == [7.0]


def test_a_rehearsal_has_a_challenger_and_nobody_else(registry: Registry, mlruns: Path, tmp_path: Path) -> None:
    static_bundle().save(tmp_path / "policy")
    with registry.start_run("train", {}) as run:
        version = registry.register(tmp_path / "policy", run, {})
    registry.set_challenger(version)
    rehearsal = Registry(default_tracking_uri(mlruns, {}), registry.experiment, "cache-policy-rehearsal")
    first = enrol(registry, version, rehearsal)
    rehearsal.swap_champion(first, None)
    second = enrol(registry, version, rehearsal)
    assert (first, second) == (1, 2)
    assert rehearsal.champion() is None
    assert rehearsal.version("challenger").version == second
    assert rehearsal.load(second).sha256 == registry.load(version).sha256
    assert registry.version("challenger").version == version
    with pytest.raises(NotFound):
        enrol(registry, 9, rehearsal)
