from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.knobs import KnobSettings
from envs.control import Episodes, LaneControl, observation_scale, reference_usd
from envs.interval import column, total_usd
from envs.observation import names
from envs.reward import REWARD_GAIN
from envs.traffic import OUTPUT
from envs.world import GHOST_OFFSETS, Reference, World, ghost_settings
from tests.envs.worlds import INTERVAL_SECONDS, KNOBS, SETTINGS, problem, random_trace, study
from traces.trace import Trace

INTERVALS = 30
MARKS = (0, 3, 11, 20)


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(World(problem(random_trace(0, INTERVALS, 20.0))), SETTINGS, MARKS)


@pytest.fixture(scope="module")
def control(reference: Reference) -> LaneControl:
    return LaneControl(reference, observation_scale(reference.world, reference, range(20)), 4, INTERVALS)


def begin(control: LaneControl, reference: Reference, mark: int) -> None:
    for lane in range(control.count):
        control.reset(lane, reference.checkpoint(mark))


def test_zero_actions_are_the_reference_to_the_last_bit(reference: Reference, control: LaneControl) -> None:
    """Wherever a lane starts: the rewards are zero, the statistics those of the reference as if never stopped."""
    for lane, mark in enumerate(MARKS):
        control.reset(lane, reference.checkpoint(mark))
    for step in range(INTERVALS - max(MARKS)):
        assert control.step(np.zeros((4, 3))).tolist() == [0.0] * 4
        np.testing.assert_array_equal(control.rows, reference.rows[np.array(MARKS) + step])
        assert control.settings_of(2) == SETTINGS


def test_zero_actions_lead_back_to_the_reference_to_the_last_bit(reference: Reference, control: LaneControl) -> None:
    begin(control, reference, 0)
    actions = np.random.default_rng(0).uniform(-1, 1, (5, 4, 3))
    for action in actions:
        control.step(action)
    assert control.settings_of(0) != SETTINGS
    for _ in range(10):
        control.step(np.zeros((4, 3)))
    assert control.settings_of(0) == SETTINGS


def test_the_reward_is_the_saving_on_the_same_requests(reference: Reference, control: LaneControl) -> None:
    begin(control, reference, 3)
    rng = np.random.default_rng(1)
    scale = control.scale.interval_usd
    for step in range(10):
        told = control.step(rng.uniform(-1, 1, (4, 3)))
        expected = REWARD_GAIN * (reference.usd[3 + step] - total_usd(control.rows)) / scale
        np.testing.assert_allclose(told, expected, rtol=1e-9, atol=1e-12)
        requests = reference.rows[3 + step, 0]
        assert column(control.rows, "requests").tolist() == [requests] * 4


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_limits_hold_and_agree_with_the_knobs(seed: int) -> None:
    reference, scale, _ = small_study()
    control, rng = LaneControl(reference, scale, 2, 8), np.random.default_rng(seed)
    for lane in range(2):
        control.reset(lane, reference.checkpoint(0))
    current = [SETTINGS, SETTINGS]
    for _ in range(8):
        actions, before = rng.uniform(-1.3, 1.3, (2, 3)), control.positions.copy()
        control.step(actions)
        assert (np.abs(control.positions - before) <= KNOBS.max_steps + 1e-12).all()
        for lane in range(2):
            current[lane] = KNOBS.decide(actions[lane], SETTINGS, current[lane])
            np.testing.assert_allclose(control.settings_of(lane).as_array(), current[lane].as_array(), rtol=1e-9)
            for knob, value in zip(KNOBS.knobs, control.settings_of(lane).as_array(), strict=True):
                assert knob.low <= value <= knob.high


def small_study() -> tuple[Reference, object, Episodes]:
    """Made once: hypothesis calls a test many times."""
    if not _MADE:
        _MADE.append(study())
    return _MADE[0]


_MADE: list[tuple[Reference, object, Episodes]] = []


def test_the_first_observation_is_that_of_the_reference(reference: Reference, control: LaneControl) -> None:
    """A lane that starts at a mark sees what it would see had it always followed the reference."""
    control.reset(0, reference.checkpoint(0))
    for lane, mark in enumerate(MARKS[1:], start=1):
        control.reset(lane, reference.checkpoint(mark))
    at_mark = control.observe()
    for step in range(max(MARKS)):
        for lane, mark in enumerate(MARKS):
            if mark == step:
                np.testing.assert_array_equal(at_mark[lane], control.observe()[0])
        control.step(np.zeros((4, 3)))
        for lane, mark in enumerate(MARKS[1:], start=1):
            control.reset(lane, reference.checkpoint(mark))


def test_nothing_is_known_before_the_first_interval(reference: Reference, control: LaneControl) -> None:
    control.reset(0, reference.checkpoint(0))
    seen = dict(zip(names(), control.observe()[0].tolist(), strict=True))
    assert [name for name, value in seen.items() if name.startswith(("known_", "whatif_")) and value != 0] == []


def test_the_clock_is_that_of_the_interval_about_to_begin(reference: Reference, control: LaneControl) -> None:
    lane = LaneControl(reference, replace(control.scale, daily=True), 1, 5)
    lane.reset(0, reference.checkpoint(11))
    seen = dict(zip(names(), lane.observe()[0].tolist(), strict=True))
    day = 2 * np.pi * (1_000_000.0 + 11 * INTERVAL_SECONDS) / 86_400.0
    assert (seen["sin_day"], seen["cos_day"]) == pytest.approx((np.sin(day), np.cos(day)), abs=1e-6)


@pytest.mark.parametrize(
    ("hours", "daily", "weekly"), [(47.9, False, False), (48, True, False), (335.9, True, False), (336, True, True)]
)
def test_the_clock_is_shown_from_two_rounds_of_training_on(hours: float, daily: bool, weekly: bool) -> None:
    trace, seconds = random_trace(0, 30), hours * 3600 / 20
    slow = replace(trace, arrival_seconds=trace.arrival_seconds * seconds / INTERVAL_SECONDS)
    world = World(problem(slow, interval_seconds=seconds))
    scale = observation_scale(world, Reference(world, SETTINGS, (0,)), range(20))
    assert (scale.daily, scale.weekly) == (daily, weekly)


def change_after(trace: Trace, seconds: float, seed: int) -> Trace:
    """The same requests before that time and others, of other keys and lengths, from then on."""
    rng, later = np.random.default_rng(seed), trace.arrival_seconds >= seconds
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    scrambled = {
        "key": rng.integers(0, trace.num_keys, len(trace)).astype(np.int32),
        "size_bytes": rng.integers(1, 400, len(trace)).astype(np.int32),
        "prompt_tokens": rng.integers(1, 900, len(trace)).astype(np.int32),
        "output_tokens": rng.integers(1, 80, len(trace)).astype(np.int32),
    }
    return replace(trace, **{name: np.where(later, new, getattr(trace, name)) for name, new in scrambled.items()})


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), index=st.integers(1, 11))
def test_an_observation_uses_nothing_of_the_interval_about_to_begin_or_later(seed: int, index: int) -> None:
    trace = random_trace(seed, 12, 15.0)
    scale = small_study()[1]
    actions, seen = np.random.default_rng(seed).uniform(-1, 1, (index, 1, 3)), []
    for one in (trace, change_after(trace, index * INTERVAL_SECONDS, seed)):
        world = World(problem(one))
        lane = LaneControl(Reference(world, SETTINGS, (0,)), scale, 1, 12)  # type: ignore[arg-type]
        lane.reset(0, lane.reference.checkpoint(0))
        for action in actions:
            lane.step(action)
        seen.append(lane.observe())
    np.testing.assert_array_equal(seen[0], seen[1])


def test_the_scale_looks_at_training_traffic_only(reference: Reference) -> None:
    world, training = reference.world, range(20)
    scale = observation_scale(world, reference, training)
    changed = World(problem(change_after(world.problem.trace, 20 * INTERVAL_SECONDS, 1)))
    assert observation_scale(changed, Reference(changed, SETTINGS, (0,)), training) == scale
    assert scale.interval_usd == pytest.approx(reference.usd[:20].mean())
    assert scale.output_tokens == pytest.approx(np.nanmean(world.traffic[:20, OUTPUT]))
    assert scale.requests_per_second == pytest.approx(world.timeline.edges[20] / 200.0)
    np.testing.assert_array_equal(reference_usd(reference, range(5, 9)), reference.usd[5:9])


def test_a_scale_needs_requests() -> None:
    quiet = replace(random_trace(0, 6, 20.0))
    quiet = replace(quiet, arrival_seconds=np.where(quiet.arrival_seconds < 40.0, 0.0, quiet.arrival_seconds) + 0.0)
    world = World(problem(quiet))
    with pytest.raises(InputError, match="training traffic: got no requests"):
        observation_scale(world, Reference(world, SETTINGS, (0,)), range(1, 3))


def test_only_marked_intervals_have_a_checkpoint(reference: Reference) -> None:
    with pytest.raises(InputError, match=r"got interval 4, expected one of \[0, 3, 11, 20\]"):
        reference.checkpoint(4)


def test_a_lane_cannot_run_past_the_last_interval(reference: Reference, control: LaneControl) -> None:
    """Nor write past the end of its arrays."""
    begin(control, reference, 20)
    for _ in range(INTERVALS - 20):
        control.step(np.zeros((4, 3)))
    control.reset(0, reference.checkpoint(0))
    with pytest.raises(InputError, match="lane 1: got interval 30, expected one before 30; reset it first"):
        control.step(np.zeros((4, 3)))


def test_a_lane_cannot_run_past_its_horizon_or_without_a_reset(reference: Reference, control: LaneControl) -> None:
    short = LaneControl(reference, control.scale, 2, 5)
    short.reset(0, reference.checkpoint(3))
    with pytest.raises(InputError, match="lane 1: got interval 0, expected one before 0"):
        short.step(np.zeros((2, 3)))
    short.reset(1, reference.checkpoint(11))
    for _ in range(5):
        short.step(np.ones((2, 3)))
    with pytest.raises(InputError, match="lane 0: got interval 8, expected one before 8"):
        short.step(np.zeros((2, 3)))


def test_ghosts_are_the_neighbours_of_the_reference(reference: Reference) -> None:
    ghosts = ghost_settings(KNOBS, SETTINGS)
    home = KNOBS.positions(SETTINGS)
    moved = np.array([KNOBS.positions(ghost) - home for ghost in ghosts])
    assert moved.shape == (12, 3)
    for knob in range(3):
        offsets = np.clip(home[knob] + np.array(GHOST_OFFSETS), 0, 1) - home[knob]
        np.testing.assert_allclose(moved[4 * knob : 4 * knob + 4, knob], offsets, atol=1e-9)
        np.testing.assert_allclose(np.delete(moved[4 * knob : 4 * knob + 4], knob, axis=1), 0.0, atol=1e-9)
    rows = reference.world.replay_static(ghosts, INTERVALS)
    np.testing.assert_array_equal(reference.ghost_usd, total_usd(rows))


def test_a_reference_is_the_static_replay_of_its_settings(reference: Reference) -> None:
    np.testing.assert_array_equal(reference.rows, reference.world.replay_static([SETTINGS], INTERVALS)[0])


@given(st.integers(1, 60), st.integers(0, 20), st.integers(1, 70), st.integers(1, 20))
def test_episodes_stay_inside_their_part(length: int, first: int, horizon: int, count: int) -> None:
    part = range(first, first + length)
    episodes = Episodes.over(part, horizon, count)
    assert 1 <= len(episodes.starts) <= count
    assert episodes.horizon == min(horizon, length)
    for start in episodes.starts:
        assert start in part
        assert start + episodes.horizon - 1 in part
    assert episodes.starts[0] == first
    if len(episodes.starts) > 1:
        assert episodes.starts[-1] + episodes.horizon == part.stop


def test_a_world_needs_tokens() -> None:
    with pytest.raises(InputError, match="got no token counts, expected them"):
        World(problem(replace(random_trace(0), prompt_tokens=None)))


def test_entries_too_large_for_the_kernels_are_refused() -> None:
    with pytest.raises(InputError, match="entry_overhead_bytes: got 2147483647, expected entries below 2 GiB"):
        World(problem(entry_overhead_bytes=2**31 - 1))


def test_settings_are_what_the_lane_was_given(reference: Reference, control: LaneControl) -> None:
    begin(control, reference, 0)
    assert control.settings_of(0) == SETTINGS
    control.step(np.array([[1.0, -1.0, 1.0]] * 4))
    # one largest step from the reference: 2,000 * 100 ** 0.1 bytes, 15 * 100 ** -0.2 s, 0.5 + 0.25
    assert control.settings_of(0).as_array() == pytest.approx(
        KnobSettings(2_000 * 100**0.1, 15 * 100**-0.2, 0.75).as_array()
    )
