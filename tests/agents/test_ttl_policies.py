from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.baselines.elastic import (
    Economy,
    Elastic,
    ElasticTtl,
    EntryClasses,
    Holding,
    break_even_seconds,
    common_seconds,
    economy_of_tokens,
    entry_classes,
    fit_elastic_ttl,
)
from agents.baselines.ttl import (
    GAINS,
    FormulaTtl,
    TargetTtl,
    fit_formula_ttl,
    fit_target_ttl,
    training_hit_ratio,
    ttl_factor,
)
from agents.rollout import roll_out
from agents.study import Split, Study, open_study
from caches.errors import InputError
from caches.knobs import Knob
from envs.ghosts import ghost_grid
from envs.interval import column
from envs.reward import Constraints, Prices
from envs.world import World
from tests.agents.sights import row_of, sight_of
from tests.envs.worlds import INTERVAL_SECONDS, KNOBS, SETTINGS, problem, random_trace

HOME = np.array([0.5, 0.5, 0.25])
FREE = Constraints(p99_ttft_seconds=1e6, stale_ratio=1.0)


@pytest.fixture(scope="module")
def small() -> Study:
    """The same keys over and over at the same rate."""
    world = World(problem(random_trace(4, 120, 15.0), constraints=FREE))
    return open_study(world, Split(0.5, 0.25), SETTINGS, horizon=5, starts=2, grid=ghost_grid(world))


# Target TTL


def test_a_step_towards_the_target_by_hand() -> None:
    """0.2 x (0.9 - 0.4) of the range from the lifetime in force; nothing where nothing was asked for."""
    policy = TargetTtl(HOME, target=0.9, gain=0.2)
    assert policy.act(sight_of((0.1, 0.3, 0.9), row=row_of(hit_ratio=0.4))) == pytest.approx([0.0, 0.4 - 0.5, 0.0])
    assert policy.act(sight_of((0.1, 0.3, 0.9), row=row_of(hit_ratio=1.0))) == pytest.approx([0.0, 0.28 - 0.5, 0.0])
    assert policy.act(sight_of((0.1, 0.3, 0.9))) == pytest.approx([0.0, 0.3 - 0.5, 0.0])
    assert policy.act(sight_of((0.1, 0.95, 0.9), row=row_of(hit_ratio=0.0))) == pytest.approx([0.0, 0.5, 0.0])


def test_steps_that_decay_by_hand() -> None:
    """Step k is 0.2 / k of the missing 0.5."""
    policy = TargetTtl(HOME, target=0.9, gain=0.2, decay=1.0)
    seen = sight_of(row=row_of(hit_ratio=0.4))
    for step in (1, 2, 3):
        assert policy.act(seen)[1] == pytest.approx(0.1 / step)
    policy.act(sight_of())  # no data, no step
    assert policy.act(seen)[1] == pytest.approx(0.1 / 4)
    policy.reset(0)
    assert policy.act(seen)[1] == pytest.approx(0.1)


@pytest.mark.parametrize("target", [0.3, 0.6, 0.85])
def test_it_converges_on_stationary_requests(target: float) -> None:
    """Requests for each entry as a Poisson process of rate 0.01/s, lifetime T since the last touch: hit ratio 1 -
    exp(-T / 100 s). An interval counts 200 requests. So it comes to rest at T = -100 ln(1 - target)."""
    knob = Knob("ttl_seconds", "seconds", 1.0, 10_000.0, 100.0, 1.0, "log")
    rng = np.random.default_rng(0)
    policy = TargetTtl(HOME, target, gain=0.8, decay=0.7)
    position = 0.0
    for _ in range(4_000):
        hits = rng.binomial(200, -math.expm1(-knob.value(position) / 100.0))
        position = HOME[1] + policy.act(sight_of((0.5, position, 0.5), row=row_of(hit_ratio=hits / 200)))[1]
    assert knob.value(position) == pytest.approx(-100.0 * math.log1p(-target), rel=0.05)


def test_it_finds_the_lifetime_that_gives_the_target_in_the_shadow(small: Study) -> None:
    """The target is what another lifetime gives: over the last half of the stretch that hit ratio is met."""
    world, part = small.world, range(60, 120)
    other = KNOBS.settings(np.array([*KNOBS.positions(SETTINGS)[:1], 0.35, KNOBS.positions(SETTINGS)[2]]))
    rows = world.replay_static([other], len(world))[0, 90:]
    target = float(column(rows, "hits").sum() / column(rows, "requests").sum())
    reference = column(small.reference.rows[90:], "hits").sum() / column(small.reference.rows[90:], "requests").sum()
    assert abs(target - reference) > 0.05
    policy = TargetTtl(KNOBS.positions(SETTINGS), target, gain=0.2)
    told = roll_out(small.reference, small.scale, [policy], part)
    met = column(told.rows[0, 30:], "hits").sum() / column(told.rows[0, 30:], "requests").sum()
    assert met == pytest.approx(target, abs=0.02)
    assert (told.settings[0, :, [0, 2]] == np.array([[SETTINGS.cache_size], [SETTINGS.warmup_ratio]])).all()


def test_the_target_is_what_best_static_hit_in_training(small: Study) -> None:
    assert small.grid is not None
    rows = small.reference.rows[: small.training.stop]
    wanted = column(rows, "hits").sum() / column(rows, "requests").sum()
    assert training_hit_ratio(small) == wanted
    assert fit_target_ttl(small, small.grid).target == wanted
    told = fit_target_ttl(small, small.grid, target=0.2)
    assert told.target == 0.2
    assert told.gain in GAINS


def test_a_target_is_a_ratio() -> None:
    with pytest.raises(InputError, match=r"target: got 1.5, expected a hit ratio"):
        TargetTtl(HOME, 1.5)
    with pytest.raises(InputError, match=r"gain: got 0, expected above 0"):
        TargetTtl(HOME, 0.5, gain=0)


# Formula TTL


def test_the_formula_by_hand() -> None:
    """log10(9 + 1) = 1 and log10(99 + 1) = 2. Without errors it lies between 1.5, idle, and 2, from 10 ** (5 / 3) - 1 =
    45.4 requests/s on; the base itself takes a quarter of errors when idle, the half of it three quarters."""
    assert ttl_factor(0.0, 0.0) == 1.5
    assert ttl_factor(9.0, 0.0) == pytest.approx(1.8)
    assert ttl_factor(9.0, 0.25) == pytest.approx(1.3)
    assert ttl_factor(45.4, 0.0) == pytest.approx(2.0, abs=2e-4)
    assert ttl_factor(45.4, 0.0) < 2.0
    assert ttl_factor(46.0, 0.0) == ttl_factor(1e6, 0.0) == 2.0
    assert ttl_factor(99.0, 0.3) == pytest.approx(1.5)
    assert ttl_factor(0.0, 0.25) == 1.0
    assert ttl_factor(0.0, 0.5) == ttl_factor(0.0, 1.0) == 0.5
    assert ttl_factor(46.0, 0.5) == pytest.approx(1.0016, abs=1e-4)


def test_the_formula_sets_the_lifetime_by_the_last_interval() -> None:
    """90 requests in 10 s are 9/s: 10 s x 1.8. Knob from 1 to 100 s, logarithmic: position log10(18) / 2."""
    policy = FormulaTtl(HOME, KNOBS.ttl_seconds, base_seconds=10.0, interval_seconds=10.0)
    busy = row_of(requests=90.0, slow_requests=45.0)
    assert policy.act(sight_of(row=busy)) == pytest.approx([0.0, math.log10(18.0) / 2 - 0.5, 0.0])
    careful = FormulaTtl(HOME, KNOBS.ttl_seconds, 10.0, 10.0, slow_is_error=True)
    assert careful.act(sight_of(row=busy)) == pytest.approx([0.0, math.log10(8.0) / 2 - 0.5, 0.0])  # 1.8 - 2 x 1/2
    assert careful.act(sight_of(row=row_of(requests=0.0, slow_requests=0.0)))[1] == pytest.approx(
        math.log10(15.0) / 2 - 0.5
    )
    assert policy.act(sight_of((0.5, 0.7, 0.5))) == pytest.approx([0.0, 0.2, 0.0])  # nothing known: as it is


def test_the_base_is_such_that_the_lifetime_is_the_references_on_average(small: Study) -> None:
    policy = fit_formula_ttl(small)
    factors = [ttl_factor(row[0] / INTERVAL_SECONDS, 0.0) for row in small.reference.rows[: small.training.stop]]
    assert np.exp(np.mean(np.log(policy.base_seconds * np.array(factors)))) == pytest.approx(SETTINGS.ttl_seconds)


def test_a_base_is_a_time() -> None:
    with pytest.raises(InputError, match=r"base_seconds: got 0.0, expected above 0"):
        FormulaTtl(HOME, KNOBS.ttl_seconds, 0.0, 10.0)


# Elastic TTL


def holding(miss: list[float], rent: list[float], rate: list[float], stale: float = 0.0, life: float = 1e9) -> Holding:
    return Holding(np.array(miss), np.array(rent), np.array(rate), stale, life)


def test_break_even_where_answers_stay_true_is_miss_over_rent() -> None:
    """2 USD at 0.01 USD/s are 200 s; 30 days are more than the knob allows; a free cache holds for ever."""
    ages = break_even_seconds(holding([2.0, 1.0, 5.0], [0.01, 1e-7, 0.0], [1.0] * 3), (10.0, 1e6))
    assert ages == pytest.approx([200.0, 1e6, 1e6], rel=1e-9)
    assert break_even_seconds(holding([0.1], [1.0], [1.0]), (10.0, 1e6)) == pytest.approx([10.0])


def test_break_even_where_memory_is_free_is_the_square_root() -> None:
    """Ages far below the lifetime of an answer: stale x rate x T^2 / (2 L) = miss, here 0.5 x 2 x T^2 / 2e9 = 8e-4."""
    ages = break_even_seconds(holding([8e-4], [0.0], [2.0], stale=0.5, life=1e9), (1.0, 1e6))
    assert ages == pytest.approx([math.sqrt(2 * 8e-4 * 1e9 / (0.5 * 2))], rel=1e-3)


@given(st.floats(1e-5, 1.0), st.floats(1e-9, 1e-3), st.floats(1e-6, 1.0), st.floats(0.0, 1.0))
def test_at_the_break_even_age_what_was_paid_is_the_price_of_a_miss(
    miss: float, rent: float, rate: float, stale: float
) -> None:
    """What was paid is the integral of rent + stale x rate x (1 - exp(-t / L)) over ages t."""
    one = holding([miss], [rent], [rate], stale, 3_600.0)
    age = float(break_even_seconds(one, (1e-3, 1e12))[0])
    ages = np.linspace(0.0, age, 20_001)
    per_second = rent + stale * rate * -np.expm1(-ages / 3_600.0)
    assert np.trapezoid(per_second, ages) == pytest.approx(miss, rel=1e-4)


def test_classes_are_combined_where_they_cost_least_together() -> None:
    """Class one breaks even at 10 s, class two at 1,000 s. Cost a second at T: (1 + T / 10) / (T + 1) and (1 + T /
    1000) / (T + 1): with equal shares it falls from T = 10 on when slow entries weigh, rises when fast ones do."""
    two = holding([1.0, 1.0], [0.1, 0.001], [1.0, 1.0])
    assert break_even_seconds(two, (1.0, 1e5)) == pytest.approx([10.0, 1_000.0])
    ages = np.geomspace(10.0, 1_000.0, 65)
    for share in (0.01, 0.5, 0.99):
        cost = (share * (1 + ages / 10) + (1 - share) * (1 + ages / 1_000)) / (ages + 1)
        found = common_seconds(two, np.array([share, 1 - share]), (1.0, 1e5))
        assert found == pytest.approx(ages[np.argmin(cost)])
    assert common_seconds(holding([1.0], [0.1], [1.0]), np.array([1.0]), (1.0, 1e5)) == pytest.approx(10.0)


def test_classes_by_hand() -> None:
    """Key 0: four requests in 30 s, so 3 more in 30 s. Key 1: two in 100 s. Key 2 comes once, key 3 twice at once:
    neither is ever in use. Miss prices over the mean 2 of all nine; two classes, the slow one first."""
    key = np.array([0, 1, 0, 0, 2, 0, 3, 3, 1])
    time = np.array([0.0, 5.0, 10.0, 20.0, 25.0, 30.0, 40.0, 40.0, 105.0])
    miss = np.array([1.0, 2.0, 1.0, 1.0, 3.0, 1.0, 2.0, 3.0, 4.0])
    size = np.array([10.0, 7.0, 10.0, 10.0, 5.0, 14.0, 5.0, 5.0, 9.0])
    classes = entry_classes(key, time, miss, size, number=2)
    assert classes is not None
    assert classes.rate == pytest.approx([1 / 100, 3 / 30])
    assert classes.active == pytest.approx([100.0, 30.0])
    assert classes.miss == pytest.approx([3 / 2, 1 / 2])
    assert classes.size == pytest.approx([8.0, 11.0])
    one = entry_classes(key, time, miss, size, number=1)
    assert one is not None
    assert (one.rate.tolist(), one.active.tolist()) == ([4 / 130], [130.0])
    assert entry_classes(np.array([0, 1, 2]), time[:3], miss[:3], size[:3]) is None


def elastic(memory: float = 0.0, stale_answer_usd: float = 0.0) -> ElasticTtl:
    classes = EntryClasses(np.array([0.5]), np.array([2.0]), np.array([50.0]), np.array([1.0]))
    economy = Economy(classes, Prices(stale_answer_usd=stale_answer_usd), 10.0, requests_per_second=4.0)
    return ElasticTtl(HOME, KNOBS, economy, Elastic(memory, headroom=0.25))


ROW = {"requests": 40.0, "hits": 30.0, "used_bytes": 800.0, "compute_usd": 0.8, "slow_usd": 0.2, "memory_usd": 0.8}


def test_elastic_by_hand() -> None:
    """A miss cost 1 / 10, of the class 0.2 USD. Rent of 0.8 USD in 10 s for 800 bytes: 50 bytes cost 0.005 USD/s, 40 s
    for a miss. 800 bytes and a quarter are 1,000: the middle of a range from 100 to 10,000."""
    expected = [0.5 - 0.5, math.log10(40.0) / 2 - 0.5, 0.25 - 0.25]
    assert elastic().act(sight_of((0.9, 0.9, 0.9), row=row_of(**ROW))) == pytest.approx(expected, abs=1e-9)


def test_elastic_waits_until_something_missed() -> None:
    policy = elastic()
    assert policy.act(sight_of((0.6, 0.7, 0.8))) == pytest.approx([0.1, 0.2, 0.0])
    all_hit = row_of(**ROW | {"hits": 40.0, "compute_usd": 0.0, "slow_usd": 0.0})
    assert policy.act(sight_of((0.6, 0.7, 0.8), row=all_hit)) == pytest.approx([0.0, 0.2, 0.0])


def test_elastic_averages_what_it_saw() -> None:
    """With memory 1/2 the second interval counts twice as much as the first: 1.2 and 1 USD for 10 misses each: (0.5 x
    1.2 + 1) / (0.5 x 10 + 10) x 2 x 10 x 800 / (0.8 x 50) s."""
    policy = elastic(memory=0.5)
    policy.act(sight_of(row=row_of(**ROW | {"slow_usd": 0.4})))
    wish = policy.act(sight_of(row=row_of(**ROW)))
    seconds = 1.6 / 15 * 2 * 200
    assert wish[1] == pytest.approx(math.log10(seconds) / 2 - 0.5)
    policy.reset(0)
    assert policy.act(sight_of(row=row_of(**ROW)))[1] == pytest.approx(math.log10(40.0) / 2 - 0.5)


def test_outdated_answers_shorten_the_lifetime_and_load_does_too() -> None:
    """The class is hit 0.5 times a second at 4 requests/s; with four times the load at the same price of a miss and the
    same rent, about half the age where outdated answers decide."""
    usual = elastic(stale_answer_usd=1e4)
    short = usual.act(sight_of(row=row_of(**ROW)))[1]
    assert short < elastic().act(sight_of(row=row_of(**ROW)))[1]
    load = ROW | {"requests": 160.0, "hits": 120.0, "compute_usd": 3.2, "slow_usd": 0.8, "memory_usd": 1e-9}
    rare = ROW | {"memory_usd": 1e-9}
    busy, calm = (elastic(stale_answer_usd=1e4).act(sight_of(row=row_of(**row)))[1] for row in (load, rare))
    assert 10 ** (2 * (calm - busy)) == pytest.approx(2.0, rel=1e-3)


def test_elastic_is_measured_on_training_traffic(small: Study) -> None:
    policy = fit_elastic_ttl(small)
    assert policy is not None
    edges, trace = small.world.timeline.edges, small.world.problem.trace
    assert policy.economy.requests_per_second == pytest.approx(edges[60] / (60 * INTERVAL_SECONDS))
    told = np.unique(trace.key[: edges[60]], return_counts=True)[1]
    spans = [np.ptp(trace.arrival_seconds[: edges[60]][trace.key[: edges[60]] == k]) for k in range(trace.num_keys)]
    assert policy.economy.classes.active.sum() == pytest.approx(sum(spans))
    assert (policy.economy.classes.rate * policy.economy.classes.active).sum() == pytest.approx((told - 1).sum())


def test_tokens_of_a_prefix_cache_stay_until_their_rent_is_a_prefill() -> None:
    """3.6 USD an hour and 1,000 tokens/s: 1e-6 USD a token. 100,000 bytes a token, of a cache that holds 800,000 bytes
    for 0.8 USD in 10 s: 0.01 USD/s. So 1e-4 s, and the knob's shortest, 1 s. At 4e-6 USD of rent 20 s."""
    economy = economy_of_tokens(problem(random_trace(0)))
    assert (economy.miss_usd, economy.prices.stale_answer_usd) == (pytest.approx(1e-6), 0.0)
    assert economy.classes.size.tolist() == [100_000.0]
    policy = ElasticTtl(HOME, KNOBS, economy, Elastic(memory=0.0))
    row = ROW | {"used_bytes": 800_000.0}
    policy.act(sight_of(row=row_of(**row)))
    assert policy.seconds() == pytest.approx(1.0)
    policy.act(sight_of(row=row_of(**row | {"memory_usd": 4e-6})))
    assert policy.seconds() == pytest.approx(20.0)


@pytest.mark.parametrize(("field", "value"), [("memory", 1.0), ("headroom", 0.0)])
def test_elastic_options_are_checked(field: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{field}: got {value}, expected"):
        Elastic(**{field: value})
