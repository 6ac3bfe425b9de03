"""The access log of a real gateway in front of the emulator, read back as a trace."""

from __future__ import annotations

import itertools
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
from redis import Redis
from typer.testing import CliRunner

from api.cli.main import app as command
from api.gateway.app import create_gateway
from api.gateway.building import built
from api.gateway.config import ServeConfig
from api.gateway.service import GatewayService
from api.gateway.settings import GatewaySettings, KeyHolder, key_hash
from api.gateway.upstream import upstream_client
from caches.clocks import Clocks
from caches.errors import InputError
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.request_key import Partition
from caches.knobs import Knob, KnobSpace
from caches.place import Place
from caches.shadow import kernel
from caches.shadow.cache import ShadowCache, requests_of
from caches.stack import Stack, StackRules
from caches.target import Plan, Split
from caches.tiers.memory import MemoryTier
from caches.tiers.split import SplitTier
from tests.api.gateway.conftest import (
    EMBEDDINGS,
    SPACE,
    Backend,
    ask,
    chat,
    emulated,
    metric,
    openai_at,
    outcome,
    send,
    serving,
    until,
)
from tests.api.gateway.test_serve_command import started
from traces.access.log import AccessLog, Destination
from traces.access.parquet_log import ParquetAccessLog
from traces.access.secret import key_hash as hash_under
from traces.access.secret import secret_in
from traces.catalog import load_trace
from traces.store import open_trace
from tuner.config import TunerConfig
from tuner.config_loader import load_config
from tuner.problem import make_problem
from tuner.router import assign, assigner

CAPACITY, OVERHEAD = 12_000, 512


@dataclass
class Logged:
    """A gateway with a log, whose tier holds a few answers."""

    tier: MemoryTier
    log: AccessLog
    address: str = ""


@contextmanager
def logged(
    upstream: str, destination: Destination, clock: Callable[[], float] = time.time, **settings: Any
) -> Iterator[Logged]:
    """The log is whole when the block has ended."""
    space = KnobSpace(
        Knob("cache_size", "bytes", 1e3, 1e6, CAPACITY, 0.1, "log"),
        Knob("ttl_seconds", "seconds", 1.0, 86_400.0, 86_400.0, 0.1, "log"),
        Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear"),
    )
    gateway = Logged(MemoryTier(space, entry_overhead_bytes=OVERHEAD), AccessLog(destination, every_seconds=0.01))
    told = GatewaySettings(upstream, **settings)
    stack = Stack([Place(gateway.tier)], StackRules(ttl_jitter=0.0, refresh_beta=0.0), clock=clock)
    service = GatewayService(told, stack, upstream_client(told), Clocks(clock), access_log=gateway.log)
    with serving(create_gateway(service), "on") as gateway.address:
        yield gateway


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Of the log, in the order of their ends."""
    return [row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def pattern(count: int, keys: int) -> list[int]:
    """Some keys often, most seldom."""
    drawn = random.Random(3)
    return [min(int(drawn.paretovariate(0.8)) - 1, keys - 1) for _ in range(count)]


async def hits(tier: MemoryTier) -> int:
    return (await tier.stats()).hits


async def test_the_trace_is_what_was_asked(backend: Backend, tmp_path: Path) -> None:
    """Keys, sizes, tokens, times and outcomes; and replayed in the shadow cache it hits where the tier did."""
    asked, answers, arrivals = pattern(200, 25), list[httpx.Response](), list[tuple[float, float]]()
    with (
        logged(backend.address, ParquetAccessLog(tmp_path, rotate_rows=70, row_group_rows=20)) as gateway,
        httpx.Client(verify=False) as client,
    ):
        for number in asked:
            began = time.time()
            body = chat(f"Question {number}: {'why ' * number}?", max_tokens=8 + number)
            answers.append(client.post(f"{gateway.address}/v1/chat/completions", json=body, timeout=30))
            arrivals.append((began, time.time()))
        counted = await hits(gateway.tier)
    trace = load_trace(tmp_path)
    numbers: dict[int, int] = {}
    assert trace.key.tolist() == [numbers.setdefault(number, len(numbers)) for number in asked]
    assert trace.size_bytes.tolist() == [len(answer.content) for answer in answers]
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    usages = [answer.json()["usage"] for answer in answers]
    assert trace.prompt_tokens.tolist() == [usage["prompt_tokens"] for usage in usages]
    assert trace.output_tokens.tolist() == [usage["completion_tokens"] for usage in usages]
    assert trace.info.start_unix_seconds is not None
    came = trace.info.start_unix_seconds + trace.arrival_seconds
    assert all(before - 1e-5 <= at <= after for at, (before, after) in zip(came, arrivals, strict=True))
    assert (trace.namespace, trace.ttl_seconds, trace.info.assumptions) == (None, None, ())

    was_hit = [outcome(answer) != "miss" for answer in answers]
    rows = rows_of(tmp_path)
    assert [row["outcome"] for row in rows] == ["memory" if hit else "miss" for hit in was_hit]
    assert [row["compute_seconds"] is None for row in rows] == was_hit
    requests = requests_of(trace.key, trace.arrival_seconds, trace.size_bytes + OVERHEAD)
    shadow = ShadowCache(requests, trace.num_keys, CAPACITY, 86_400.0)
    replayed = shadow.run_recording(len(trace)).outcome
    assert (replayed == kernel.HIT).tolist() == was_hit
    assert int(np.count_nonzero(replayed == kernel.HIT)) == counted == sum(was_hit)
    assert 25 < counted < 200 - len(numbers)  # of a cache that is too small, and not useless


def test_streams_are_logged_when_they_end(backend: Backend, tmp_path: Path) -> None:
    """With the size and the tokens of the whole answer, and the time at which they were asked for."""
    with logged(backend.address, ParquetAccessLog(tmp_path)) as gateway, openai_at(gateway.address) as client:
        for _ in range(2):
            list(client.chat.completions.create(**chat("Stream?"), stream=True))
        whole = client.chat.completions.with_raw_response.create(**chat("Stream?"))
        usage = whole.parse().usage
    assert usage is not None
    told = [(row["outcome"], row["size"], row["prompt_tokens"], row["output_tokens"]) for row in rows_of(tmp_path)]
    one = (len(whole.content), usage.prompt_tokens, usage.completion_tokens)
    assert told == [("miss", *one), ("memory", *one), ("memory", *one)]


def test_a_stream_that_is_given_up_has_no_size(tmp_path: Path) -> None:
    with emulated(speed=1.0) as slow, logged(slow.address, ParquetAccessLog(tmp_path)) as gateway:
        body = chat("Long?", stream=True, max_tokens=2_000)
        with httpx.stream("POST", f"{gateway.address}/v1/chat/completions", json=body, verify=False) as response:
            next(response.iter_lines())
        until(lambda: gateway.log.recorded == 1)
        response = ask(gateway.address, chat("Short?", max_tokens=2))
        assert outcome(response) == "miss"
    rows = rows_of(tmp_path)
    assert [(row["outcome"], row["status"], row["size"]) for row in rows] == [
        ("miss", 200, None),
        ("miss", 200, len(response.content)),
    ]
    assert len(load_trace(tmp_path)) == 1


def test_what_went_past_the_cache_and_what_failed(tmp_path: Path) -> None:
    """Both are in the log without a size, and not in the trace; what the gateway itself refused is in neither."""
    with emulated(fail_ratio=1.0) as failing, logged(failing.address, ParquetAccessLog(tmp_path)) as gateway:
        failed = ask(gateway.address, chat("Fails?"))
        past = ask(gateway.address, chat("Warm?", temperature=1))
        stored = ask(gateway.address, cache_control="no-store")
        send("GET", f"{gateway.address}/v1/models")
        assert ask(gateway.address, x_setpoint_namespace="no name").status_code == 400
    rows = rows_of(tmp_path)
    assert [(row["outcome"], row["status"]) for row in rows] == [
        ("miss", failed.status_code),
        ("bypass", past.status_code),
        ("bypass", stored.status_code),
    ]
    assert [row["key"] is None for row in rows] == [False, True, True]
    assert {row["size"] for row in rows} == {None}
    with pytest.raises(InputError, match="got no records"):
        load_trace(tmp_path)


def test_requests_to_a_tuned_tier_are_logged_with_their_arms(backend: Backend, tmp_path: Path) -> None:
    """A miss, a hit and a stream of each key; and nothing of what goes past the cache."""
    told, tier, split = GatewaySettings(backend.address), SplitTier(SPACE, assigner), Split("salt", 0.5)
    tier.aim(Plan(split, SPACE.default(), SPACE.default()), 0.0)
    log = AccessLog(ParquetAccessLog(tmp_path), every_seconds=0.01)
    stack = Stack([Place(tier)], StackRules(ttl_jitter=0.0, refresh_beta=0.0))
    service = GatewayService(told, stack, upstream_client(told), access_log=log, tuned=tier)
    texts = [f"question {number}" for number in range(6)]
    with serving(create_gateway(service), "on") as address:
        for text in texts:
            for body in (chat(text), chat(text), chat(text, stream=True)):
                ask(address, body)
        ask(address, chat("question 0", temperature=1.0))
    arms = [assign(request_key(Endpoint.CHAT, chat(text), Partition()).id, split).value for text in texts]
    assert set(arms) == {"control", "treatment"}
    assert [row["arm"] for row in rows_of(tmp_path)] == [*(arm for arm in arms for _ in range(3)), None]


def test_an_unreachable_backend_is_a_miss_with_its_status(tmp_path: Path) -> None:
    with logged("http://127.0.0.1:9", ParquetAccessLog(tmp_path)) as gateway:
        assert ask(gateway.address).status_code == 502
    assert [(row["outcome"], row["status"]) for row in rows_of(tmp_path)] == [("miss", 502)]


def test_keys_are_keyed_hashes_and_nothing_is_text(backend: Backend, tmp_path: Path) -> None:
    """Whoever has the secret can compute them; nothing in the folder has words or a plain fingerprint."""
    keys = {key_hash("key of acme"): KeyHolder("acme")}
    body = chat("Wherefore this xylophone?")
    with logged(backend.address, ParquetAccessLog(tmp_path), keys=keys) as gateway:
        headers = {"authorization": "Bearer key of acme", "x_setpoint_namespace": "shop", "x_setpoint_ttl": "60"}
        answer = ask(gateway.address, body, **headers)
    (row,) = rows_of(tmp_path)
    key = request_key(Endpoint.CHAT, body, Partition("acme", "shop"))
    assert row["key"] == hash_under(secret_in(tmp_path))(key.id)
    assert (row["tenant"], row["namespace"], row["ttl"]) == ("acme", "shop", 60.0)
    assert load_trace(tmp_path).info.namespaces == ("acme/shop",)
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    words = [b"xylophone", b"key of acme", answer.json()["choices"][0]["message"]["content"].encode()[:20]]
    assert not [word for word in [*words, key.fingerprint, key.fingerprint.hex().encode()] if word in content]


def test_embeddings_have_no_output_tokens(backend: Backend, tmp_path: Path) -> None:
    with logged(backend.address, ParquetAccessLog(tmp_path)) as gateway:
        answer = ask(gateway.address, {"model": "m", "input": "one two"}, EMBEDDINGS)
    trace = load_trace(tmp_path)
    assert trace.size_bytes.tolist() == [len(answer.content)]
    assert trace.prompt_tokens is not None
    assert trace.prompt_tokens.tolist() == [answer.json()["usage"]["prompt_tokens"]]
    assert trace.output_tokens is None


def test_a_log_that_cannot_keep_up_drops_and_says_so(backend: Backend, tmp_path: Path) -> None:
    """Requests are answered all the same."""
    with logged(backend.address, ParquetAccessLog(tmp_path)) as gateway:
        assert metric(gateway.address, "setpoint_access_log_dropped_total") == 0
        gateway.log._room = 0
        assert [outcome(ask(gateway.address)) for _ in range(3)] == ["miss", "hit-l1", "hit-l1"]
        assert metric(gateway.address, "setpoint_access_log_recorded_total") == 3
        assert metric(gateway.address, "setpoint_access_log_dropped_total") == 3
    assert rows_of(tmp_path) == []


def test_commands_work_on_the_folder(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`trace info` and `whatif` as they are; `train` begins with the problem, which has the measured tokens."""
    folder, seconds = tmp_path / "log", itertools.count(1_700_000_000, 10)
    with logged(backend.address, ParquetAccessLog(folder), lambda: float(next(seconds))) as gateway:
        for number in pattern(60, 12):
            ask(gateway.address, chat(f"Question {number}?"))
    monkeypatch.chdir(tmp_path)
    few = ["--interval", "60", "--sizes", "2", "--ttls", "2", "--resamples", "100"]
    for words in (["trace", "info"], ["whatif", *few]):
        done = CliRunner().invoke(command, [*words, str(folder), "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert "modelled" not in done.stdout
        assert "is taken to have" not in done.stdout
    problem = make_problem(load_config(TunerConfig, None, {}, {"trace.path": str(folder)}))
    assert problem.trace.prompt_tokens is not None
    assert problem.trace.info.assumptions == ()
    assert len(problem.trace) == 60


def test_the_settings_make_the_log(backend: Backend, tmp_path: Path) -> None:
    """As `setpoint serve --access-log FOLDER` does, with a secret from the environment."""
    told = {
        "gateway": {"upstream": backend.address},
        "tiers": {"semantic": {"enabled": False}},
        "access_log": {"place_env": "PLACE", "secret_env": "SECRET", "rotate_rows": 2},
    }
    environ = {"PLACE": str(tmp_path / "log"), "SECRET": "a secret of this test"}
    service = built(ServeConfig.model_validate(told), "serve.toml", environ).service
    with serving(create_gateway(service), "on") as address:
        for number in range(2):
            ask(address, chat(f"Question {number}?"))
        until(lambda: len(rows_of(tmp_path / "log")) == 2)
    assert [path.suffix for path in (tmp_path / "log").iterdir()] == [".parquet"]  # and no secret of its own
    with pytest.raises(InputError, match=r"serve\.toml, access_log\.secret_env: got 'SECRET', expected the name"):
        built(ServeConfig.model_validate(told), "serve.toml", {"PLACE": str(tmp_path / "log")})


def test_the_command_finishes_its_log_when_it_stops(backend: Backend, tmp_path: Path) -> None:
    options = ("--upstream", backend.address, "--no-semantic", "--access-log", str(tmp_path))
    with started(*options) as (process, address):
        assert [outcome(ask(address)) for _ in range(2)] == ["miss", "hit-l1"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    assert [row["outcome"] for row in rows_of(tmp_path)] == ["miss", "memory"]


def test_a_log_in_redis_is_fetched_as_a_trace(backend: Backend, redis_server: str, tmp_path: Path) -> None:
    place = f"{redis_server}?stream=log-of-a-gateway"
    told = {"gateway": {"upstream": backend.address}, "tiers": {"semantic": {"enabled": False}}}
    service = built(ServeConfig.model_validate(told | {"access_log": {"place": place}}), "x", {}).service
    numbers = pattern(40, 8)
    try:
        with serving(create_gateway(service), "on") as address:
            answers = [ask(address, chat(f"Question {number}?")) for number in numbers]
        done = CliRunner().invoke(command, ["trace", "fetch", place, str(tmp_path / "log.trace")])
        assert done.exit_code == 0, done.output
    finally:
        with Redis.from_url(redis_server) as redis:
            redis.delete("log-of-a-gateway", "log-of-a-gateway:secret")
    trace = open_trace(tmp_path / "log.trace")
    seen: dict[int, int] = {}
    assert trace.key.tolist() == [seen.setdefault(number, len(seen)) for number in numbers]
    assert trace.size_bytes.tolist() == [len(answer.content) for answer in answers]
