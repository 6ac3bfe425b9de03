"""The bucket that rates are kept by, by hand."""

from __future__ import annotations

from caches.bucket import Bucket


def test_it_is_full_at_first_fills_evenly_and_never_beyond() -> None:
    bucket = Bucket(2.0, 10.0, 100.0)
    bucket.take(7.0, 100.0)
    assert (bucket.level(100.0), bucket.level(102.0), bucket.level(1_000.0)) == (3.0, 7.0, 10.0)
    bucket.take(-50.0, 102.0)
    assert bucket.level(102.0) == 10.0


def test_how_long_until_so_much_is_in_it() -> None:
    bucket = Bucket(2.0, 10.0, 0.0)
    bucket.take(12.0, 0.0)
    assert (bucket.level(0.0), bucket.left_seconds(10.0, 0.0), bucket.left_seconds(4.0, 3.0)) == (-2.0, 6.0, 0.0)
    assert bucket.left_seconds(10.5, 0.0) == float("inf")


def test_a_clock_that_goes_back_stands_still() -> None:
    bucket = Bucket(1.0, 10.0, 50.0)
    bucket.take(5.0, 50.0)
    bucket.take(1.0, 20.0)
    assert (bucket.level(20.0), bucket.level(51.0)) == (4.0, 5.0)
