"""What a rehearsal asks, and what it tells gateway and daemon."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from agents.mlflow_store import default_tracking_uri
from agents.registry import Registry
from api.emulator.answers import chat_answer
from api.emulator.bodies import ChatBody, checked
from api.emulator.digests import request_digest
from api.rehearsal.enrolling import enrol
from api.rehearsal.keys import KeysDestination
from api.rehearsal.settings import daemon_config, gateway_config
from api.rehearsal.traffic import Questions
from caches.errors import InputError, NotFound
from tests.agents.bundles import static_bundle
from tests.api.rehearsal.worlds import problem_by_hand
from traces.access.record import AccessRecord
from tuner.config import TunerConfig
from tuner.keys.in_process import InProcessKeys


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
