"""Streams of several gateways over one Redis: joined and resumed at another one, and what becomes of them when Redis
or a gateway fails."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from redis import Redis

from caches.place import Place
from caches.stream import StreamRules
from caches.streams.redis_log import RedisStreamLog
from caches.streams.streams import Streams
from caches.tiers.memory import MemoryTier
from caches.tiers.redis_connection import connect
from caches.tiers.redis_index import RedisIndexOptions, RedisIndexTier
from caches.tiers.redis_lease import RedisLease
from tests.api.gateway.conftest import CHAT, SPACE, ask, outcome, until
from tests.api.gateway.scripted import (
    LAST,
    RESUME,
    Received,
    Script,
    asking,
    keeping,
    received,
    resumed,
    scripted,
    without_ids,
)
from tests.servers import free_port, is_ready, patient, redis_running, running

SETPOINT = str(Path(sys.executable).with_name("setpoint"))


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted() as one:
        yield one


def sharing(
    script: Script, url: str, prefix: str, lease_seconds: float = 30.0, timeout_seconds: float | None = None
) -> AbstractContextManager[tuple[str, Streams]]:
    """A gateway with a tier, leases and streams in this Redis."""
    connection = patient(url) if timeout_seconds is None else connect(url, timeout_seconds)
    tier = RedisIndexTier(connection, SPACE, options=RedisIndexOptions(prefix))
    places = [Place(MemoryTier(SPACE)), Place(tier, timeout_seconds or 15.0)]
    log = RedisStreamLog(connection, prefix, StreamRules(kept_seconds=600.0, lease_seconds=lease_seconds))
    lease = RedisLease(connection, prefix, lease_seconds)
    return keeping(script.address, log, joins=True, places=places, lease=lease)


@contextmanager
def two(script: Script, url: str, lease_seconds: float = 30.0) -> Iterator[tuple[str, str, Streams]]:
    prefix = f"test-{uuid.uuid4().hex}"
    with ExitStack() as stack:
        one, _ = stack.enter_context(sharing(script, url, prefix, lease_seconds))
        other, streams = stack.enter_context(sharing(script, url, prefix, lease_seconds))
        yield one, other, streams
    with Redis.from_url(url) as redis:
        for key in redis.scan_iter(f"{prefix}*"):
            redis.delete(key)


async def test_clients_of_both_gateways_get_one_stream_while_it_runs(script: Script, redis_server: str) -> None:
    script.allowed = 4
    body = asking("How far?")
    with two(script, redis_server) as (one, other, streams):
        async with httpx.AsyncClient(timeout=20, verify=False) as client:
            first = asyncio.create_task(_collected(client, one, body))
            await _until(lambda: script.calls == 1)
            rest = [asyncio.create_task(_collected(client, address, body)) for address in (other, one, other)]
            await _until(lambda: streams.counts.joined == 1)
            whole = asyncio.create_task(client.post(other + CHAT, json=body | {"stream": False}))
            await asyncio.sleep(0.1)
            script.allowed = 10**9
            got = [await task for task in (first, *rest)]
            answer = await whole
        assert len(set(got)) == 1
        assert got[0].count(b"data: {") == 8  # without usage
        assert answer.json()["choices"][0]["message"]["content"] == "".join(script.pieces)
        assert script.calls == 1


async def _collected(client: httpx.AsyncClient, address: str, body: dict[str, object]) -> bytes:
    return (await client.post(address + CHAT, json=body)).content


def await_arrival(address: str, first: Received) -> None:
    """Until another gateway finds the stream: who was handed the first events may come there before Redis has them."""
    place, after = f"/v1/cache/streams/{first.token}", {LAST: str(first.id)}
    until(lambda: received(address, None, after, 1, place).status == 200)


async def _until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.005)


def test_a_stream_is_resumed_at_the_other_gateway(script: Script, redis_server: str) -> None:
    script.pause_seconds = 0.005
    body = asking("How far?")
    with two(script, redis_server) as (one, other, _):
        first = received(one, body, most=450)
        await_arrival(other, first)
        second = resumed(other, body, first, most=300)
        third = resumed(one, None, Received(200, first.headers, b"", second.id or first.id))
        whole = received(other, None, path=f"/v1/cache/streams/{first.token}").whole
        assert first.whole + second.whole + third.whole == whole
        assert whole.endswith(b"data: [DONE]\n\n")
        assert script.calls == 1


def test_a_stream_that_was_joined_is_resumed_too(script: Script, redis_server: str) -> None:
    script.allowed = 3
    body = asking("How far?")
    with two(script, redis_server) as (one, other, streams):
        first = received(one, body, most=300)
        joined = received(other, body, most=300)
        assert joined.token == first.token
        assert streams.counts.joined == 1
        script.allowed = 10**9
        assert joined.whole + resumed(one, body, joined).whole == first.whole + resumed(other, body, first).whole
        assert script.calls == 1


def test_what_one_gateway_is_told_the_other_tells(script: Script, redis_server: str) -> None:
    script.then, script.pause_seconds = "error", 0.01
    body = asking("How far?")
    with two(script, redis_server) as (one, other, _):
        first = received(one, body, most=300)
        await_arrival(other, first)
        rest = resumed(other, body, first)
        told = without_ids(first.whole + rest.whole).split(b"\n\n")
        assert told[-2] == list(script._chunks())[-1].strip()
        assert len(told) == len(list(script._chunks())) + 1
        assert not ask(other, body | {"stream": False}).headers["x-setpoint-cache"].startswith("hit")


@pytest.mark.parametrize("trouble", ["killed", *(pytest.param(x, marks=pytest.mark.slow) for x in ("paused", "full"))])
def test_clients_get_their_stream_whatever_redis_does(script: Script, tmp_path: Path, trouble: str) -> None:
    """And, when Redis is there again, streams are kept again."""
    with ExitStack() as stack:
        port = stack.enter_context(redis_running(tmp_path / "redis"))
        url = f"redis://127.0.0.1:{port}/0"
        address, streams = stack.enter_context(sharing(script, url, "test", lease_seconds=1.0, timeout_seconds=0.2))
        script.allowed = 3
        client = stack.enter_context(httpx.Client(timeout=20, verify=False))
        with client.stream("POST", address + CHAT, json=asking("How far?")) as response:
            pieces = response.iter_raw()
            got = next(pieces)
            with in_trouble(port, trouble):
                script.allowed = 10**9
                got += b"".join(pieces)
                assert got.endswith(b"data: [DONE]\n\n")
                until(lambda: streams.running == 0, 20.0)
                second = received(address, asking("And back?"))
                assert second.whole.endswith(b"data: [DONE]\n\n")
                named = client.get(f"{address}/v1/cache/streams/{response.headers[RESUME]}")
                assert named.status_code in ({200, 503} if trouble == "full" else {503})
        if trouble != "killed":
            until(lambda: RESUME in received(address, asking(str(uuid.uuid4()))).headers, 20.0)
    assert streams.counts.lost >= 1


@contextmanager
def in_trouble(port: int, trouble: str) -> Iterator[None]:
    with Redis(port=port) as redis:
        process = redis.info("server")["process_id"]
        if trouble == "full":
            redis.config_set("maxmemory-policy", "noeviction")
            redis.config_set("maxmemory", 1)
            yield
            redis.config_set("maxmemory", 0)
            return
        os.kill(process, signal.SIGKILL if trouble == "killed" else signal.SIGSTOP)
        try:
            yield
        finally:
            if trouble == "paused":
                os.kill(process, signal.SIGCONT)


@pytest.mark.slow
def test_a_gateway_is_killed_and_its_stream_resumed_at_another(script: Script, tmp_path: Path) -> None:
    """What was written is there, then that no more comes; asked for anew it is answered."""
    with ExitStack() as stack:
        port = stack.enter_context(redis_running(tmp_path / "redis"))
        one, other = (stack.enter_context(served(script, port, tmp_path / name)) for name in ("one", "other"))
        script.allowed, body = 5, asking("How far?")
        first = received(one.address, body, most=450)
        until(lambda: _held(port) == 5)
        one.process.kill()
        one.process.wait(10)
        rest = resumed(other.address, body, first)
        assert without_ids(first.whole + rest.whole).count(b"data: {") == 6
        assert b'"stream_gone"' in rest.whole.split(b"\n\n")[-2]
        assert b"[DONE]" not in rest.whole
        script.allowed = 10**9
        again = received(other.address, body)
        assert again.whole.endswith(b"data: [DONE]\n\n")
        assert outcome(ask(other.address, body | {"stream": False})) == "hit-l1"


class Process:
    def __init__(self, address: str, process: subprocess.Popen[bytes]) -> None:
        self.address, self.process = address, process


@contextmanager
def served(script: Script, redis_port: int, folder: Path) -> Iterator[Process]:
    """`setpoint serve` in a process of its own."""
    folder.mkdir()
    port, file = free_port(), folder / "gateway.toml"
    file.write_text(
        f'[gateway]\nupstream = "{script.address}"\nport = {port}\n'
        f'[tiers.redis]\nurl = "redis://127.0.0.1:{redis_port}/0"\nslow_seconds = 5.0\n'
        "[tiers.disk]\nenabled = false\n[tiers.semantic]\nenabled = false\n"
        '[streaming]\nenabled = true\nplace = "redis"\nlease_seconds = 2.0\n'
    )
    command = [SETPOINT, "serve", "--config", str(file)]
    with running(command, folder, lambda: is_ready(f"http://127.0.0.1:{port}/healthz"), 60.0) as process:
        yield Process(f"http://127.0.0.1:{port}", process)


def _held(port: int) -> int:
    """Events of the stream that is kept."""
    with Redis(port=port, decode_responses=True) as redis:
        return sum(int(redis.hget(key, "n") or 0) for key in redis.scan_iter("setpoint:stream:*"))


def test_last_event_alone_resumes_at_the_other_gateway(script: Script, redis_server: str) -> None:
    body = asking("How far?")
    with two(script, redis_server) as (one, other, _):
        first = received(one, body, most=450)
        await_arrival(other, first)
        rest = received(other, body, {LAST: str(first.id)})
        assert first.whole + rest.whole == received(one, None, path=f"/v1/cache/streams/{first.token}").whole
