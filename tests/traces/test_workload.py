"""Workload analysis against values derived by hand and against scipy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

from caches.errors import InputError
from tests.traces.tiny import tiny_trace
from traces.catalog import load_trace
from traces.drift import MAX_WINDOWS, entropy_bits, windows
from traces.trace import TraceInfo
from traces.workload import Quantiles, analyse, distribution, reuse_seconds, round_seconds


def test_ratios_and_entropy_of_a_known_distribution() -> None:
    # Counts 4, 2, 1, 1 of 8: re-reference 1 - 4/8, two of four keys seen once,
    # entropy 1/2 * 1 + 1/4 * 2 + 2 * 1/8 * 3 = 1.75 bits.
    report = analyse(tiny_trace([0, 1, 0, 2, 0, 3, 1, 0], [0, 1, 2, 3, 4, 5, 6, 8]))
    assert (report.requests, report.unique_keys, report.span_seconds) == (8, 4, 8.0)
    assert report.rereference_ratio == 0.5
    assert report.one_hit_share == 0.5
    assert report.entropy_bits == pytest.approx(1.75, abs=1e-12)
    assert report.mean_rate_rps == 1.0
    assert report.popularity.x.tolist() == [1, 2, 3, 4]
    assert report.popularity.y.tolist() == [4, 2, 1, 1]


def test_reuse_times_are_between_requests_of_one_key() -> None:
    trace = tiny_trace([0, 1, 0, 1, 0], [0, 1, 3, 7, 10])
    assert reuse_seconds(trace).tolist() == [3, 6, 7]
    reuse = analyse(trace).reuse_seconds
    assert reuse is not None
    assert reuse.quantiles == Quantiles(p50=6, p90=7, p99=7, max=7)


def test_footprint_counts_a_key_once_with_its_last_size() -> None:
    report = analyse(tiny_trace([0, 1, 0], [0, 1, 2], sizes=[10, 5, 30]))
    assert report.footprint_bytes == 35
    assert report.size_bytes is not None
    assert report.size_bytes.quantiles == Quantiles(p50=10, p90=30, p99=30, max=30)


def test_quantiles_are_observed_values_at_exact_ranks() -> None:
    column = distribution(np.arange(1, 1001)[::-1])
    assert column is not None
    assert column.quantiles == Quantiles(p50=500, p90=900, p99=990, max=1000)
    assert column.cdf.y[-1] == 1.0
    assert np.array_equal(column.cdf.y, column.cdf.x / 1000)


def test_windows_of_known_entropy_and_distance() -> None:
    # Windows of 4 s: keys 0000, then 0011. Entropies 0 and 1. The mixture is (3/4, 1/4) with entropy
    # 0.811278, so the divergence is 0.811278 - (0 + 1) / 2 and the distance its root, 0.557923.
    first, second = windows(tiny_trace([0, 0, 0, 0, 0, 0, 1, 1, 0], range(9)), 4)
    assert (first.start_seconds, first.requests, first.entropy_bits) == (0, 4, 0)
    assert (first.entropy_change_bits, first.js_distance, first.js_floor) == (None, None, None)
    assert (second.start_seconds, second.requests, second.entropy_bits) == (4, 4, 1)
    assert second.entropy_change_bits == 1
    assert second.js_distance == pytest.approx(0.5579230452841438, abs=1e-12)


def test_distance_is_zero_for_equal_windows_and_one_for_disjoint_ones() -> None:
    _, second, third = windows(tiny_trace([0, 1, 1, 0, 2, 3, 9], range(7)), 2)
    assert second.js_distance == pytest.approx(0, abs=1e-7)
    assert third.js_distance == pytest.approx(1, abs=1e-12)


def test_sampling_alone_explains_a_stationary_trace_but_not_a_shift() -> None:
    rng = np.random.default_rng(5)
    keys = rng.integers(2_000, size=40_000)
    keys[20_000:] += np.where(keys[20_000:] < 1_000, 2_000, 0)
    stats = windows(tiny_trace(keys.tolist(), np.arange(40_001.0)[:-1].tolist()), 9_999.0)
    stationary, shifted = stats[1], stats[2]
    assert stationary.js_distance is not None
    assert stationary.js_distance == pytest.approx(stationary.js_floor, rel=0.02)
    assert shifted.js_distance is not None
    assert shifted.js_floor is not None
    assert shifted.js_distance > 1.5 * shifted.js_floor


def test_a_window_without_requests_has_no_entropy_and_no_distance() -> None:
    stats = windows(tiny_trace([0, 0, 1, 1], [0, 1, 6, 9]), 3)
    assert [w.requests for w in stats] == [2, 0, 1]
    assert [w.entropy_bits for w in stats] == [0, None, 0]
    assert [w.entropy_change_bits for w in stats] == [None, None, None]
    assert [w.js_distance for w in stats] == [None, None, None]


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=40),
    st.lists(st.integers(0, 6), min_size=1, max_size=40),
)
def test_entropy_and_distance_agree_with_scipy(left: list[int], right: list[int]) -> None:
    times = [*np.linspace(0, 0.9, len(left)), *np.linspace(1, 1.9, len(right)), 2.0]
    first, second = windows(tiny_trace([*left, *right, 0], times), 1)
    counts = [np.bincount(side, minlength=7) for side in (left, right)]
    expected = [entropy(c, base=2) for c in counts]
    assert first.entropy_bits == pytest.approx(expected[0], abs=1e-9)
    assert second.entropy_bits == pytest.approx(expected[1], abs=1e-9)
    assert second.entropy_change_bits == pytest.approx(abs(expected[1] - expected[0]), abs=1e-9)
    # The root turns a rounding error of 1e-16 under it into 1e-8.
    assert second.js_distance == pytest.approx(jensenshannon(*counts, base=2), abs=1e-7)
    assert entropy_bits(counts[0]) == pytest.approx(expected[0], abs=1e-9)


def test_what_a_trace_does_not_have_is_none() -> None:
    report = analyse(tiny_trace([0, 1, 0], [5, 5, 5], sizes=[0, 0, 0]))
    assert report.rereference_ratio == pytest.approx(1 / 3)
    assert report.mean_rate_rps is None
    assert report.rate is None
    assert report.reuse_seconds is None
    assert report.windows == ()
    assert (report.entropy_change_bits, report.js_distance, report.js_floor) == (None, None, None)
    assert (report.size_bytes, report.footprint_bytes) == (None, None)
    assert (report.prompt_tokens, report.output_tokens) == (None, None)


def test_no_repeat_means_no_reuse_times() -> None:
    assert analyse(tiny_trace([0, 1, 2], [0, 1, 2])).reuse_seconds is None


def test_rate_counts_complete_bins_only() -> None:
    # 801 requests, one every half second: a span of 400 s makes bins of 2 s with 4 requests each.
    report = analyse(tiny_trace([0] * 801, np.arange(801) / 2))
    assert report.rate_bin_seconds == 2
    assert report.rate is not None
    assert report.rate.x.tolist() == list(range(0, 400, 2))
    assert set(report.rate.y) == {2.0}


@pytest.mark.parametrize(
    ("at_least", "expected"),
    [
        (0.003, 0.005), (1, 1), (1.1, 2), (15.9, 20), (29, 50), (31, 60), (61, 120), (3_600, 3_600),
        (3_601, 7_200), (50_000, 86_400), (86_401, 172_800), (500_000, 864_000),
    ],
)  # fmt: skip
def test_round_lengths_of_time(at_least: float, expected: float) -> None:
    assert round_seconds(at_least) == pytest.approx(expected)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 10 / (MAX_WINDOWS + 1)])
def test_impossible_windows_are_refused(seconds: float) -> None:
    with pytest.raises(InputError, match=r"^window: got .* expected"):
        analyse(tiny_trace([0, 1], [0, 10]), seconds)


def test_report_goes_through_json() -> None:
    info = TraceInfo("tiny", "two sources", composed=True, assumptions=("Made up.",))
    tokens = np.array([7, 8, 9], dtype=np.int32)
    report = analyse(tiny_trace([0, 1, 0], [0, 1, 9], prompt_tokens=tokens, info=info), 3)
    plain = report.as_dict()
    assert orjson.loads(orjson.dumps(plain)) == plain
    assert plain["composed"] is True
    assert plain["assumptions"] == ["Made up."]
    assert plain["prompt_tokens"]["quantiles"] == {"p50": 8, "p90": 9, "p99": 9, "max": 9}
    assert plain["output_tokens"] is None
    assert plain["windows"][1]["requests"] == 0
    assert plain["windows"][1]["entropy_bits"] is None


def test_twitter_trace_has_its_published_numbers(shared_traces: Path) -> None:
    report = analyse(load_trace(shared_traces / "kv" / "twitter_cluster52.part1.csv.zst"))
    assert report.requests == 5_936_997
    assert report.unique_keys == 595_016
    assert report.span_seconds == 3_175
    assert report.rereference_ratio == pytest.approx(0.900, abs=0.0005)
    assert report.footprint_bytes == pytest.approx(118e6, rel=0.005)
    assert report.size_bytes is not None
    assert report.size_bytes.quantiles.p50 == 54
    assert report.size_bytes.quantiles.max == 4_985
