"""The section of resilience: what it makes, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.gateway.at_work import at_work
from api.gateway.building import Built, built
from api.gateway.config import load_serve_config
from caches.errors import InputError
from caches.guards.dependencies import DependentBreaker
from caches.guards.ladder import Rung, Why
from caches.tiers.disk import DiskTier
from caches.tiers.memory import MemoryTier
from caches.tiers.redis_index import RedisIndexTier
from caches.tiers.stale import StaleTier
from tests.api.gateway.moody import QUIET

UPSTREAM = '[gateway]\nupstream = "http://127.0.0.1:8100"\n'
MEMORY_ONLY = "[tiers.memory]\nttl_seconds = 600.0\n" + QUIET


def made(folder: Path, text: str, tiers: str = MEMORY_ONLY) -> Built:
    file = folder / "serve.toml"
    file.write_text(UPSTREAM + tiers + "[resilience]\nenabled = true\n" + text, encoding="utf-8")
    return built(load_serve_config(file, {}), "serve.toml", {"FALLBACK_KEY": "secret"})


async def test_the_retention_is_the_longest_lifetime_and_the_grace(tmp_path: Path) -> None:
    one = made(tmp_path, "stale_grace_seconds = 60.0\nstale_size = 1_000_000\n")
    place = one.service.stack.places[-1]
    assert isinstance(place.tier, StaleTier)
    async with at_work(one):
        settings = await place.tier.settings()
    assert (settings.ttl_seconds, settings.cache_size) == (3_660.0, 1e6)  # an unstated tier's lifetime is an hour
    assert place.at_once
    await one.service.stack.close()


@pytest.mark.parametrize(
    ("where", "kind", "tiers"),
    [
        ("memory", MemoryTier, ""),
        ("disk", DiskTier, '[tiers.disk]\npath = "{folder}/cache.sqlite"\n[tiers.semantic]\nenabled = false\n'),
        (
            "near",
            RedisIndexTier,
            '[tiers.redis.near]\nurl = "redis://127.0.0.1:1/0"\n[tiers.semantic]\nenabled = false\n',
        ),
    ],
)
async def test_stale_answers_lie_where_the_file_says(tmp_path: Path, where: str, kind: type, tiers: str) -> None:
    text = f'stale_grace_seconds = 60.0\nstale_in = "{where}"\n'
    one = made(tmp_path, text, tiers.format(folder=tmp_path) or MEMORY_ONLY)
    tier = one.places["stale"].tier
    assert isinstance(tier, StaleTier)
    assert isinstance(tier._kept, kind)
    await one.service.stack.close()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('stale_grace_seconds = 60.0\nstale_in = "disk"\n', "resilience.stale_in: got disk, expected a tier on disk"),
        ('stale_grace_seconds = 60.0\nstale_in = "far"\n', "resilience.stale_in: got 'far', expected of memory, disk"),
        ('when_down = ["upstream"]\n', "resilience.when_down: got upstream, expected of stale, fallback, template"),
        ('when_slow = ["stale", "stale"]\n', "resilience.when_slow: got stale, stale, expected each once"),
        ('fallback_upstream = "http://a"\n', "fallback_model beside fallback_upstream"),
        ('fallback_model = "a"\nfallback_key_env = "FALLBACK_KEY"\n', "fallback_upstream beside fallback_key_env"),
        ('fallback_model = "a"\nfallback_upstream = "a"\n', "resilience.fallback_upstream: got 'a', expected a URL"),
        ("[resilience.token_rate]\nburst_tokens = 5.0\n", "tokens_per_second beside burst_tokens"),
        ('[[resilience.classes]]\nname = "a"\npatterns = ["("]\n', "resilience.classes.a.patterns: got '\\('"),
        ('[resilience.depends_on]\nmemory = ["vectors"]\n', "resilience.depends_on.memory: got 'vectors', expected of"),
        (
            '[resilience.depends_on]\nmemory = ["upstream"]\nupstream = ["memory"]\n',
            "resilience.depends_on: got the cycle (memory -> upstream -> memory|upstream -> memory -> upstream)",
        ),
    ],
)
def test_what_makes_no_sense_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        made(tmp_path, text)


def test_a_tier_that_depends_on_something_knows(tmp_path: Path) -> None:
    one = made(tmp_path, '[resilience.depends_on]\nmemory = ["upstream"]\n')
    assert isinstance(one.places["memory"].breaker, DependentBreaker)
    backend = one.service.client.balanced.backends[0]
    assert one.places["memory"].breaker.allows(0.0)
    backend.health.reachable = False
    assert not one.places["memory"].breaker.allows(0.0)


def test_rungs_that_are_not_set_up_are_left_out(tmp_path: Path) -> None:
    parts = made(tmp_path, 'template = "Later."\nwhen_failed = ["template", "stale"]\n').service.resilience
    assert parts is not None
    assert parts.ladder.rungs(Why.FAILED) == (Rung.TEMPLATE,)
    assert parts.ladder.rungs(Why.SLOW) == (Rung.UPSTREAM,)


def test_the_key_of_the_fallback_is_its_own(tmp_path: Path) -> None:
    text = 'fallback_model = "a"\nfallback_upstream = "http://127.0.0.1:8200/v1"\nfallback_key_env = "FALLBACK_KEY"\n'
    parts = made(tmp_path, text).service.resilience
    assert parts is not None
    assert parts.fallback is not None
    assert parts.fallback.settings is not None
    assert parts.fallback.settings.upstream_key == "secret"
    assert parts.fallback.label == "a at http://127.0.0.1:8200/v1"


def test_without_the_section_nothing_of_it_is_there(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(UPSTREAM + MEMORY_ONLY + "[resilience]\nstale_grace_seconds = 60.0\n", encoding="utf-8")
    one = built(load_serve_config(file, {}), "serve.toml", {})
    assert one.service.resilience is None
    assert set(one.places) == {"memory"}
    health = one.service.client.balanced.backends[0].health
    assert (health.failures, health.latencies) == (None, {})
