from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.actor import Scaler, actor_from
from agents.bundle import PolicyBundle
from agents.study import Split, open_study
from agents.training_range import (
    LEAST_DEVIATION,
    TrainingRange,
    observed,
    range_of,
    range_of_bundle,
    ranged,
)
from caches.errors import InputError
from envs.observation import LIMIT, OBSERVATION_VERSION, SIGNALS, SIZE, names
from envs.world import World
from tests.agents.bundles import PROVENANCE, REFERENCE, SCALE, SPACE, layered_weights, static_bundle
from tests.envs.worlds import SETTINGS, problem, random_trace

KNOWN = slice(len(SIGNALS), 2 * len(SIGNALS))
QPS, HIT, GHOST = (names().index(name) for name in ("qps", "hit_ratio", "whatif_0_lately"))


def observation(**entries: float) -> np.ndarray:
    """All signals known and 0, but for these."""
    seen = np.zeros(SIZE, np.float32)
    seen[KNOWN] = 1.0
    for name, value in entries.items():
        seen[names().index(name)] = value
    return seen


def training() -> TrainingRange:
    """The rate went evenly through 0, 1, ... 1000 thousandths; nothing else moved."""
    return range_of(np.stack([observation(qps=step / 1000.0) for step in range(1001)]))


def test_a_range_is_what_all_but_the_most_extreme_half_per_cent_stayed_in() -> None:
    """Of 0, 0.001, ... 1 the quantiles 0.005 and 0.995 are those numbers; the deviation is that of 1001 even steps."""
    found = training()
    assert (found.low[QPS], found.high[QPS]) == pytest.approx((0.005, 0.995), abs=1e-6)
    assert found.deviation[QPS] == pytest.approx(np.sqrt((1001**2 - 1) / 12) / 1000.0, rel=1e-5)
    assert found.deviation[HIT] == LEAST_DEVIATION


def test_distance_is_of_the_entry_that_lies_farthest_out_in_deviations() -> None:
    """A hit ratio of 0.5 where it was always 0 is 5 of the least deviations away; the rate of 1.5 is 0.505 beyond, less
    than two of its own."""
    found = training().distance(observation(qps=1.5, hit_ratio=0.5))
    assert (found.name, found.value, found.low, found.high) == ("hit_ratio", 0.5, 0.0, 0.0)
    assert found.deviations == pytest.approx(5.0)
    assert training().distance(observation(qps=0.5)).deviations == 0.0
    assert training().distance(observation(qps=1.5)).deviations == pytest.approx(0.505 / training().deviation[QPS])


def test_settings_the_clock_and_what_is_not_known_do_not_count() -> None:
    far = observation(qps=0.5, cos_day=1.0, position_cache_size=2.0)
    far[HIT], far[KNOWN.start + HIT] = 5.0, 0.0
    assert training().distance(far).deviations == 0.0
    assert training().distance(observation(qps=0.5, whatif_0_lately=0.3)).deviations == pytest.approx(3.0)


def test_a_signal_that_was_never_known_is_far_away_once_it_is() -> None:
    blind = observation()
    blind[KNOWN.start + HIT] = 0.0
    found = range_of(np.stack([blind] * 10))
    assert found.known[HIT] == 0.0
    assert found.distance(observation(hit_ratio=-1.0)).deviations == pytest.approx(10.0)


def test_missing_are_signals_that_training_always_had() -> None:
    seen = [observation() for _ in range(100)]
    seen[0][KNOWN.start + QPS] = 0.0  # known in 99 of 100
    for one in seen[:2]:
        one[KNOWN.start + HIT] = 0.0  # in 98
    gone = observation()
    gone[KNOWN] = 0.0
    missing = range_of(np.stack(seen)).missing(gone)
    assert "qps" in missing
    assert "hit_ratio" not in missing
    assert len(missing) == len(SIGNALS) - 1
    assert range_of(np.stack(seen)).missing(observation()) == ()


def test_a_bundle_gives_back_the_range_that_was_put_in() -> None:
    weights = layered_weights((SIZE, 8, 3), 0)
    weights["actor.0.weight"][:, GHOST] = 0.0
    bundle = ppo(ranged(actor_from(weights), training()))
    found = range_of_bundle(bundle)
    assert found is not None
    assert (found.low[GHOST], found.high[GHOST]) == (-LIMIT, LIMIT)  # the actor does not weigh it
    told = training()
    told_low = told.low.copy()
    told_low[GHOST] = -LIMIT
    assert np.array_equal(found.low, told_low)
    assert np.array_equal(found.deviation, told.deviation)
    assert np.array_equal(found.known, told.known)
    assert np.array_equal(bundle.actor().act(observation()), ppo(weights).actor().act(observation()))


def test_a_scaler_stands_in_for_a_range() -> None:
    mean, std = np.zeros(SIZE), np.full(SIZE, 0.5)
    mean[KNOWN] = 1.0
    found = range_of_bundle(ppo(layered_weights((SIZE, 8, 3), 0), Scaler(mean, std)))
    assert found is not None
    assert found.distance(observation(qps=2.0)).deviations == pytest.approx(1.0)  # 1.5 is three deviations
    assert found.known.tolist() == [1.0] * len(SIGNALS)


def test_a_bundle_without_either_does_not_tell() -> None:
    assert range_of_bundle(ppo(layered_weights((SIZE, 8, 3), 0))) is None
    assert range_of_bundle(static_bundle()) is None


@pytest.mark.parametrize("shape", [(3,), (0, SIZE), (5, SIZE - 1)])
def test_observations_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="observations: got shape"):
        range_of(np.zeros(shape, np.float32))


def test_an_observation_that_is_not_finite_is_refused() -> None:
    with pytest.raises(InputError, match="finite"):
        training().distance(observation(qps=np.nan))


STILL = range_of(np.stack([observation()] * 5))


@given(st.integers(0, SIZE - 1), st.floats(-5, 5, width=32), st.floats(0, 5, width=32))
def test_farther_out_is_never_nearer(entry: int, value: float, more: float) -> None:
    near, far = observation(), observation()
    if not KNOWN.start <= entry < KNOWN.stop:
        near[entry], far[entry] = value, value + np.sign(value) * more
    assert STILL.distance(far).deviations >= STILL.distance(near).deviations


def test_what_a_policy_saw_in_training_is_in_its_range_but_for_the_extremes() -> None:
    """The policy that stays at the reference sees the reference's own past: the last interval of the part before."""
    world = World(problem(random_trace(0, 40)))
    study = open_study(world, Split(0.5, 0.25), SETTINGS, horizon=8, starts=4)
    seen = observed(study, Stay(), study.training)
    assert seen.shape == (len(study.training), SIZE)
    found = range_of(seen)
    distances = [found.distance(one).deviations for one in seen]
    assert np.mean(np.array(distances) == 0.0) > 0.0
    assert max(distances) < 1.0  # quantiles of 20 intervals lie next to their extremes


class Stay:
    name = "stay"

    def reset(self, seed: int) -> None: ...

    def act(self, sight: object) -> np.ndarray:
        return np.zeros(3)


def ppo(weights: dict[str, np.ndarray], scaler: Scaler | None = None) -> PolicyBundle:
    return PolicyBundle(
        kind="ppo",
        knob_space=SPACE,
        reference=REFERENCE,
        provenance=PROVENANCE,
        observation_version=OBSERVATION_VERSION,
        observation_size=SIZE,
        scale=SCALE,
        weights=weights,
        scaler=scaler,
    )
