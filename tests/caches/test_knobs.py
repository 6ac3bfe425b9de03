from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.errors import InputError
from caches.knobs import KNOB_NAMES, Knob, KnobSettings, KnobSpace

SIZE = Knob("cache_size", "bytes", 1e6, 1e9, 1e8, 0.1, "log")
TTL = Knob("ttl_seconds", "seconds", 10.0, 604_800.0, 3_600.0, 0.2, "log")
WARMUP = Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear")
SPACE = KnobSpace(SIZE, TTL, WARMUP)

unit = st.floats(0.0, 1.0)
actions = st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3).map(np.array)
positions = st.lists(unit, min_size=3, max_size=3).map(np.array)


@st.composite
def knob_strategy(draw: st.DrawFn, name: str = "cache_size") -> Knob:
    scale = draw(st.sampled_from(["log", "linear"]))
    low = draw(st.floats(1e-3, 1e6) if scale == "log" else st.floats(-1e6, 1e6))
    high = low + abs(low) * draw(st.floats(0.01, 1e6)) + 0.01
    return Knob(name, "unit", low, high, low, draw(st.floats(0.001, 1.0)), scale)


@st.composite
def space_strategy(draw: st.DrawFn) -> KnobSpace:
    return KnobSpace(*(draw(knob_strategy(name)) for name in KNOB_NAMES))


@given(knob_strategy(), unit)
def test_position_undoes_value(knob: Knob, position: float) -> None:
    assert knob.position(knob.value(position)) == pytest.approx(position, abs=1e-6)


@given(knob_strategy())
def test_the_ends_are_exact(knob: Knob) -> None:
    assert (knob.value(0.0), knob.value(1.0)) == (knob.low, knob.high)
    assert (knob.position(knob.low), knob.position(knob.high)) == (0.0, 1.0)


@given(knob_strategy(), st.floats(allow_nan=False))
def test_no_position_leads_out_of_the_range(knob: Knob, position: float) -> None:
    assert knob.low <= knob.value(position) <= knob.high


@given(knob_strategy(), st.floats(allow_nan=False), unit)
def test_within_gives_the_nearest_value_in_the_range(knob: Knob, value: float, position: float) -> None:
    taken = knob.within(value)
    assert knob.low <= taken <= knob.high
    assert abs(taken - value) <= abs(knob.value(position) - value)


def test_half_way_is_the_geometric_mean_on_a_log_scale_and_the_mean_on_a_linear_one() -> None:
    assert SIZE.value(0.5) == pytest.approx(math.sqrt(1e6 * 1e9))
    assert SIZE.position(1e7) == pytest.approx(1 / 3)
    assert WARMUP.value(0.5) == 0.5
    assert replace(WARMUP, high=3.0).value(0.5) == 1.5


@given(space_strategy(), st.lists(st.tuples(unit, unit, unit), min_size=1, max_size=5))
def test_many_positions_at_once_give_what_each_gives_alone(
    space: KnobSpace, positions: list[tuple[float, float, float]]
) -> None:
    alone = np.array([space.settings(np.array(one)).as_array() for one in positions])
    np.testing.assert_allclose(space.values(np.array(positions)), alone, rtol=1e-12)


def test_values_outside_the_range_have_the_position_of_its_nearer_end() -> None:
    assert (SIZE.position(1.0), SIZE.position(1e12)) == (0.0, 1.0)


@given(space_strategy(), actions, positions, positions)
def test_a_decision_stays_in_range_and_within_the_largest_step(
    space: KnobSpace, action: np.ndarray, reference: np.ndarray, current: np.ndarray
) -> None:
    before = space.settings(current)
    after = space.decide(action, space.settings(reference), before)
    assert (np.abs(space.positions(after) - space.positions(before)) <= space.max_steps + 1e-6).all()
    for knob, value in zip(space.knobs, after.as_array(), strict=True):
        assert knob.low <= value <= knob.high


@given(actions, positions, positions)
def test_the_largest_step_holds_to_rounding_on_ordinary_ranges(
    action: np.ndarray, reference: np.ndarray, current: np.ndarray
) -> None:
    before = SPACE.settings(current)
    after = SPACE.decide(action, SPACE.settings(reference), before)
    assert (np.abs(SPACE.positions(after) - SPACE.positions(before)) <= SPACE.max_steps + 1e-12).all()


@given(actions, positions, positions)
def test_the_wish_is_reached_when_no_limit_binds(
    action: np.ndarray, reference: np.ndarray, current: np.ndarray
) -> None:
    free = KnobSpace(*(replace(knob, max_step=1.0) for knob in SPACE.knobs))
    after = free.decide(action, free.settings(reference), free.settings(current))
    np.testing.assert_allclose(free.positions(after), np.clip(reference + action, 0.0, 1.0), atol=1e-9)


def test_a_decision_by_hand() -> None:
    # size: wish 2/3 + 0.5 clipped to 1, from 2/3 by at most 0.1: 1e6 * 1000 ** (2/3 + 0.1) = 1e8 * 10 ** 0.3
    # warm-up: wish 0.5 + 0.2 from 0.5: a step of 0.2 fits into 0.25
    reference = KnobSettings(1e8, 3_600.0, 0.5)
    after = SPACE.decide(np.array([0.5, 0.0, 0.2]), reference, reference)
    assert after.cache_size == pytest.approx(1e8 * 10**0.3)
    assert after.ttl_seconds == pytest.approx(3_600.0)
    assert after.warmup_ratio == pytest.approx(0.7)


settings_in_range = st.builds(
    KnobSettings,
    st.floats(SIZE.low, SIZE.high),
    st.floats(TTL.low, TTL.high),
    st.floats(WARMUP.low, WARMUP.high),
)


@given(settings_in_range)
def test_zero_action_at_the_reference_stays_there_to_the_last_bit(reference: KnobSettings) -> None:
    assert SPACE.decide(np.zeros(3), reference, reference) == reference


@given(settings_in_range, settings_in_range)
def test_zero_action_leads_back_to_the_reference_to_the_last_bit(
    reference: KnobSettings, current: KnobSettings
) -> None:
    for _ in range(11):  # the smallest of the largest steps is a tenth
        current = SPACE.decide(np.zeros(3), reference, current)
    assert current == reference


def test_a_reference_outside_the_range_is_pulled_into_it() -> None:
    outside = KnobSettings(1.0, 1e9, 0.5)
    assert SPACE.decide(np.zeros(3), outside, outside) == KnobSettings(SIZE.low, TTL.high, 0.5)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"low": 0.0}, "cache_size.low"),
        ({"low": 1e9}, "cache_size: got range"),
        ({"default": 1.0}, "cache_size.default"),
        ({"max_step": 0.0}, "cache_size.max_step"),
        ({"max_step": 1.5}, "cache_size.max_step"),
    ],
)
def test_a_bad_knob_names_the_field(changes: dict[str, float], named: str) -> None:
    with pytest.raises(InputError, match=named):
        replace(SIZE, **changes)


@pytest.mark.parametrize("name", KNOB_NAMES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_settings_that_are_not_finite_name_the_knob(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name}: got"):
        replace(SPACE.default(), **{name: value})


def test_knobs_in_the_wrong_place_are_named() -> None:
    with pytest.raises(InputError, match="'ttl_seconds' in place of 'cache_size'"):
        KnobSpace(TTL, SIZE, WARMUP)


def test_settings_as_array_and_back() -> None:
    settings = KnobSettings(1.0, 2.0, 0.5)
    assert settings.as_array().tolist() == [1.0, 2.0, 0.5]
    assert KnobSettings.from_array(settings.as_array()) == settings
    assert SPACE.default() == KnobSettings(1e8, 3_600.0, 0.0)
