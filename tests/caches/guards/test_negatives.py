"""Errors that are repeated for a while: beside a model that keeps a plain list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from caches.guards.negatives import Negatives


def test_one_is_repeated_until_its_life_is_over() -> None:
    kept: Negatives[str] = Negatives(10.0)
    kept.keep(b"a", "no such model", 13, 0.0)
    assert kept.get(b"a", 9.9) == "no such model"
    assert kept.get(b"a", 10.0) is None
    assert (kept.served, len(kept), kept.used_bytes) == (1, 0, 0)


def test_asking_does_not_prolong_it_and_keeping_anew_does() -> None:
    kept: Negatives[str] = Negatives(10.0)
    kept.keep(b"a", "no", 2, 0.0)
    assert kept.get(b"a", 9.0) == "no"
    kept.keep(b"a", "still no", 8, 9.0)
    assert kept.get(b"a", 18.0) == "still no"
    assert kept.get(b"a", 19.0) is None


def test_a_large_one_is_not_kept() -> None:
    kept: Negatives[str] = Negatives(10.0, capacity_bytes=100, largest_bytes=50)
    kept.keep(b"a", "x", 50, 0.0)
    assert kept.get(b"a", 0.0) is None
    kept.keep(b"a", "x", 49, 0.0)
    assert kept.get(b"a", 0.0) == "x"


def test_an_invalidation_forgets_all() -> None:
    kept: Negatives[str] = Negatives(10.0)
    kept.keep(b"a", "no", 2, 0.0)
    kept.clear()
    assert (kept.get(b"a", 0.0), kept.used_bytes) == (None, 0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["get", "keep"]),
        st.integers(0, 5),
        st.integers(1, 60),
        st.integers(0, 8).map(lambda n: n / 2.0),
    ),
    max_size=80,
)


@given(STEPS)
def test_what_is_served_was_kept_not_long_ago_and_the_bound_holds(steps: list[tuple[str, int, int, float]]) -> None:
    kept: Negatives[int] = Negatives(10.0, capacity_bytes=120, largest_bytes=50)
    model: list[tuple[bytes, int, int, float]] = []  # in the order in which they were kept
    now = 0.0
    for serial, (what, number, size, wait) in enumerate(steps):
        now += wait
        name = b"%d" % number
        model = [one for one in model if one[3] + 10.0 > now]
        if what == "get":
            expected = next((value for found, value, _, _ in model if found == name), None)
            assert kept.get(name, now) == expected
        else:
            kept.keep(name, serial, size, now)
            if size + 1 <= 50:
                model = [one for one in model if one[0] != name] + [(name, serial, size + 1, now)]
                while sum(one[2] for one in model) > 120:
                    model.pop(0)
        assert kept.used_bytes <= 120
