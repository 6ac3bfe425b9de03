"""One contract for every source of signals, over the same traffic: what is known comes with its age, all else is
missing with a reason, and nothing is zero for want of a value.

The traffic, per second: 7 hits answered within (0.5, 1] ms; 3 misses, 2.8 of them within (0.2, 0.5] s and 0.2 within
(1, 2] s; half an eviction; a fifth of an expiration. So of 10 requests the P50 is the 5th, at 5/7 of the first bucket,
the P95 2.5/2.8 into the second, the P99 half-way into the third.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tuner.signals import SIGNALS, SignalSource

EXPECTED = {
    "requests_per_second": 10.0,
    "hit_ratio": 0.7,
    "p50_ttft_seconds": 0.0005 + 0.0005 * 5 / 7,
    "p95_ttft_seconds": 0.2 + 0.3 * 2.5 / 2.8,
    "p99_ttft_seconds": 1.5,
    "evictions_per_second": 0.5,
    "expirations_per_second": 0.2,
    "used_bytes": 5e6,
    "entries": 1200.0,
}
LONG_SECONDS = 100_000.0


@dataclass(frozen=True)
class Subject:
    """source: has seen the traffic up to now_seconds. blind: cannot see anything."""

    source: SignalSource
    blind: SignalSource
    now_seconds: float


class SignalContract:
    """Subclass it in a test module, with a fixture or attribute `subject`."""

    subject: Subject

    def test_every_signal_is_there_by_its_name(self, subject: Subject) -> None:
        for source in (subject.source, subject.blind):
            found = source.read(subject.now_seconds)
            assert list(found) == list(SIGNALS)
            assert [signal.name for signal in found.values()] == list(SIGNALS)

    def test_values_are_those_of_the_traffic(self, subject: Subject) -> None:
        found = subject.source.read(subject.now_seconds)
        assert {name: found[name].value for name in EXPECTED} == pytest.approx(EXPECTED, rel=1e-9)

    def test_what_is_known_has_an_age_and_a_possible_value(self, subject: Subject) -> None:
        for name, signal in subject.source.read(subject.now_seconds).items():
            if signal.value is not None:
                assert SIGNALS[name].low <= signal.value <= SIGNALS[name].high
                assert signal.age_seconds is not None
                assert 0.0 <= signal.age_seconds <= SIGNALS[name].max_age_seconds

    def test_what_is_not_known_says_why_and_is_never_zero(self, subject: Subject) -> None:
        found = subject.source.read(subject.now_seconds)
        unknown = [signal for signal in found.values() if signal.value is None]
        assert unknown
        assert [signal.name for signal in unknown if not signal.missing] == []

    def test_a_blind_source_says_so_of_every_signal(self, subject: Subject) -> None:
        for signal in subject.blind.read(subject.now_seconds).values():
            assert (signal.value, signal.age_seconds) == (None, None)
            assert signal.missing

    def test_what_is_old_is_missing(self, subject: Subject) -> None:
        found = subject.source.read(subject.now_seconds + LONG_SECONDS)
        assert [signal.name for signal in found.values() if signal.value is not None] == []

    def test_reading_changes_nothing(self, subject: Subject) -> None:
        assert subject.source.read(subject.now_seconds) == subject.source.read(subject.now_seconds)
