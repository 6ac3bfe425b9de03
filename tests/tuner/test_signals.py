"""The seam of signals, and the source that counts by itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from caches.errors import InputError
from caches.target import Arm, ArmCounters, Counted, Histogram
from tests.contracts.signal_contract import EXPECTED, SignalContract, Subject
from tuner.counted_signals import CountedSignals
from tuner.signals import SIGNALS, FirstOf, Signal, all_missing, measured, missing

BOUNDS = (0.0005, 0.001, 0.2, 0.5, 1.0, 2.0)
EMPTY = Histogram(BOUNDS, (0,) * 7, 0.0)
NOTHING = ArmCounters(**dict.fromkeys(ArmCounters.__dataclass_fields__, 0) | {  # type: ignore[arg-type]
    "ttft_seconds": EMPTY, "latency_seconds": EMPTY, "hit_age_seconds": EMPTY,
})  # fmt: skip
BEGAN, BEFORE, AFTER = 1000.0, 2000.0, 2300.0


def counted(at_seconds: float, control: ArmCounters, treatment: ArmCounters = NOTHING) -> Counted:
    return Counted(BEGAN, at_seconds, {Arm.CONTROL: control, Arm.TREATMENT: treatment})


def traffic(seconds: int, share: float = 1.0) -> ArmCounters:
    """Of the contract's traffic, over some seconds, a share."""

    def of(per_second: float) -> int:
        return round(per_second * seconds * share)

    return replace(
        NOTHING,
        requests=of(10),
        hits=of(7),
        errors=of(0.4),
        hit_bytes=of(700),
        miss_bytes=of(2100),
        hit_tokens=of(70),
        tokens=of(280),
        evictions=of(0.5),
        expirations=of(0.2),
        used_bytes=round(5e6 * share),
        entries=round(1200 * share),
        ttft_seconds=Histogram(BOUNDS, (0, of(7), 0, of(2.8), 0, of(0.2), 0), 1.0),
        latency_seconds=Histogram(BOUNDS, (0, of(7), 0, of(2.8), 0, 0, of(0.2)), 1.0),
    )


class TestCountedSignals(SignalContract):
    @pytest.fixture(params=["one arm", "two arms"])
    def subject(self, request: pytest.FixtureRequest) -> Subject:
        if request.param == "one arm":
            before, after = counted(BEFORE, traffic(100)), counted(AFTER, traffic(400))
        else:
            before = counted(BEFORE, traffic(100, 0.9), traffic(100, 0.1))
            after = counted(AFTER, traffic(400, 0.9), traffic(400, 0.1))
        return Subject(CountedSignals(before, after), CountedSignals(None, after), AFTER + 1.0)


class TestFirstOf(SignalContract):
    @pytest.fixture
    def subject(self) -> Subject:
        source = CountedSignals(counted(BEFORE, traffic(100)), counted(AFTER, traffic(400)))
        blind = CountedSignals(None, None)
        return Subject(FirstOf([blind, source]), FirstOf([blind]), AFTER + 1.0)


def read(before: Counted | None, after: Counted | None, arm: Arm | None = None) -> dict[str, Signal]:
    return dict(CountedSignals(before, after, arm).read(AFTER + 2.5))


def test_ratios_and_age_of_what_a_cache_counts() -> None:
    found = read(counted(BEFORE, NOTHING), counted(AFTER, traffic(300)))
    assert found["byte_hit_ratio"] == Signal("byte_hit_ratio", 0.25, 2.5)  # 700 of 2,800 bytes a second
    assert found["token_hit_ratio"] == Signal("token_hit_ratio", 0.25, 2.5)
    assert found["error_ratio"].value == pytest.approx(0.04)
    assert found["p99_latency_seconds"].value == 2.0  # above all bounds: the highest, which is a lower limit
    assert found["vram_ratio"].missing == "a cache does not count it: take it from Prometheus"


def test_one_arm_apart() -> None:
    before, after = counted(BEFORE, NOTHING, NOTHING), counted(AFTER, traffic(300, 0.8), replace(NOTHING, requests=600))
    assert read(before, after, Arm.TREATMENT)["hit_ratio"] == Signal("hit_ratio", 0.0, 2.5)  # asked for, and no hit
    assert read(before, after, Arm.TREATMENT)["requests_per_second"].value == 2.0
    assert read(before, after, Arm.CONTROL)["hit_ratio"].value == pytest.approx(0.7)


def test_no_requests_are_no_ratio_but_a_rate_of_zero() -> None:
    found = read(counted(BEFORE, traffic(100)), counted(AFTER, traffic(100)))
    assert found["requests_per_second"].value == 0.0
    assert found["evictions_per_second"].value == 0.0
    assert found["used_bytes"].value == 5e6
    for name in ("hit_ratio", "error_ratio", "p99_ttft_seconds"):
        assert found[name].missing == "there were no requests in the interval: wait for traffic"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (None, counted(AFTER, traffic(400)), "could not be read"),
        (counted(BEFORE, traffic(100)), None, "could not be read"),
        (counted(BEFORE, traffic(100)), replace(counted(AFTER, traffic(1)), began_seconds=2100.0), "started anew"),
        (counted(BEFORE, traffic(100)), counted(BEFORE, traffic(100)), "stood still"),
        (counted(AFTER, traffic(100)), counted(BEFORE, traffic(400)), "went back by 300 s"),
        (counted(BEFORE, traffic(100)), counted(AFTER, traffic(99)), "requests fell"),
        (
            counted(BEFORE, traffic(100)),
            counted(AFTER, replace(traffic(400), ttft_seconds=EMPTY)),
            "ttft_seconds fell",
        ),
        (
            counted(BEFORE, traffic(100)),
            counted(AFTER, replace(traffic(400), latency_seconds=Histogram((1.0,), (0, 4000), 1.0))),
            "buckets",
        ),
        (
            counted(BEFORE, traffic(100), replace(NOTHING, ttft_seconds=Histogram((1.0,), (0, 0), 1.0))),
            counted(AFTER, traffic(400), replace(NOTHING, ttft_seconds=Histogram((1.0,), (0, 0), 1.0))),
            "buckets",
        ),
    ],
)
def test_two_readings_that_say_nothing_together(before: Counted | None, after: Counted | None, words: str) -> None:
    for signal in read(before, after).values():
        assert signal.value is None
        assert words in str(signal.missing)


def test_levels_may_fall() -> None:
    assert (
        read(counted(BEFORE, traffic(400)), counted(AFTER, replace(traffic(401), used_bytes=1)))["used_bytes"].value
        == 1
    )


def test_more_hits_than_requests_is_a_lie() -> None:
    found = read(counted(BEFORE, NOTHING), counted(AFTER, replace(traffic(300), hits=6000)))
    assert found["hit_ratio"].missing == "got 2, expected a value in [0, 1]: the query or what it reads is wrong"


@pytest.mark.parametrize(
    ("name", "value", "age_seconds", "words"),
    [
        ("hit_ratio", math.nan, 1.0, "not a number"),
        ("hit_ratio", 1.5, 1.0, "expected a value in [0, 1]"),
        ("hit_ratio", -0.1, 1.0, "expected a value in [0, 1]"),
        ("requests_per_second", -1.0, 1.0, "expected at least 0, finite"),
        ("requests_per_second", math.inf, 1.0, "got inf"),
        ("requests_per_second", 1.0, 90.5, "expected at most 90 s"),
        ("requests_per_second", 1.0, math.nan, "expected at most 90 s"),
    ],
)
def test_what_cannot_be_is_missing(name: str, value: float, age_seconds: float, words: str) -> None:
    assert words in str(measured(SIGNALS[name], value, age_seconds).missing)


def test_rounding_is_no_lie_and_is_cut_off() -> None:
    assert measured(SIGNALS["hit_ratio"], 1.0 + 1e-12, 0.0) == Signal("hit_ratio", 1.0, 0.0)
    assert measured(SIGNALS["hit_ratio"], 0.0, -0.01) == Signal("hit_ratio", 0.0, 0.0)
    assert measured(SIGNALS["utilisation"], 1.7, 1.0).value == 1.7  # more is asked for than there is


@pytest.mark.parametrize(
    "parts", [(None, None, None), (1.0, None, None), (1.0, 2.0, "no"), (None, 2.0, "no"), (None, None, "")]
)
def test_a_signal_is_a_value_with_its_age_or_missing(parts: tuple[float | None, float | None, str | None]) -> None:
    with pytest.raises(InputError, match="signal hit_ratio"):
        Signal("hit_ratio", *parts)


class Fixed:
    """A source that always says the same."""

    def __init__(self, **values: float) -> None:
        self.values = values

    def read(self, now_seconds: float) -> dict[str, Signal]:
        return all_missing("gone") | {name: Signal(name, value, 1.0) for name, value in self.values.items()}


def test_the_first_source_that_has_a_signal_counts() -> None:
    found = FirstOf([Fixed(hit_ratio=0.0), Fixed(hit_ratio=0.5, vram_ratio=0.9)]).read(0.0)
    assert (found["hit_ratio"].value, found["vram_ratio"].value) == (0.0, 0.9)
    assert found["entries"] == missing("entries", "gone")
    assert FirstOf([]).read(0.0)["entries"].missing == "no source of signals"


def test_the_contract_covers_what_a_cache_counts() -> None:
    assert set(EXPECTED) <= set(SIGNALS)
