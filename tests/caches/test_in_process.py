"""What the contract does not cover: values, ratios, errors, and what the calls return."""

from __future__ import annotations

import math

import pytest

from caches.errors import InputError
from caches.in_process import InProcessCache
from caches.stats import CacheStats, Expiry


def cache(capacity: int = 10, ttl: float = 10.0, expiry: Expiry = Expiry.SINCE_WRITE) -> InProcessCache[str, str]:
    return InProcessCache(capacity, ttl, expiry)


def test_get_returns_what_was_put_last() -> None:
    c = cache()
    assert c.get("a", 0.0) is None
    assert c.put("a", "one", 2, 0.0)
    assert c.get("a", 1.0) == "one"
    assert c.put("a", "two", 3, 2.0)
    assert c.get("a", 2.0) == "two"
    assert c.stats() == CacheStats(hits=2, misses=1, hit_bytes=5, entries=1, used_bytes=3)


def test_a_falsy_value_is_a_hit() -> None:
    c: InProcessCache[str, str] = cache()
    c.put("a", "", 0, 0.0)
    assert c.get("a", 0.0) == ""
    assert c.stats().hits == 1


def test_a_miss_counts_bytes_only_where_the_size_is_known() -> None:
    c = cache()
    c.get("a", 0.0)
    c.get("a", 0.0, size_bytes=7)
    assert (c.stats().misses, c.stats().miss_bytes) == (2, 7)


def test_ratios_are_none_until_something_was_counted() -> None:
    c = cache()
    assert c.stats().hit_ratio is None
    assert c.stats().byte_hit_ratio is None
    c.get("a", 0.0)  # a lookup, but no bytes are known
    assert c.stats().hit_ratio == 0.0
    assert c.stats().byte_hit_ratio is None
    c.put("a", "x", 3, 0.0)
    c.get("a", 0.0)
    c.get("b", 0.0, size_bytes=1)
    assert c.stats().hit_ratio == pytest.approx(1 / 3)
    assert c.stats().byte_hit_ratio == 0.75


def test_calls_say_what_they_did() -> None:
    c = cache(capacity=4)
    assert not c.put("large", "x", 5, 0.0)
    assert not c.write("large", "x", 5, 0.0)
    assert not c.warm("large", "x", 5, 0.0)
    assert c.write("a", "x", 4, 0.0)
    assert c.delete("a", 0.0)
    assert not c.delete("a", 0.0)
    assert c.warm("b", "y", 4, 0.0)
    stats = c.stats()
    assert (stats.refusals, stats.writes, stats.deletes, stats.warmups) == (3, 2, 2, 1)


def test_what_does_not_fit_replaces_nothing_but_its_own_old_value() -> None:
    """The old value is outdated once a new one is known, so it goes although the new one is refused."""
    c = cache(capacity=4)
    c.put("a", "old", 1, 0.0)
    c.put("b", "y", 1, 0.0)
    assert not c.put("a", "new", 5, 1.0)
    assert c.resident() == {"b"}
    assert c.stats().evictions == 0


def test_could_miss_looks_ahead_and_touches_nothing() -> None:
    c = cache(ttl=10.0)
    c.put("a", "x", 5, 0.0)
    c.put("b", "y", 5, 1.0)
    c.put("own", "z", 0, 1.0, ttl_seconds=2.0)
    before = c.stats()
    assert c.could_miss("absent", 1.0, 1.0)
    assert not c.could_miss("a", 1.0, 9.9)
    assert c.could_miss("a", 1.0, 10.0)
    assert not c.could_miss("own", 1.0, 2.9)
    assert c.could_miss("own", 1.0, 3.0)
    assert c.stats() == before
    c.put("c", "w", 5, 2.0)  # a is still the least recently touched
    assert c.resident() == {"b", "c", "own"}


def test_since_touch_could_miss_counts_from_the_touch() -> None:
    c = cache(ttl=10.0, expiry=Expiry.SINCE_TOUCH)
    c.put("a", "x", 1, 0.0)
    c.get("a", 5.0)
    assert not c.could_miss("a", 5.0, 14.9)
    assert c.could_miss("a", 5.0, 15.0)


def test_a_lifetime_of_its_own_only_shortens() -> None:
    c = cache(ttl=5.0)
    c.put("short", "x", 1, 0.0, ttl_seconds=2.0)
    c.put("long", "y", 1, 0.0, ttl_seconds=100.0)
    assert c.get("short", 2.0) is None
    assert c.get("long", 4.9) == "y"
    assert c.get("long", 5.0) is None
    assert c.stats().expirations == 2


def test_a_capacity_of_zero_refuses_all_but_the_empty_answer() -> None:
    c = cache(capacity=0)
    assert not c.put("a", "x", 1, 0.0)
    assert c.put("b", "", 0, 0.0)


@pytest.mark.parametrize(
    ("capacity", "ttl", "named"),
    [(-1, 1.0, "capacity_bytes: got -1"), (1, 0.0, "ttl_seconds: got 0.0"), (1, math.nan, "ttl_seconds: got nan")],
)
def test_bad_settings_are_named(capacity: int, ttl: float, named: str) -> None:
    with pytest.raises(InputError, match=named):
        cache(capacity, ttl)
    c = cache()
    with pytest.raises(InputError, match=named):
        c.apply(capacity, ttl, 0.0)
    assert (c.capacity_bytes, c.ttl_seconds) == (10, 10.0)
