"""A gateway's tiers from start to stop: what is kept comes back, and a wrong set-up is an error at the start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis import Redis

from api.gateway.at_work import at_work
from api.gateway.building import Built, built
from api.gateway.config import load_serve_config
from caches.errors import InputError
from caches.keys.request_key import Partition
from caches.semantic.snapshot import ENTRIES, VECTORS
from caches.tiers.tier import TierError
from tests.caches.semantic.toy import ask, say
from tests.servers import free_port, redis_running

QUESTION, SAME = "How do I reset my password?", "How can I reset my password?"
HERE = Partition("acme", "support")


@asynccontextmanager
async def working(folder: Path, text: str) -> AsyncIterator[tuple[Built, list[str]]]:
    file = folder / "gateway.toml"
    file.write_text(f'[gateway]\nupstream = "http://127.0.0.1:1"\n{text}', encoding="utf-8")
    made = built(load_serve_config(file, {}), "gateway.toml", {})
    try:
        async with at_work(made) as remarks:
            yield made, remarks
    finally:
        await made.service.stack.close()
        await made.service.client.aclose()


def kept_in(folder: Path) -> str:
    return f'[tiers.semantic]\nfolder = "{folder}"'


async def test_what_is_known_by_meaning_comes_back(tmp_path: Path) -> None:
    kept = tmp_path / "new" / "semantic"
    async with working(tmp_path, kept_in(kept)) as (made, remarks):
        assert remarks == [f"Semantic entries from {kept}: 0."]
        await made.service.stack.store(ask(QUESTION, HERE), say("so", made.service.clock()))
    assert {file.name for file in kept.iterdir()} == {ENTRIES, VECTORS, ".lock"}
    assert [oct(path.stat().st_mode & 0o777) for path in (kept, kept / ENTRIES)] == ["0o700", "0o600"]
    async with working(tmp_path, kept_in(kept)) as (made, remarks):
        assert remarks == [f"Semantic entries from {kept}: 1."]
        served = await made.service.stack.lookup(ask(SAME, HERE))
        assert served is not None
        assert (served.answer.body, served.level, served.similarity < 1.0) == (b"so", 3, True)
        assert await made.service.stack.lookup(ask(SAME, Partition("globex", "support"))) is None


async def test_it_is_saved_also_when_serving_fails(tmp_path: Path) -> None:
    async def fails() -> None:
        async with working(tmp_path, kept_in(tmp_path / "semantic")) as (made, _):
            await made.service.stack.store(ask(QUESTION, HERE), say("so", made.service.clock()))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    async with working(tmp_path, kept_in(tmp_path / "semantic")) as (_, remarks):
        assert remarks[0].endswith(": 1.")


async def test_what_was_half_written_is_removed_and_what_is_spoilt_is_told(tmp_path: Path) -> None:
    kept = tmp_path / "semantic"
    async with working(tmp_path, kept_in(kept)) as (made, _):
        await made.service.stack.store(ask(QUESTION, HERE), say("so", made.service.clock()))
    half = kept / f".{ENTRIES}.4711.partial"
    half.write_bytes(b'{"tenant": "ac')
    async with working(tmp_path, kept_in(kept)) as (_, remarks):
        assert remarks[0].endswith(": 1.")
        assert not half.exists()
    whole = (kept / ENTRIES).read_bytes()
    (kept / ENTRIES).write_bytes(whole + whole[:20])
    with pytest.raises(InputError, match=rf"{ENTRIES}, line 2: got .*, expected an entry of a semantic tier"):
        async with working(tmp_path, kept_in(kept)):
            pytest.fail("it started")
    assert (kept / ENTRIES).read_bytes() == whole + whole[:20]


async def test_what_is_in_a_file_comes_back_with_its_settings(tmp_path: Path) -> None:
    """What is not stated stays as somebody set it; what is, is applied."""
    section, key = f'[tiers.disk]\npath = "{tmp_path / "cache.db"}"\nslow_seconds = 10\n', ask(QUESTION, HERE)
    async with working(tmp_path, f"{section}cache_size = 100_000\nttl_seconds = 600") as (made, _):
        assert list(made.places) == ["memory", "disk", "semantic"]
        await made.service.stack.store(key, say("so", made.service.clock()))
    async with working(tmp_path, f"{section}ttl_seconds = 700") as (made, _):
        settings = await made.places["disk"].tier.settings()
        assert (settings.cache_size, settings.ttl_seconds) == (100_000.0, 700.0)
        served = await made.service.stack.lookup(key)
        assert served is not None
        assert (served.answer.body, served.tier, served.level) == (b"so", "disk", 2)


async def test_a_folder_belongs_to_one_gateway(tmp_path: Path) -> None:
    async with working(tmp_path, kept_in(tmp_path / "semantic")):
        with pytest.raises(InputError, match=r"tiers\.semantic\.folder: got .*, which another gateway uses"):
            async with working(tmp_path, kept_in(tmp_path / "semantic")):
                pytest.fail("it started")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"tiers\.semantic\.folder: got .*file, which cannot be used"):
        async with working(tmp_path, kept_in(tmp_path / "file")):
            pytest.fail("it started")


async def test_a_redis_that_is_not_there_is_a_remark_and_in_the_mode_server_an_error(tmp_path: Path) -> None:
    section = f'[tiers.redis]\nurl = "redis://127.0.0.1:{free_port()}"\nttl_seconds = 60\n'
    async with working(tmp_path, section) as (_, remarks):
        assert remarks == ["Tier redis cannot be reached now; it is tried again while the gateway runs."]
    with pytest.raises(TierError, match="tier redis"):
        async with working(tmp_path, f'{section}mode = "server"'):
            pytest.fail("it started")


async def test_a_server_of_our_own_is_taken_over_at_the_start(own_redis_server: str, tmp_path: Path) -> None:
    section = f'[tiers.redis]\nurl = "{own_redis_server}"\nmode = "server"\nslow_seconds = 10\n'
    try:
        async with working(tmp_path, f"{section}cache_size = 50_000_000"):
            with Redis.from_url(own_redis_server, decode_responses=True) as redis:
                assert redis.config_get("maxmemory*")["maxmemory"] == "50000000"
                assert redis.config_get("maxmemory*")["maxmemory-policy"] == "allkeys-lru"
        with pytest.raises(InputError, match=r"tier redis, cache_size\.low: got 70000 bytes, expected at least"):
            async with working(tmp_path, f"{section}lowest_cache_size = 70_000"):
                pytest.fail("it started")
    finally:
        with Redis.from_url(own_redis_server) as redis:
            redis.flushall()
            redis.config_set("maxmemory", 0)
            redis.config_set("maxmemory-policy", "noeviction")


async def test_a_server_that_refuses_its_configuration_is_an_error_at_the_start(tmp_path: Path) -> None:
    with redis_running(tmp_path / "redis", "--rename-command", "CONFIG", "") as port:
        section = f'[tiers.redis]\nurl = "redis://127.0.0.1:{port}"\nmode = "server"\nslow_seconds = 10\n'
        with pytest.raises(InputError, match=r"the server refuses CONFIG .* use the index mode"):
            async with working(tmp_path, section):
                pytest.fail("it started")
