"""What the settings say of streams: whether and where they are kept, and of which namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.gateway.building import Built, built
from api.gateway.config import load_serve_config
from caches.errors import InputError
from caches.streams.memory_log import MemoryStreamLog
from caches.streams.redis_log import RedisStreamLog

UPSTREAM = """
[gateway]
upstream = "http://127.0.0.1:1"
[tiers.disk]
enabled = false
[tiers.semantic]
enabled = false
"""
REDIS = '[tiers.redis.near]\nurl = "redis://127.0.0.1:1"\n[tiers.redis.far]\nurl = "redis://127.0.0.1:2"\n'


def made(folder: Path, text: str) -> Built:
    file = folder / "gateway.toml"
    file.write_text(UPSTREAM + text, encoding="utf-8")
    return built(load_serve_config(file, {}), str(file), {})


def keeps(gateway: Built, *namespaces: str) -> list[bool]:
    return [gateway.service.settings.rules_of(name).keeps_streams for name in namespaces]


async def test_without_the_section_nothing_is_kept(tmp_path: Path) -> None:
    gateway = made(tmp_path, "")
    assert gateway.service.streams is None
    assert keeps(gateway, "default") == [False]


async def test_in_memory_all_namespaces_keep_them_but_those_that_say_no(tmp_path: Path) -> None:
    gateway = made(
        tmp_path, "[streaming]\nenabled = true\nlargest_bytes = 100_000\n[namespaces.batch]\nstreams = false\n"
    )
    streams = gateway.service.streams
    assert streams is not None
    assert isinstance(streams.log, MemoryStreamLog)
    assert (streams.log.rules.largest_bytes, streams.joins) == (100_000, False)
    assert keeps(gateway, "default", "batch") == [True, False]


async def test_in_redis_only_those_that_use_that_tier(tmp_path: Path) -> None:
    gateway = made(
        tmp_path,
        f'{REDIS}[streaming]\nenabled = true\nplace = "far"\nlease_seconds = 2.0\n[namespaces.here]\n'
        'tiers = ["memory", "near"]\n[namespaces."there-*"]\ntiers = ["far"]\n[namespaces.past]\ntiers = []\n',
    )
    streams = gateway.service.streams
    assert streams is not None
    assert isinstance(streams.log, RedisStreamLog)
    assert (streams.log.rules.lease_seconds, streams.joins) == (2.0, True)
    assert keeps(gateway, "default", "here", "there-1") == [True, False, True]
    assert not gateway.service.settings.rules_of("past").cached


async def test_joining_can_be_turned_off(tmp_path: Path) -> None:
    gateway = made(tmp_path, f'{REDIS}[streaming]\nenabled = true\nplace = "near"\njoin = false\n')
    assert gateway.service.streams is not None
    assert not gateway.service.streams.joins


@pytest.mark.parametrize("place", ["redis", "disk", "nowhere"])
def test_a_place_that_is_none_is_an_error_with_those_that_are(tmp_path: Path, place: str) -> None:
    with pytest.raises(InputError, match=rf"streaming\.place: got '{place}', expected of memory, near, far"):
        made(tmp_path, f'{REDIS}[streaming]\nenabled = true\nplace = "{place}"\n')
