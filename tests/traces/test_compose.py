"""Composed traces: exact on tiny tables, statistical with fixed seeds, once on real files."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest, kstest

from caches.errors import InputError
from tests.traces.tiny import tiny_trace
from traces.catalog import load_trace
from traces.compose import Arrivals, Span, Volume, compose
from traces.reader import ReadOptions
from traces.servegen import (
    ArrivalRates,
    Lognormal,
    TokenLengths,
    fit_lengths,
    read_lengths,
    read_rates,
)
from traces.store import trace_sha256
from traces.trace import Trace, TraceInfo

WINDOW_DAYS = 600 / 86_400


def rates_of(*rows: tuple[int, int, float]) -> ArrivalRates:
    """From (window, client, requests per second)."""
    window, client, rps = zip(*rows, strict=True)
    return ArrivalRates("rates.csv", np.array(window), np.array(client), np.array(rps, dtype=np.float64))


def lengths_of(*rows: tuple[int, int, float, float, float, float]) -> TokenLengths:
    """From (window of six hours, client, prompt p50, prompt p95, output p50, output p95)."""
    table = np.array(rows, dtype=np.float64)
    return TokenLengths("lengths.csv", table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2:])


# 3 requests/s in the first ten minutes, none in the second, 1 in the third.
RATES = rates_of((0, 4, 1.0), (0, 9, 2.0), (2, 9, 1.0))


def many_keys(requests: int = 4_000, **columns: object) -> Trace:
    rng = np.random.default_rng(12)
    keys = rng.integers(200, size=requests)
    info = TraceInfo("keys", "a recorded service", licence="CC0", assumptions=("Sizes are rounded.",))
    seconds = np.arange(requests) * 60 / requests
    return tiny_trace(keys.tolist(), seconds.tolist(), (keys + 10).tolist(), **{"info": info, **columns})


def test_expected_requests_add_up_the_clients_of_a_window() -> None:
    assert RATES.expected_requests(0, 3).tolist() == [1_800, 0, 600]
    assert RATES.expected_requests(1, 3).tolist() == [0, 600]
    assert RATES.days == pytest.approx(1_800 / 86_400)


def test_times_follow_the_rates_and_their_number_is_exact() -> None:
    trace = compose(Arrivals(RATES), many_keys(), seed=1)
    assert len(trace) == 4_000
    assert np.all(np.diff(trace.arrival_seconds) >= 0)
    first, second, third = np.histogram(trace.arrival_seconds, [0, 600, 1_200, 1_800])[0]
    assert second == 0
    assert binomtest(int(first), int(first + third), 0.75).pvalue > 0.01
    inside = trace.arrival_seconds[trace.arrival_seconds < 600] / 600
    assert kstest(inside, "uniform").pvalue > 0.01


def test_keys_and_sizes_come_in_their_order() -> None:
    keys = many_keys()
    trace = compose(Arrivals(RATES, volume=Volume(requests=1_000)), keys, seed=1)
    assert len(trace) == 1_000
    assert np.array_equal(trace.size_bytes, keys.size_bytes[:1_000])
    # Numbered anew by first appearance, one number for one old key: sizes here are the old number plus 10.
    assert np.array_equal(np.unique(trace.key), np.arange(trace.num_keys))
    assert trace.key[0] == 0
    pairs = set(zip(trace.key.tolist(), keys.key[:1_000].tolist(), strict=True))
    assert len(pairs) == trace.num_keys == len(np.unique(keys.key[:1_000]))


def test_other_columns_of_the_key_source_are_kept() -> None:
    ttl = np.linspace(1, 9, 4_000).astype(np.float32)
    offsets, blocks = np.arange(4_001) * 2, np.arange(8_000)
    keys = many_keys(ttl_seconds=ttl, block_offsets=offsets, block_hashes=blocks)
    trace = compose(Arrivals(RATES, volume=Volume(requests=10)), keys, seed=1)
    assert trace.ttl_seconds is not None
    assert trace.block_offsets is not None
    assert trace.block_hashes is not None
    assert np.array_equal(trace.ttl_seconds, ttl[:10])
    assert np.array_equal(trace.block_offsets, offsets[:11])
    assert np.array_equal(trace.block_hashes, blocks[:20])
    assert trace.prompt_tokens is None


def test_metadata_marks_the_composition_and_every_modelled_part() -> None:
    arrivals = Arrivals(RATES, volume=Volume(requests=1_200), lengths=lengths_of((0, 9, 100, 200, 10, 30)))
    info = compose(arrivals, many_keys(), seed=77).info
    assert info.composed
    assert info.licence == "rates Apache-2.0; keys CC0"
    assert "rates.csv" in info.source
    assert "a recorded service" in info.source
    told = " ".join(info.assumptions)
    # 1,200 requests of 2,400 expected; 60 s of keys; client 9 sends 1,800 of the 2,400.
    for words in (
        "seed 77",
        "multiplied by 0.5,",
        "Poisson",
        "stretched over",
        "known for 75%",
        "lengths.csv",
    ):
        assert words in told
    assert info.assumptions[-1] == "Sizes are rounded."


def test_same_seed_same_trace_and_lengths_do_not_move_arrivals() -> None:
    plain, again, other = (compose(Arrivals(RATES), many_keys(), seed=seed) for seed in (1, 1, 2))
    assert trace_sha256(plain) == trace_sha256(again)
    assert trace_sha256(plain) != trace_sha256(other)
    arrivals = Arrivals(RATES, lengths=lengths_of((0, 9, 100, 200, 10, 30)))
    assert np.array_equal(compose(arrivals, many_keys(), seed=1).arrival_seconds, plain.arrival_seconds)


def test_tokens_belong_to_the_key_and_do_not_depend_on_how_many_requests_follow() -> None:
    lengths = lengths_of((0, 9, 1_000, 4_000, 100, 300))
    whole = compose(Arrivals(RATES, lengths=lengths), many_keys(), seed=5)
    part = compose(Arrivals(RATES, volume=Volume(requests=50), lengths=lengths), many_keys(), seed=5)
    for name, highest in (("prompt_tokens", 4_000), ("output_tokens", 300)):
        column = getattr(whole, name)
        assert 1 <= column.min() < column.max() <= highest
        assert np.array_equal(getattr(part, name), column[:50])
        assert all(len(np.unique(column[whole.key == key])) == 1 for key in range(whole.num_keys))


def test_one_client_is_fitted_exactly() -> None:
    # The 95th percentile of a lognormal lies 1.644854 sigma above the median in the logarithm.
    p95 = 100 * math.exp(1.6448536269514722 * 0.5)
    fit = fit_lengths(lengths_of((0, 9, 100, p95, 20, 20)), RATES, 0, 3)
    assert fit.prompt.median == pytest.approx(100)
    assert fit.prompt.sigma == pytest.approx(0.5)
    assert fit.prompt.highest == p95
    assert fit.output == Lognormal(pytest.approx(20), pytest.approx(0), 20)
    assert fit.known_share == pytest.approx(0.75)


def test_clients_are_mixed_by_their_requests() -> None:
    # Client 4 sends 1 of 4, client 9 the rest: mu = (ln 10 + 3 ln 1000) / 4 = ln 316.23, and between two
    # points a factor 100 apart sigma = ln 100 * sqrt(1/4 * 3/4).
    fit = fit_lengths(lengths_of((0, 4, 10, 10, 5, 5), (0, 9, 1_000, 1_000, 5, 5)), RATES, 0, 3)
    assert fit.prompt.median == pytest.approx(10**2.5)
    assert fit.prompt.sigma == pytest.approx(math.log(100) * math.sqrt(3) / 4)
    assert fit.known_share == pytest.approx(1)


def test_only_the_chosen_days_count() -> None:
    rates = rates_of(*[(w, 1, 1.0 if w < 144 else 3.0) for w in range(288)])
    one = compose(Arrivals(rates, Span(days=1, start_day=1)), many_keys(), seed=1)
    assert one.arrival_seconds[-1] < 86_400
    assert "days 1 to 2" in one.info.source
    # 3 requests/s for a day are 259,200 expected for the 4,000 there are.
    assert any(f"multiplied by {4_000 / 259_200:.6g}," in line for line in one.info.assumptions)


def test_rate_scale_gives_that_many_requests_on_average() -> None:
    counts = [len(compose(Arrivals(RATES, volume=Volume(rate_scale=0.5)), many_keys(), seed)) for seed in range(40)]
    # 40 Poisson numbers with mean 1,200: the mean has a standard deviation of 5.5.
    assert np.mean(counts) == pytest.approx(1_200, abs=22)
    assert len(set(counts)) > 10


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        (Arrivals(RATES, volume=Volume(requests=4_001)), r"^requests: got 4,001, expected at most 4,000"),
        (Arrivals(RATES, volume=Volume(rate_scale=2)), r"^rate_scale: got 2, .* expected at most 1\.67"),
        (Arrivals(RATES, Span(days=1)), r"^days: got 1, expected above 0 to 0\.0208333"),
        (Arrivals(RATES, Span(days=0)), r"^days: got 0"),
        (Arrivals(RATES, Span(start_day=3)), r"^start_day: got 3"),
        (Arrivals(RATES, Span(WINDOW_DAYS, WINDOW_DAYS)), r"^rates\.csv: got no traffic in these days"),
        (
            Arrivals(RATES, lengths=lengths_of((0, 5, 1, 1, 1, 1))),
            r"^lengths\.csv: got no client of rates\.csv",
        ),
    ],
)
def test_impossible_compositions_are_refused(arrivals: Arrivals, message: str) -> None:
    with pytest.raises(InputError, match=message):
        compose(arrivals, many_keys(), seed=1)


@pytest.mark.parametrize(
    ("requests", "rate_scale", "message"),
    [
        (0, None, "requests: got 0"),
        (None, 0.0, "rate_scale: got 0"),
        (None, math.nan, "got nan"),
        (5, 1.0, "both"),
    ],
)
def test_impossible_volumes_are_refused(requests: int | None, rate_scale: float | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Volume(requests, rate_scale)


def test_rates_and_lengths_are_read_from_gzip(tmp_path: Path) -> None:
    rates, lengths = tmp_path / "r.csv.gz", tmp_path / "l.csv.gz"
    rates.write_bytes(gzip.compress(b"t_s,client,rate_rps,cv\n0,4,1,1\n0,9,2,1\n1200,9,1,1\n"))
    lengths.write_bytes(gzip.compress(b"client,t_s,in_mean,in_p50,in_p95,out_p50,out_p95\n9,21600,1,2,3,4,5\n"))
    read = read_rates(rates)
    assert read.name == "r.csv"
    assert read.expected_requests(0, 3).tolist() == [1_800, 0, 600]
    table = read_lengths(lengths)
    assert (table.window.tolist(), table.client.tolist()) == ([1], [9])
    assert table.quantiles.tolist() == [[2, 3, 4, 5]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t_s,client\n0,1\n", "line 1, header: got 't_s,client', expected a column 'rate_rps'"),
        (
            "t_s,client,rate_rps\n0,1,2\n600,1,-3\n",
            "line 3, rate_rps: got '-3', expected a finite number from 0",
        ),
        ("t_s,client,rate_rps\n0,1,nan\n", "line 2, rate_rps: got 'nan'"),
        ("t_s,client,rate_rps\n0,1,x\n", "line 2, rate_rps: got 'x'"),
        ("t_s,client,rate_rps\n300,1,2\n", "line 2, t_s: got '300', expected a multiple of 600"),
        ("t_s,client,rate_rps\n0,-1,2\n", "line 2, client: got '-1'"),
        ("t_s,client,rate_rps\n", "got no records"),
        ("", "got no records"),
    ],
)
def test_bad_rates_are_refused_by_line_and_column(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_rates(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_bad_lengths_are_refused_by_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    header = "t_s,client,in_p50,in_p95,out_p50,out_p95\n"
    for row, message in (
        ("0,1,0,5,1,1", r"line 2, in_p50: got '0', expected a finite number from 1 on"),
        ("0,1,5,4,1,1", r"line 2, in_p95: got '4', expected a number from the p50 on"),
        ("600,1,1,1,1,1", r"line 2, t_s: got '600', expected a multiple of 21600"),
    ):
        path.write_text(header + row + "\n")
        with pytest.raises(InputError, match=message):
            read_lengths(path)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv.gz"
    path.write_bytes(gzip.compress(b"t_s,client,rate_rps\n" + b"0,1,2\n" * 99)[:-12])
    with pytest.raises(InputError, match=r"rates\.csv\.gz"):
        read_rates(path)


def test_two_weeks_of_recorded_rates_with_recorded_keys(shared_traces: Path) -> None:
    rates = read_rates(shared_traces / "llm" / "servegen_m-small_rates.csv.gz")
    lengths = read_lengths(shared_traces / "llm" / "servegen_m-small_lengths.csv.gz")
    keys = load_trace(shared_traces / "kv" / "twitter_cluster52.part1.csv.zst", options=ReadOptions(limit=200_000))
    trace = compose(Arrivals(rates, Span(days=14), lengths=lengths), keys, seed=1)
    assert len(trace) == 200_000
    assert trace.span_seconds > 13.9 * 86_400
    per_hour = np.bincount((trace.arrival_seconds // 3_600).astype(int), minlength=14 * 24)
    expected = rates.expected_requests(0, 14 * 144).reshape(-1, 6).sum(axis=1)
    assert np.corrcoef(per_hour, expected)[0, 1] > 0.99
    hours = per_hour.reshape(14, 24).sum(axis=0)
    assert (hours.argmin(), hours.argmax()) == (3, 20)
