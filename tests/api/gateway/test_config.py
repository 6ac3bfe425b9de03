"""The settings file: what it says, what options say over it, and what is wrong with it, told with its place."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from api.gateway.building import Built, built
from api.gateway.config import ServeConfig, load_serve_config
from api.gateway.config_knobs import AdmissionConfig
from api.gateway.config_tiers import with_cassandra, with_redis
from api.gateway.settings import KeyHolder, Role, key_hash
from caches.errors import InputError
from caches.keys.fields import LEFT_OUT
from caches.keys.request_key import Partition, RequestKey
from caches.keys.rules import KeyRules
from caches.keys.structure import Structure
from caches.policies.catalog import EVICTIONS
from caches.policies.settings import Sieve, TinyLfu
from caches.tiers.memory import MemoryTier
from caches.tiers.split import SplitTier

HASH = key_hash("a key of some length")
USUAL = Structure(line_ends=True, addresses=True)
WHOLE = f"""
[gateway]
upstream = "http://user:pass@backend:1/v1"
upstream_key_env = "BACKEND_KEY"
port = 9000
deadline_seconds = 30
[[gateway.keys]]
sha256 = "{HASH}"
tenant = "acme"
[[gateway.keys]]
sha256 = "{key_hash("another key of some length")}"
role = "operator"
[tiers.memory]
cache_size = 1_000_000
ttl_seconds = 60
[tiers.redis.near]
url = "redis://:secret@near:1"
[tiers.redis.far]
url_env = "FAR"
mode = "server"
slow_seconds = 0.5
[tiers.semantic]
similarity_threshold = 0.95
lowest_threshold = 0.8
wrong_hit_budget = 0.01
[namespaces."support-*"]
tiers = ["near", "memory"]
ttl_seconds = 30
[namespaces.support-eu]
allow_sampled = true
left_out = ["user"]
similarity_threshold = 0.85
[namespaces.secret]
tiers = []
"""
ENVIRON = {"BACKEND_KEY": "sk-backend", "FAR": "redis://far:2"}


def config(folder: Path, text: str, **overrides: object) -> ServeConfig:
    (folder / "gateway.toml").write_text(text, encoding="utf-8")
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return load_serve_config(folder / "gateway.toml", named)


def made(folder: Path, text: str, environ: dict[str, str] | None = None) -> Built:
    return built(config(folder, text), "gateway.toml", ENVIRON if environ is None else environ)


async def test_a_whole_file(tmp_path: Path) -> None:
    gateway = made(tmp_path, WHOLE)
    settings = gateway.service.settings
    assert (settings.base_urls, settings.upstream_key, settings.deadline_seconds) == (
        ("http://user:pass@backend:1",),
        "sk-backend",
        30.0,
    )
    assert settings.keys[HASH] == KeyHolder("acme", Role.CLIENT)
    assert list(gateway.places) == ["memory", "near", "far", "semantic"]
    assert [place.level for place in gateway.places.values()] == [1, 2, 2, 3]
    routes = {
        name: [place.tier.name for place in gateway.service.stack.of(Partition("t", name)).places]  # type: ignore[union-attr]
        for name in ("other", "support-us", "support-eu")
    }
    assert routes == {
        "other": ["memory", "near", "far", "semantic"],
        "support-us": ["memory", "near"],
        "support-eu": ["memory", "near", "far", "semantic"],
    }
    assert settings.rules_of("support-us").ttl_seconds == 30.0
    assert settings.rules_of("support-us").key_rules == KeyRules(left_out=LEFT_OUT, structure=USUAL)
    left_out = frozenset({"user"})
    assert settings.rules_of("support-eu").key_rules == KeyRules(allow_sampled=True, left_out=left_out, structure=USUAL)
    assert not settings.rules_of("secret").cached
    assert gateway.semantic is not None
    thresholds = [gateway.semantic.similarity_threshold(Partition("t", name)) for name in ("other", "support-eu")]
    assert thresholds == [0.95, 0.85]
    assert gateway.semantic.similarity_threshold() == 0.95
    await gateway.service.stack.close()
    await gateway.service.client.aclose()


def test_nothing_secret_is_in_its_repr(tmp_path: Path) -> None:
    gateway = made(tmp_path, WHOLE)
    shown = repr(gateway.config) + repr(gateway.service)
    assert not re.search("secret@|pass@|sk-backend", shown)


async def test_how_much_is_warmed_can_be_stated_for_every_tier(tmp_path: Path) -> None:
    text = "[tiers.{0}]\nwarmup_ratio = 0.25\n{1}\n"
    places = {"memory": "", "disk": f'path = "{tmp_path / "x"}"', "redis": 'url = "redis://a"', "semantic": ""}
    places["cassandra"] = 'url = "cassandra://a/k"'
    tiers = config(tmp_path, "".join(text.format(*each) for each in places.items())).tiers
    for section in (tiers.memory, tiers.disk, tiers.redis["redis"], tiers.cassandra, tiers.semantic):
        assert section.knobs.warmup_ratio.default == 0.25
    for kept in (tiers.disk, tiers.redis["redis"], tiers.cassandra):
        assert kept.stated == {"warmup_ratio": 0.25}
    assert config(tmp_path, "[tiers.redis]\nurl = 'redis://a'").tiers.redis["redis"].stated == {}


def often_and_seldom(
    section: AdmissionConfig, namespaces: Mapping[str, str | None], namespace: str
) -> tuple[bool, bool]:
    """Whether it takes in what was asked for twice, 60 and 61 seconds apart."""
    doorkeeper, often, seldom = (
        section.doorkeeper(namespaces),
        *(RequestKey(Partition(namespace=namespace), bytes([one]) * 32, bytes(32)) for one in (1, 2)),
    )
    if doorkeeper is None:
        return True, True
    for now in (0.0, 60.0):
        doorkeeper.asked(often, now)
    for now in (0.0, 61.0):
        doorkeeper.asked(seldom, now)
    return doorkeeper.admits(often, 60.0), doorkeeper.admits(seldom, 61.0)


@pytest.mark.parametrize("said", ["admission_requests = 2\n", 'admission = "second-hit"\n'])
def test_which_answers_a_tier_takes_in_is_said_in_its_section(tmp_path: Path, said: str) -> None:
    said += "admission_window_seconds = 60\n"
    shared = f"[tiers.redis]\nurl = 'redis://a'\n{said}[tiers.cassandra]\nurl = 'cassandra://a/k'\n{said}"
    tiers = config(tmp_path, f"[tiers.memory]\n{said}[tiers.disk]\n{said}{shared}").tiers
    for section in (tiers.memory, tiers.disk, tiers.redis["redis"], tiers.cassandra):
        assert often_and_seldom(section, {}, "default") == (True, False)
        assert often_and_seldom(section, {"free": "all", "as-the-tier": None}, "free") == (True, True)
        assert often_and_seldom(section, {"free": "all", "as-the-tier": None}, "as-the-tier") == (True, False)
    assert config(tmp_path, "").tiers.memory.doorkeeper({"free": "all"}) is None


def test_a_namespace_may_be_stricter_than_its_tiers(tmp_path: Path) -> None:
    memory = config(tmp_path, "[tiers.memory]\nadmission_window_seconds = 60\n").tiers.memory
    assert often_and_seldom(memory, {"strict": "second-hit"}, "strict") == (True, False)
    assert often_and_seldom(memory, {"strict": "second-hit"}, "default") == (True, True)


async def test_policies_of_memory_reach_its_cache_with_and_without_arms(tmp_path: Path) -> None:
    said = '[tiers.memory]\neviction_policy = "sieve"\nadmission = "tinylfu"\n[tiers.semantic]\nenabled = false\n'
    plain = made(tmp_path, '[gateway]\nupstream = "http://a"\n' + said).places["memory"].tier
    tuned = made(tmp_path, '[gateway]\nupstream = "http://a"\n[tuning]\nenabled = true\n' + said).places["memory"].tier
    assert isinstance(plain, MemoryTier)
    assert isinstance(tuned, SplitTier)
    caches = [plain.cache, *(tier.cache for tier in tuned.tiers)]
    assert [(cache.eviction, cache.admission) for cache in caches] == 3 * [(Sieve(), TinyLfu())]
    assert plain.policies == tuned.policies == tuple(EVICTIONS)
    limited = '[gateway]\nupstream = "http://a"\n[tuning]\nenabled = true\n' + said.replace(
        "admission", 'eviction_policies = ["lru", "sieve"]\nadmission'
    )
    tier = made(tmp_path, limited).places["memory"].tier
    assert isinstance(tier, SplitTier)
    assert tier.policies == ("lru", "sieve")


async def test_defaults_are_memory_and_meaning(tmp_path: Path) -> None:
    gateway = made(tmp_path, '[gateway]\nupstream = "http://a"')
    assert list(gateway.places) == ["memory", "semantic"]
    assert [(await place.tier.settings()).ttl_seconds for place in gateway.places.values()] == [3600.0, 3600.0]
    assert gateway.semantic is not None
    assert gateway.semantic.similarity_threshold() == 0.9


def test_options_win_over_the_file(tmp_path: Path) -> None:
    told = config(tmp_path, WHOLE, gateway__port=1234, gateway__host=None)
    assert (told.gateway.port, told.gateway.host) == (1234, "127.0.0.1")


def test_a_redis_of_the_options_takes_the_place_of_that_of_the_file(tmp_path: Path) -> None:
    one = config(tmp_path, '[tiers.redis]\nurl_env = "A"\nslow_seconds = 1.5\nttl_seconds = 9').tiers
    tier = with_redis(one, "redis://b", 100_000, None).redis["redis"]
    assert (tier.url, tier.url_env, tier.slow_seconds, tier.cache_size, tier.ttl_seconds) == (
        "redis://b",
        None,
        1.5,
        100_000,
        9.0,
    )
    assert with_redis(one, None, None, None) == one
    assert with_redis(one, None, None, 5.0).redis["redis"].ttl_seconds == 5.0
    none = config(tmp_path, "").tiers
    assert with_redis(none, None, None, 5.0) == none
    assert with_redis(none, "redis://b", None, 5.0).redis["redis"].ttl_seconds == 5.0
    with pytest.raises(InputError, match="--redis-bytes"):
        with_redis(none, None, 100_000, None)
    with pytest.raises(InputError, match="near, far in the file, expected one"):
        with_redis(config(tmp_path, WHOLE).tiers, "redis://b", None, None)
    with pytest.raises(InputError, match="lowest_cache_size <= cache_size"):
        with_redis(config(tmp_path, '[tiers.redis]\nurl = "redis://a"\nmode = "server"').tiers, None, 70_000, None)


def test_a_lifetime_of_the_options_holds_in_cassandra_where_there_is_one(tmp_path: Path) -> None:
    one = config(tmp_path, '[tiers.cassandra]\nurl_env = "A"\nttl_seconds = 9\nhighest_ttl_seconds = 100').tiers
    section = with_cassandra(one, 5.0).cassandra
    assert (section.url_env, section.ttl_seconds, section.highest_ttl_seconds) == ("A", 5.0, 100.0)
    assert with_cassandra(one, None) == one
    none = config(tmp_path, "[tiers.cassandra]").tiers
    assert (none.cassandra.is_there, with_cassandra(none, 5.0)) == (False, none)
    with pytest.raises(InputError, match=r"--ttl: got what does not fit the file, expected .*ttl_seconds <= highest_"):
        with_cassandra(one, 101.0)


def test_the_driver_for_cassandra_is_asked_for_where_there_is_a_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None stands for a module that is not installed."""
    monkeypatch.setitem(sys.modules, "cassandra", None)
    backend = '[gateway]\nupstream = "http://a"\n'
    assert "cassandra" not in made(tmp_path, backend).places
    with pytest.raises(InputError, match=r'gateway\.toml, tiers\.cassandra: .* pip install "setpoint\[cassandra\]"'):
        made(tmp_path, f'{backend}[tiers.cassandra]\nurl = "cassandra://a/k"')


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[gateway]\nport = 70000", ", gateway.port: got 70000, expected less than or equal to 65535"),
        ("[gateway]\nprot = 1", ": unknown key gateway.prot, the nearest known is gateway.port"),
        ("[tiers.memory]\ncache_size = true", ", tiers.memory.cache_size: got True, expected a valid integer"),
        ("[tiers.memory]\ncache_size = 9", ", tiers.memory.cache_size: got 9, expected greater than or equal to 65536"),
        (
            "[tiers.memory]\nttl_seconds = 0.5",
            ": got tiers.memory.ttl_seconds = 0.5, expected lowest_ttl_seconds <= ttl_seconds <= highest_ttl_seconds, "
            "got 1.0, 0.5, 2592000.0",
        ),
        (
            "[tiers.semantic]\nadmission_requests = 2",
            ": unknown key tiers.semantic.admission_requests, the nearest known is",
        ),
        (
            '[tiers.memory]\nadmission = "all"\nadmission_requests = 2',
            ": got tiers.memory.admission = 'all', tiers.memory.admission_requests = 2, "
            "expected admission_requests only with admission second-hit",
        ),
        (
            '[tiers.disk]\nadmission = "tinylfu"',
            ": got tiers.disk.admission = 'tinylfu', expected admission all or second-hit: only memory knows",
        ),
        (
            '[tiers.memory]\neviction_policy = "arc"',
            ", tiers.memory.eviction_policy: got 'arc', expected 'lru', 'lru-2'",
        ),
        (
            '[tiers.memory]\neviction_policies = ["lru", "arc"]',
            ", tiers.memory.eviction_policies: got ['lru', 'arc'], expected 'lru', 'lru-2'",
        ),
        (
            '[tiers.memory]\neviction_policies = ["sieve"]',
            ": got tiers.memory.eviction_policies = ['sieve'], expected eviction_policies with lru, the",
        ),
        (
            '[tiers.redis]\nurl = "redis://a"\neviction_policy = "lfu"',
            ", tiers.redis: got a table of url, eviction_policy, expected eviction_policy of lru in the index mode",
        ),
        (
            '[tiers.redis]\nurl = "redis://a"\nmode = "server"\neviction_policy = "sieve"',
            ", tiers.redis: got a table of url, mode, eviction_policy, "
            "expected eviction_policy of lru, lfu in the server mode",
        ),
        ('[tiers.disk]\neviction_policy = "sieve"', ": unknown key tiers.disk.eviction_policy"),
        (
            "[tiers.memory]\nadmission_requests = 0",
            ", tiers.memory.admission_requests: got 0, expected greater than or equal to 1",
        ),
        ("[tiers.redis]\nurls = 'a'", ": unknown key tiers.redis.urls, the nearest known is url"),
        ("[tiers.redis.a]\nmode = 'index'", ", tiers.redis.a: got a table of mode, expected either url or url_env"),
        (
            "[tiers.redis.a]\nurl = 'a'\nslow_seconds = 0",
            ", tiers.redis.a.slow_seconds: got 0, expected greater than 0",
        ),
        ("[tiers.redis.disk]\nurl = 'p@h'", ", tiers.redis: got a table of disk, expected names of tiers: 1 to 32 of"),
        ("[tiers.redis.cassandra]\nurl = 'p@h'", ", tiers.redis: got a table of cassandra, expected names of tiers: "),
        (
            "[tiers.cassandra]\nttl_seconds = 60",
            ": got tiers.cassandra.ttl_seconds = 60, expected either url or url_env",
        ),
        (
            "[tiers.cassandra]\nurl = 'p@h'\nurl_env = 'A'",
            ": got tiers.cassandra.url = …, tiers.cassandra.url_env = 'A', expected either url or url_env",
        ),
        (
            "[tiers.cassandra]\nurl = 'p@h'\ncache_size = 70_000",
            ": got tiers.cassandra.url = …, tiers.cassandra.cache_size = 70000, expected lowest_cache_size <= "
            "cache_size <= highest_cache_size, got 4194304, 70000, 1099511627776",
        ),
        ("[tiers.semantic]\nlowest_threshold = 0.99", ": got tiers.semantic.lowest_threshold = 0.99, expected lowest_"),
        (
            "[tiers.semantic]\nhighest_threshold = 0.85",
            ": got tiers.semantic.highest_threshold = 0.85, expected lowest_threshold <= similarity_threshold <= "
            "highest_threshold, got 0.7, 0.9, 0.85",
        ),
        ("[namespaces.a]\nttl = 5", ": unknown key namespaces.a.ttl, the nearest known is ttl_seconds"),
        ("[namespaces.'a-*']\nttl_seconds = -5", ", namespaces.a-*.ttl_seconds: got -5, expected greater than 0"),
        ("[namespaces.'a/b']\nttl_seconds = 5", ", namespaces: got a table of a/b, expected names or beginnings"),
        ("[[gateway.keys]]\nsha256 = 'the key'", ", gateway.keys[0].sha256: expected the SHA-256 of a key, 64 digits"),
        ("[[gateway.keys]]\ntenant = 'a'", ", gateway.keys[0].sha256: not set, expected a value"),
        (
            f"[[gateway.keys]]\nsha256 = '{HASH}'\nrole = 'boss'",
            ", gateway.keys[0].role: got 'boss', expected 'client', 'viewer' or 'operator'",
        ),
        (
            f"[[gateway.keys]]\nsha256 = '{HASH}'\nroles = 'boss'",
            ": unknown key gateway.keys[0].roles, the nearest known is role",
        ),
        (f"[[gateway.keys]]\nsha256 = '{HASH}'\n" * 2, ", gateway.keys: got 2 tables, expected each key once"),
        (f"[[gateway.keys]]\nsha256 = '{HASH}'\ntenant = 'a/b'", ", gateway.keys[0].tenant: got 'a/b', expected match"),
        ("[gateway", ": expected TOML"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        config(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'gateway.toml'}{told}")
    assert caught.value.exit_code == 2
    assert "the key" not in str(caught.value)
    assert "p@h" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "gateway.upstream: not set, expected the URL of a backend"),
        ("[gateway]\nupstream = 'ftp://u:p@a'", "upstream: got 'ftp://a', expected a URL"),
        (
            "[gateway]\nupstream = 'http://a'\nupstream_key_env = 'NONE'",
            "gateway.toml, gateway.upstream_key_env: got 'NONE', expected the name of a variable that is set",
        ),
        (
            "[gateway]\nupstream = 'http://a'\n[tiers.redis.x]\nurl = 'http://u:p@a'",
            "gateway.toml, tiers.redis.x: redis: got 'http://a', expected redis://",
        ),
        (
            "[gateway]\nupstream = 'http://a'\n[tiers.redis]\nurl_env = 'NONE'",
            "gateway.toml, tiers.redis.url_env: got 'NONE', expected the name of a variable that is set",
        ),
        (
            "[gateway]\nupstream = 'http://a'\n[tiers.cassandra]\nurl = 'cassandra://u:p@a'",
            "gateway.toml, tiers.cassandra: cassandra: got 'cassandra://a', expected cassandra://host:9042/keyspace",
        ),
        (
            "[gateway]\nupstream = 'http://a'\n[tiers.cassandra]\nurl_env = 'NONE'",
            "gateway.toml, tiers.cassandra.url_env: got 'NONE', expected the name of a variable that is set",
        ),
        (
            "[gateway]\nupstream = 'http://a'\n[namespaces.x]\ntiers = ['memory', 'disc']",
            "gateway.toml, namespaces.x.tiers: got 'disc', expected of memory, semantic",
        ),
        (
            "[gateway]\nupstream = 'http://a'\n[namespaces.x]\nleft_out = ['model']",
            "gateway.toml, namespaces.x.left_out: got 'model', expected fields that requests can do without",
        ),
        (
            "[gateway]\nupstream = 'http://a'\n[tiers.semantic]\nembedder = 'http://a/v1'",
            "gateway.toml, tiers.semantic: embedder http://a/v1: got no model, expected the name of one",
        ),
    ],
)
def test_what_cannot_be_built_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        made(tmp_path, text)
    assert str(caught.value).startswith(told)
    assert "u:p@" not in str(caught.value)


def test_the_settings_to_begin_with_are_settings(tmp_path: Path) -> None:
    """Those that docs/techniques.md shows."""
    page = (Path(__file__).parents[3] / "docs" / "techniques.md").read_text(encoding="utf-8")
    file = tmp_path / "gateway.toml"
    file.write_text(page.split("```toml\n")[1].split("```")[0] + "[tiers.disk]\nenabled = false\n")
    made = built(load_serve_config(file, {}), str(file), {})
    rules = made.service.settings.rules_of("any").key_rules.structure
    assert (rules.spaces, rules.tracking_fields, rules.line_ends, rules.addresses) == (True, True, True, True)
    assert made.service.resilience is not None
    assert "stale" in made.places
