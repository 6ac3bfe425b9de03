"""Synthetic workloads: exact structure, statistics with fixed seeds, parts that do not disturb each other."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import chisquare, kstest

from caches.errors import InputError
from traces.per_key import per_key_lognormal, per_key_uniform
from traces.store import trace_sha256
from traces.synthetic.arrivals import poisson_times, rate_rps
from traces.synthetic.catalogue import drifting_keys, zipf_ranks
from traces.synthetic.config import load_workload
from traces.synthetic.draw import Draw, block_chains
from traces.synthetic.generate import synthesise
from traces.synthetic.parts import (
    Drift,
    FlashCrowd,
    Launch,
    Popularity,
    Rate,
    Scan,
    Sessions,
    Sizes,
    SyntheticWorkload,
    Tokens,
)
from traces.synthetic.sessions import session_requests
from traces.trace import Trace

HOUR = 3600.0
STEADY = Rate(mean_rps=0.5, daily_amplitude=0, weekend_factor=1)
SMALL = SyntheticWorkload(days=1, rate=STEADY, popularity=Popularity(num_keys=500, alpha=0.8))
EVERYTHING = replace(
    SMALL,
    drift=Drift(0.3),
    launches=(Launch(13),),
    flash_crowds=(FlashCrowd(5, 1, num_keys=7, multiplier=4),),
    scans=(Scan(8, 0.5, rps=1),),
    sessions=Sessions(share=0.4, num_openings=5),
)


def rows(trace: Trace) -> set[tuple[float, int, int, int]]:
    """Requests as values, without the numbering of keys, which depends on all of them."""
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    columns = (trace.arrival_seconds, trace.size_bytes, trace.prompt_tokens, trace.output_tokens)
    return set(zip(*(column.tolist() for column in columns), strict=True))


def test_same_seed_same_trace_other_seed_another() -> None:
    assert trace_sha256(synthesise(EVERYTHING, 1)) == trace_sha256(synthesise(EVERYTHING, 1))
    assert trace_sha256(synthesise(EVERYTHING, 1)) != trace_sha256(synthesise(EVERYTHING, 2))


def test_columns_keep_the_promises_of_a_trace() -> None:
    trace = synthesise(EVERYTHING, 1)
    assert np.all(np.diff(trace.arrival_seconds) >= 0)
    assert trace.arrival_seconds[0] >= 0
    assert trace.arrival_seconds[-1] < 86_400
    assert np.array_equal(np.unique(trace.key), np.arange(trace.num_keys))
    assert trace.size_bytes.min() >= 1
    assert trace.block_offsets is not None
    assert trace.block_hashes is not None
    assert len(trace.block_offsets) == len(trace) + 1
    assert trace.block_offsets[-1] == len(trace.block_hashes)
    assert trace.block_hashes.min() >= 0


def test_metadata_says_that_all_is_synthetic_and_names_the_seed() -> None:
    info = synthesise(EVERYTHING, 11).info
    assert info.assumptions[0] == "Synthetic: every request was drawn (seed 11), none recorded."
    assert not info.composed
    told = " ".join(info.assumptions)
    for word in (
        "Zipf",
        "drifts",
        "launch at hour 13",
        "flash crowd at hour 5",
        "scan at hour 8",
        "sessions",
    ):
        assert word in told


def test_zipf_exponent_is_recovered_by_maximum_likelihood() -> None:
    ranks = zipf_ranks(200_000, 1_000, 0.9, np.random.default_rng(4)) + 1
    every = np.arange(1, 1_001.0)
    mean_log = np.log(ranks).mean()
    fit = minimize_scalar(lambda a: a * mean_log + np.log((every**-a).sum()), bounds=(0.1, 2), method="bounded")
    # The standard error is 1 / sqrt(n Var(log rank)), about 0.0013 here.
    assert fit.x == pytest.approx(0.9, abs=0.005)


def test_rank_shares_are_those_of_the_formula() -> None:
    counts = np.bincount(zipf_ranks(100_000, 8, 1.2, np.random.default_rng(9)), minlength=8)
    weights = np.arange(1, 9.0) ** -1.2
    assert chisquare(counts, counts.sum() * weights / weights.sum()).pvalue > 0.01


def test_the_trace_has_the_popularity_that_was_asked_for() -> None:
    trace = synthesise(replace(SMALL, rate=replace(STEADY, mean_rps=5)), 2)
    top = np.sort(np.bincount(trace.key))[::-1][:50]
    slope = np.polyfit(np.log(np.arange(1, 51)), np.log(top), 1)[0]
    assert slope == pytest.approx(-0.8, abs=0.03)


def test_rate_over_a_week_has_the_mean_the_peak_and_the_weekend() -> None:
    rate = Rate(mean_rps=3, daily_amplitude=0.6, peak_hour=14, weekend_factor=0.5)
    minutes = np.arange(0, 7 * 86_400, 60) + 30.0
    assert rate_rps(rate, minutes).mean() == pytest.approx(3, rel=1e-6)
    # Weekdays have 3 * 7 / (5 + 2 * 0.5) = 3.5 on average, Saturday half of that.
    monday_peak, monday_night, saturday_peak = rate_rps(rate, np.array([14, 2, 5 * 24 + 14]) * HOUR)
    assert monday_peak == pytest.approx(3.5 * 1.6)
    assert monday_night == pytest.approx(3.5 * 0.4)
    assert saturday_peak == pytest.approx(3.5 * 0.5 * 1.6)


def test_arrivals_follow_the_rate() -> None:
    rate = Rate(mean_rps=0.5, daily_amplitude=0.8, peak_hour=15, weekend_factor=0.4)
    times = poisson_times(rate, 1.0, 0, 7 * 86_400, np.random.default_rng(6))
    expected = 0.5 * 7 * 86_400
    assert len(times) == pytest.approx(expected, abs=4 * np.sqrt(expected))
    per_hour = np.bincount((times // HOUR).astype(int), minlength=168)
    seconds = np.arange(0, 7 * 86_400, 60) + 30.0
    means = rate_rps(rate, seconds).reshape(168, 60).mean(axis=1)
    assert chisquare(per_hour, means / means.sum() * len(times)).pvalue > 0.01


def test_pauses_between_steady_arrivals_are_exponential() -> None:
    times = poisson_times(STEADY, 1.0, 0, 86_400, np.random.default_rng(1))
    assert kstest(np.diff(times) * 0.5, "expon").pvalue > 0.01


def test_drift_gives_the_stated_share_of_ranks_another_key_each_step() -> None:
    # 0.1 per hour of 600 ranks are 10 ranks in each step of ten minutes.
    ranks = np.tile(np.arange(600), 4)
    times = np.repeat([0.0, 600.0, 1_200.0, 1_800.0], 600)
    keys = drifting_keys(ranks, times, 600, Drift(0.1), np.random.default_rng(0)).reshape(4, 600)
    assert np.array_equal(keys[0], np.arange(600))
    for before, after in pairwise(keys):
        assert (before != after).sum() == 10
        assert np.array_equal(np.sort(after), np.arange(600))


def test_slow_drift_of_a_small_catalogue_still_happens() -> None:
    # 0.3 per hour of 10 ranks: half a rank per step, so one swap of two every four steps.
    ranks, times = np.tile(np.arange(10), 9), np.repeat(np.arange(9) * 600.0, 10)
    keys = drifting_keys(ranks, times, 10, Drift(0.3), np.random.default_rng(0)).reshape(9, 10)
    assert (np.diff(keys, axis=0) != 0).sum(axis=1).tolist() == [0, 0, 0, 2, 0, 0, 0, 2]


def test_a_launch_makes_every_key_new_but_leaves_prompts_as_they_are() -> None:
    trace = synthesise(replace(EVERYTHING, drift=None, sessions=None), 3)
    assert trace.prompt_tokens is not None
    late = trace.arrival_seconds >= 13 * HOUR
    assert not set(trace.key[late]) & set(trace.key[~late])
    top = [np.bincount(trace.key[side]).argmax() for side in (late, ~late)]
    lengths = [set(trace.prompt_tokens[trace.key == key]) for key in top]
    assert lengths[0] == lengths[1]
    assert len(lengths[0]) == 1


def test_a_launch_also_ends_the_blocks_of_running_sessions() -> None:
    trace = synthesise(replace(EVERYTHING, sessions=Sessions(share=1, think_time_seconds=900)), 3)
    assert trace.block_offsets is not None
    assert trace.block_hashes is not None
    late = trace.arrival_seconds >= 13 * HOUR
    of_block = np.repeat(late, np.diff(trace.block_offsets))
    assert not set(trace.block_hashes[of_block]) & set(trace.block_hashes[~of_block])


def test_a_flash_crowd_multiplies_traffic_with_its_own_keys() -> None:
    quiet, loud = synthesise(SMALL, 5), synthesise(replace(SMALL, flash_crowds=EVERYTHING.flash_crowds), 5)
    during = (loud.arrival_seconds >= 5 * HOUR) & (loud.arrival_seconds < 6 * HOUR)
    surplus = len(loud) - len(quiet)
    # Three times 0.5 requests/s for an hour on top.
    assert surplus == pytest.approx(5_400, abs=4 * np.sqrt(5_400))
    assert loud.num_keys - quiet.num_keys == 7
    outside = set(loud.key[~during])
    assert sum(key not in outside for key in set(loud.key[during])) >= 7


def test_scanned_keys_come_once() -> None:
    quiet, loud = synthesise(SMALL, 5), synthesise(replace(SMALL, scans=EVERYTHING.scans), 5)
    surplus = len(loud) - len(quiet)
    assert surplus == pytest.approx(1_800, abs=4 * np.sqrt(1_800))
    assert loud.num_keys - quiet.num_keys == surplus


@pytest.mark.parametrize("part", ["flash_crowds", "scans"])
def test_adding_an_event_leaves_all_other_requests_as_they_were(part: str) -> None:
    added = replace(SMALL, **{part: getattr(EVERYTHING, part)})
    assert rows(synthesise(SMALL, 8)) < rows(synthesise(added, 8))


def test_events_do_not_depend_on_each_other() -> None:
    both = rows(synthesise(replace(SMALL, flash_crowds=EVERYTHING.flash_crowds, scans=EVERYTHING.scans), 8))
    for part in ("flash_crowds", "scans"):
        assert rows(synthesise(replace(SMALL, **{part: getattr(EVERYTHING, part)}), 8)) < both


def test_sessions_replace_a_share_of_the_catalogue_and_leave_the_rest() -> None:
    before = synthesise(SMALL, 8)
    after = synthesise(replace(SMALL, sessions=Sessions(share=0.25)), 8)
    kept = len(rows(before) & rows(after))
    assert kept / len(before) == pytest.approx(0.75, abs=0.01)
    # Cut at the end and clustered in sessions, so noisier than a Poisson number.
    assert len(after) == pytest.approx(len(before), rel=0.04)


def test_drift_changes_keys_and_not_arrivals() -> None:
    still, moving = synthesise(SMALL, 8), synthesise(replace(SMALL, drift=Drift(0.3)), 8)
    assert np.array_equal(still.arrival_seconds, moving.arrival_seconds)
    assert not np.array_equal(still.key, moving.key)


def sessions_only(sessions: Sessions, seed: int = 3) -> tuple[Draw, list[list[int]]]:
    """Requests in order of arrival, and their chains of blocks."""
    draw = session_requests(SMALL, sessions, np.empty(0), seed)
    draw = draw.take(np.argsort(draw.arrival_seconds, kind="stable"))
    offsets, blocks = block_chains(draw, sessions.block_size_tokens)
    return draw, [blocks[a:b].tolist() for a, b in pairwise(offsets)]


@pytest.mark.parametrize("num_openings", [0, 4])
def test_each_turn_is_a_new_key_whose_blocks_extend_the_turn_before(num_openings: int) -> None:
    draw, chains = sessions_only(Sessions(share=1, num_openings=num_openings, retry_probability=0.2))
    last: dict[int, tuple[int, list[int]]] = {}
    repeats = 0
    for conversation, key, chain in zip(draw.conversation_id.tolist(), draw.key_id.tolist(), chains, strict=True):
        if conversation in last:
            key_before, chain_before = last[conversation]
            assert chain[: len(chain_before)] == chain_before
            assert (key == key_before) <= (chain == chain_before)
            repeats += key == key_before
        last[conversation] = (key, chain)
    # A fifth of the turns are sent twice, so a sixth of the requests repeat the one before.
    assert repeats / len(chains) == pytest.approx(1 / 6, abs=0.01)


def test_sessions_share_blocks_through_their_opening_alone() -> None:
    _, own = sessions_only(Sessions(share=1, num_openings=0, retry_probability=0, mean_turns=1))
    flat = [block for chain in own for block in chain]
    assert len(set(flat)) == len(flat)
    draw, shared = sessions_only(Sessions(share=1, num_openings=4, retry_probability=0, mean_turns=1))
    assert len(set(draw.key_id.tolist())) == 4
    assert len({tuple(chain) for chain in shared}) == 4


def test_number_of_turns_and_pauses_have_the_stated_means() -> None:
    sessions = Sessions(share=1, mean_turns=3, retry_probability=0, think_time_seconds=20)
    draw, _ = sessions_only(sessions)
    by_session = np.lexsort((draw.arrival_seconds, draw.conversation_id))
    ids, times = draw.conversation_id[by_session], draw.arrival_seconds[by_session]
    inside = ids[1:] == ids[:-1]
    assert len(ids) / len(np.unique(ids)) == pytest.approx(3, rel=0.03)
    assert np.diff(times)[inside].mean() == pytest.approx(20, rel=0.03)


def test_prompts_of_a_session_hold_all_earlier_text() -> None:
    # Without spread every turn adds 100 tokens and every answer 40: turn n has 100 + 140 (n - 1).
    workload = replace(SMALL, tokens=Tokens(100, 0, 40, 0))
    draw = session_requests(workload, Sessions(share=1, retry_probability=0), np.empty(0), 1)
    order = np.lexsort((draw.arrival_seconds, draw.conversation_id))
    ids, lengths = draw.conversation_id[order], draw.prompt_tokens[order]
    first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    turn = np.arange(len(ids)) - np.repeat(first, np.diff(np.append(first, len(ids))))
    assert np.array_equal(lengths, 100 + 140 * turn)


def test_sizes_and_tokens_belong_to_the_key() -> None:
    trace = synthesise(EVERYTHING, 6)
    for column in (trace.size_bytes, trace.prompt_tokens, trace.output_tokens):
        assert column is not None
        of_key = np.zeros(trace.num_keys, dtype=np.int64)
        of_key[trace.key] = column
        assert np.array_equal(of_key[trace.key], column)


def test_sizes_over_keys_are_lognormal() -> None:
    sizes = per_key_lognormal(np.arange(200_000), 2_000, 0.7, seed=1, stream=7)
    assert np.median(sizes) == pytest.approx(2_000, rel=0.01)
    assert np.log(sizes).std() == pytest.approx(0.7, rel=0.01)
    assert kstest(per_key_uniform(np.arange(20_000), 1, 7), "uniform").pvalue > 0.01
    streams = [per_key_uniform(np.arange(20_000), 1, stream) for stream in (7, 8)]
    assert abs(np.corrcoef(*streams)[0, 1]) < 0.03


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (lambda: Popularity(num_keys=0), r"^popularity\.num_keys: got 0, expected 1 to"),
        (lambda: Popularity(alpha=float("nan")), r"^popularity\.alpha: got nan"),
        (lambda: Rate(mean_rps=0), r"^rate\.mean_rps: got 0"),
        (lambda: Rate(mean_rps=float("inf")), r"^rate\.mean_rps: got inf"),
        (lambda: Rate(daily_amplitude=1.5), r"^rate\.daily_amplitude: got 1\.5, expected 0 to 1"),
        (lambda: Drift(-1), r"^drift\.reshuffled_per_hour: got -1"),
        (lambda: FlashCrowd(1, multiplier=0.5), r"^flash_crowds\.multiplier: got 0\.5"),
        (lambda: Scan(1, rps=-2), r"^scans\.rps: got -2"),
        (lambda: Sessions(mean_turns=0.5), r"^sessions\.mean_turns: got 0\.5"),
        (lambda: Sizes(median_bytes=0), r"^sizes\.median_bytes: got 0"),
        (lambda: Tokens(output_sigma=9), r"^tokens\.output_sigma: got 9"),
        (
            lambda: replace(SMALL, launches=(Launch(24),)),
            r"^launches\.at_hours: got 24, expected before .* 24$",
        ),
        (lambda: replace(SMALL, days=0), r"^workload\.days: got 0"),
        (lambda: SyntheticWorkload(rate=Rate(1e6)), r"^workload: got about 604,800,000,000 requests"),
        (lambda: synthesise(SMALL, -1), r"^seed: got -1"),
        (lambda: synthesise(replace(SMALL, rate=Rate(1e-9)), 1), r"got no requests"),
    ],
)
def test_bad_numbers_are_refused_by_name(part: object, message: str) -> None:
    assert callable(part)
    with pytest.raises(InputError, match=message):
        part()


def test_workload_from_a_file_and_settings(tmp_path: Path) -> None:
    path = tmp_path / "workload.toml"
    path.write_text(
        "days = 2\n[popularity]\nnum_keys = 10\nalpha = 1\n[[launches]]\nat_hours = 5\n[[launches]]\nat_hours = 9\n"
    )
    assert load_workload(None) == SyntheticWorkload()
    loaded = load_workload(path, ["popularity.alpha = 1.5", "drift = {}"])
    assert loaded == SyntheticWorkload(
        days=2, popularity=Popularity(10, 1.5), drift=Drift(), launches=(Launch(5), Launch(9))
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dayz = 3", "got the unknown name dayz, expected days"),
        ("[popularity]\nalpa = 1", "got the unknown name popularity.alpa, expected popularity.alpha"),
        ("[[scans]]\nat_hour = 1", "got the unknown name scans.at_hour, expected scans.at_hours"),
        ("[sizes]\nzzz = 1", "got the unknown name sizes.zzz, expected one of median_bytes, sigma"),
        ("[popularity]\nnum_keys = 1.5", "popularity.num_keys: got 1.5, expected a valid integer"),
        ("[popularity]\nnum_keys = true", "popularity.num_keys: got True, expected a valid integer"),
        ("days = '3'", "days: got '3', expected a valid number"),
        ("days = nan", "workload.days: got nan, expected above 0 to 3,660"),
        ("rate = 3", "rate: got 3, expected an object"),
        ("[[launches]]", "got no launches.0.at_hours"),
        ("[rate]\nmean_rps = 0", "rate.mean_rps: got 0"),
        ("days =", "expected a TOML file"),
    ],
)
def test_a_bad_file_is_refused_by_file_and_name(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "workload.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_workload(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_a_missing_file_and_a_bad_setting_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: got no such file"):
        load_workload(tmp_path / "none.toml")
    with pytest.raises(InputError, match=r"^setting 'rate': got .* expected TOML such as"):
        load_workload(None, ["rate"])
    with pytest.raises(InputError, match=r"^setting 'rate.mean=1': got the unknown name rate.mean, expected"):
        load_workload(None, ["rate.mean=1"])
