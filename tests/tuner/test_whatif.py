"""A what-if: its surface in money against full replays, the choice against all settings, and what it is asked."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.uncertainty import Resampling
from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.stats import Expiry
from envs.interval import column, total_usd, unsafe
from envs.reward import Constraints
from envs.world import World
from tests.envs.worlds import KNOBS, problem, random_trace
from tests.traces.tiny import tiny_trace
from traces.whatif import Sampling
from tuner.config import TunerConfig, load_tuner_config
from tuner.whatif import Ask, what_if
from tuner.whatif_current import Place, Wish, parse_wish, settle
from tuner.whatif_pricing import Choice, Pricer, cheapest
from tuner.whatif_result import WhatIf, knee_of
from tuner.whatif_surface import Cells, axis_of, response_cells
from tuner.whatif_text import behaviour, causes, comparison, sentences, surface_table

WHOLE = slice(None)
CURRENT = KnobSettings(500.0, 50.0, 0.0)


def cells_of(world: World, warmup_ratio: float = 0.0, sampling: Sampling | None = None) -> Cells:
    axes = (axis_of(world.problem.knobs.cache_size, 4), axis_of(world.problem.knobs.ttl_seconds, 3))
    return response_cells(world, axes, warmup_ratio, sampling)


def config_of(**sections: Any) -> TunerConfig:
    overrides: dict[str, object] = {"trace.interval_seconds": 10.0, "knobs.ttl_seconds.high": 1000.0, "run.workers": 1}
    overrides["knobs.ttl_seconds.default"] = 100.0
    return load_tuner_config(None, Path("nowhere"), {}, overrides | sections)


@pytest.mark.parametrize("expiry", Expiry)
@pytest.mark.parametrize(("plain", "warmup_ratio"), [(True, 0.0), (False, 0.0), (True, 0.5), (False, 1.0)])
def test_the_surface_is_what_full_replays_cost_without_slow_requests(
    plain: bool, warmup_ratio: float, expiry: Expiry
) -> None:
    world = World(problem(random_trace(1, intervals=20, plain=plain), expiry=expiry))
    cells = cells_of(world, warmup_ratio)
    rows = world.replay_static(cells.grid.settings, len(world))
    expected = total_usd(rows) - column(rows, "slow_usd")
    np.testing.assert_allclose(cells.grid.usd, expected, rtol=1e-6)
    np.testing.assert_array_equal(cells.hits[0].reshape(12, -1), column(rows, "hits"))
    np.testing.assert_array_equal(cells.reads, column(rows, "requests")[0])
    stale = np.nan_to_num(column(rows, "stale_ratio")) > world.problem.constraints.stale_ratio
    np.testing.assert_array_equal(cells.grid.stale, stale)
    assert (cells.bound is None) == (warmup_ratio > 0)
    if cells.bound is not None:
        assert (cells.bound.values >= cells.hit_ratio.values).all()


def brute_force(world: World, settings: list[KnobSettings], span: slice) -> Choice:
    rows = world.replay_static(settings, len(world))[:, span]
    usd, broken = total_usd(rows).sum(axis=1), 1000.0 * unsafe(rows, world.problem.constraints).mean(axis=1)
    safe = broken <= world.problem.constraints.max_unsafe_per_1000
    best = min(range(len(settings)), key=lambda i: (0.0 if safe.any() else broken[i], not safe[i], usd[i]))
    return Choice(settings[best], bool(safe.any()), True)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(p99_ttft_seconds=1.0005, stale_ratio=0.2, max_unsafe_per_1000=400),
        Constraints(p99_ttft_seconds=1e6, stale_ratio=0.1, max_unsafe_per_1000=100),
        Constraints(p99_ttft_seconds=0.001, stale_ratio=0.2),
    ],
    ids=["slow", "stale", "never safe"],
)
@pytest.mark.parametrize("span", [WHOLE, slice(10)], ids=["whole", "first half"])
def test_the_choice_is_the_cheapest_safe_of_all(seed: int, constraints: Constraints, span: slice) -> None:
    world = World(replace(problem(random_trace(seed, intervals=20)), constraints=constraints))
    cells = cells_of(world)
    found = cheapest(Pricer(world), cells.grid, CURRENT, span)
    expected = brute_force(world, [CURRENT, *cells.grid.settings], span)
    assert found.safe == expected.safe
    if found.safe:
        assert found == expected


def test_few_settings_have_to_be_priced_in_full() -> None:
    world = World(replace(problem(random_trace(0, 20)), constraints=Constraints(p99_ttft_seconds=1e6, stale_ratio=1.0)))
    axes = (axis_of(KNOBS.cache_size, 16), axis_of(KNOBS.ttl_seconds, 8))
    grid = response_cells(world, axes, 0.0, None).grid
    pricer = Pricer(world)
    assert cheapest(pricer, grid, CURRENT, WHOLE).proven
    assert len(pricer.rows) <= 17  # the current one and at most two batches of 128


def test_without_a_safe_setting_the_least_unsafe_is_named() -> None:
    trace = random_trace(2, 20)
    result = what_if(config_of(**{"constraints.p99_ttft_seconds": 1e-6}), trace, Ask(sizes=3, ttls=3))
    assert not result.best.safe
    assert result.best.unsafe_per_1000 <= result.current.unsafe_per_1000
    assert any("No setting that was tried keeps the constraints" in sentence for sentence in sentences(result))


def test_a_trace_whose_best_lifetime_is_known() -> None:
    """Every key comes back after 60 s, once, and answers last for ever: a lifetime above 60 s turns half of the
    requests into hits, and what is longer or larger costs no less."""
    result = round_trip(Wish(ttl_seconds=20.0))
    assert result.current.hit_ratio == 0.0
    assert result.best.hit_ratio == pytest.approx(0.5, abs=0.02)
    assert result.best.settings.ttl_seconds > 60.0
    assert result.saving.over_time is not None
    percent = result.saving.over_time.percent
    assert percent is not None
    assert percent.mean == pytest.approx(result.saving.percent)
    assert percent.low <= percent.mean <= percent.high
    assert result.held_out is not None
    assert result.held_out.saving.usd_per_day > 0
    assert result.subject.current_given
    assert not result.stays
    text = " ".join(sentences(result))
    assert "TTL 20 s) costs" in text
    assert "Chosen on the first half of the trace alone" in text


def round_trip(wish: Wish, **changes: Any) -> WhatIf:
    key = np.arange(3000)
    pairs = [(t, k) for k in key for t in (float(k), float(k) + 60.0)]
    pairs.sort()
    trace = tiny_trace([k for _, k in pairs], [t for t, _ in pairs], [1000] * len(pairs))
    config = config_of(**{"prices.answer_lifetime_seconds": 1e12, "constraints.p99_ttft_seconds": 100.0})
    return what_if(config, trace, Ask(wish, 4, 5, **changes))


def test_the_current_setting_is_kept_where_nothing_is_cheaper() -> None:
    best = round_trip(Wish()).best.settings
    result = round_trip(Wish(best.cache_size, None, best.ttl_seconds, 0.0))
    assert result.stays
    assert result.saving.usd_per_day == 0.0
    assert len(comparison(result).rows) == 1
    assert "keep it" in " ".join(sentences(result))


def test_samples_show_their_error() -> None:
    result = round_trip(Wish(), exact_up_to=100, sampling=Sampling(4, 4000))
    assert result.sampled is not None
    assert result.sampled.samples == 4
    assert result.hit_ratio.error is not None
    assert result.hit_ratio.largest_error == pytest.approx(0.0, abs=0.1)  # all keys are alike
    exact = round_trip(Wish())
    assert np.abs(exact.hit_ratio.values - result.hit_ratio.values).max() < 0.1
    assert any("4 samples of" in note for note in result.notes)
    assert not result.proven


def test_progress_names_what_is_done() -> None:
    seen: dict[str, tuple[int, int]] = {}
    config = config_of()
    what_if(config, random_trace(0), Ask(sizes=2, ttls=2), lambda what, done, total: seen.update({what: (done, total)}))
    assert seen["replaying the grid"] == (4, 4)
    assert seen["pricing settings in full"][0] >= 1


def test_tables_mark_the_cells_nearest_to_both_settings() -> None:
    result = round_trip(Wish(ttl_seconds=20.0))
    cells = [cell for row in surface_table(result, result.hit_ratio).rows for cell in row[1:]]
    assert sum("*" in cell for cell in cells) == 1
    assert sum("°" in cell for cell in cells) == 1
    for table in (comparison(result), causes(result), behaviour(result)):
        assert [row[0] for row in table.rows] == ["now", "best"]


def test_the_default_stands_for_a_current_setting_that_was_not_given() -> None:
    result = round_trip(Wish())
    assert not result.subject.current_given
    assert result.current.settings.ttl_seconds == 100.0
    assert [remark.partition(";")[0] for remark in result.subject.remarks] == [
        "No current size was given",
        "No current TTL was given",
    ]


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("size=64MiB,ttl=1h", Wish(64 * 2**20, None, 3600.0, None)),
        ("ttl=90s, size=500000, warmup=0.2", Wish(500_000.0, None, 90.0, 0.2)),
        ("size=10%,ttl=never", Wish(None, 0.1, math.inf, None)),
        ("cache_size=1.5GB,ttl_seconds=3600,warmup_ratio=20%", Wish(1.5e9, None, 3600.0, 0.2)),
        ("ttl=7d", Wish(ttl_seconds=604_800.0)),
    ],
)
def test_what_runs_now_is_read_as_people_write_it(text: str, wish: Wish) -> None:
    assert parse_wish(text) == wish
    assert not wish.empty


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("siz=3", r"--current: got 'siz=3', expected size=, ttl=, warmup= as in size=64MiB,ttl=1h"),
        ("size", r"--current: got 'size', expected"),
        ("size=", r"--current: got 'size=', expected"),
        ("size=64Mb/s", r"--current size: got '64Mb/s', expected bytes as in 64MiB"),
        ("size=0", r"--current size: got '0', expected bytes"),
        ("size=-5", r"--current size: got '-5', expected bytes"),
        ("size=0%", r"--current size: got '0%', expected bytes"),
        ("ttl=1hour", r"--current ttl: got '1hour', expected seconds as in 3600, or 90s"),
        ("ttl=0", r"--current ttl: got '0', expected seconds"),
        ("warmup=2", r"--current warmup: got '2', expected a share from 0 to 1"),
        ("ttl=1h,ttl=2h", r"--current: got ttl twice, expected it once"),
        ("size=1MiB,cache_size=10%", r"--current: got size twice, expected it once"),
        ("", r"--current: got '', expected"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_wish(text)


def test_shares_never_and_places_outside_of_the_range() -> None:
    settings, remarks = settle(parse_wish("size=10%,ttl=never"), Place(KNOBS, 50_000.0, 300.0))
    assert settings == KnobSettings(5_000.0, 600.0, 0.0)
    assert [remark[:20] for remark in remarks] == ["A TTL of never is sh", "The current ttl_seco"]
    settings, remarks = settle(parse_wish("size=1GiB,ttl=20,warmup=1"), Place(KNOBS, 50_000.0, 300.0))
    assert settings == KnobSettings(2.0**30, 20.0, 1.0)
    assert remarks == [
        "The current cache_size of 1 GiB is outside of the range 100 B to 9.77 KiB that is searched ([knobs] of the "
        "settings widens it)."
    ]


def test_the_knee_is_farthest_above_the_chord() -> None:
    # scaled, the points are (0, 0), (0.1, 0.5), (0.5, 0.9), (1, 1): 0, 0.4, 0.4, 0 above; of equals the first
    assert knee_of(np.array([0.0, 1.0, 5.0, 10.0]), np.array([0.0, 5.0, 9.0, 10.0])) == 1
    assert knee_of(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.5, 1.0])) is None  # a straight line has none
    assert knee_of(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.1, 1.0])) is None  # nor has one that bends upwards
    assert knee_of(np.array([0.0, 1.0]), np.array([0.3, 0.3])) is None


def test_a_trace_too_short_for_two_intervals_says_which_interval_would_do() -> None:
    trace = tiny_trace([0, 1, 0], [0.0, 4.0, 9.0])
    with pytest.raises(InputError, match=r"--interval: got 10 s, expected at most half of the 9 s .* --interval 0\.3"):
        what_if(config_of(), trace, Ask())
    with pytest.raises(InputError, match="all requests arrive at one time"):
        what_if(config_of(), tiny_trace([0, 1], [0.0, 0.0]), Ask())


def test_a_grid_has_two_points_a_side() -> None:
    with pytest.raises(InputError, match="sizes: got 1, expected at least 2"):
        Ask(sizes=1)


def test_what_makes_no_difference_is_left_as_it_is() -> None:
    """No entry of this trace grows old, so all lifetimes cost the same: that of today stays, or the nearest to it."""
    trace = tiny_trace([0, 1, 2, 0, 1, 2] * 20, list(np.arange(120.0)), [500] * 120)
    changes: dict[str, Any] = {"knobs.ttl_seconds.low": 500.0, "knobs.ttl_seconds.default": 600.0}
    result = what_if(config_of(**changes), trace, Ask(parse_wish("size=500,ttl=800s"), 3, 4))
    assert not result.stays
    ttls = result.axes[1].values
    assert result.best.settings.ttl_seconds == ttls[result.axes[1].nearest(800.0)]
    assert not any("end of the range" in sentence for sentence in sentences(result))


def test_capacities_count_entries_where_the_source_has_no_sizes() -> None:
    result = what_if(config_of(), tiny_trace([0, 1, 2] * 40, list(np.arange(120.0))), Ask(sizes=2, ttls=2))
    assert result.size_unit == "entries"
    assert surface_table(result, result.hit_ratio).rows[1][0] == "3 entries"


def test_too_few_intervals_give_no_interval_of_the_saving() -> None:
    result = what_if(config_of(), tiny_trace([0, 1, 0, 1], [0.0, 5.0, 25.0, 41.0]), Ask(sizes=2, ttls=2))
    assert result.saving.over_time is None
    assert any("With 4 control intervals there is no interval of the saving" in note for note in result.notes)


def test_few_intervals_are_noted() -> None:
    trace = random_trace(0, 9)
    result = what_if(config_of(), trace, Ask(sizes=2, ttls=2, resampling=Resampling(100, 0, 3)))
    assert any("The trace holds 9 control intervals" in note for note in result.notes)
    assert result.current.usd_per_1000 == pytest.approx(sum(result.current.usd_by_cause_per_1000.values()))
