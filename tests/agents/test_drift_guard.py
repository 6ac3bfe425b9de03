from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.drift import DriftDetector, DriftRule
from agents.drift_guard import KNOWN_SAVING, SAVING, DriftGuard, GuardRule, GuardState, Mode, advance, loses
from agents.policy import Sight
from caches.errors import InputError
from envs.observation import SIZE, names

RULE = GuardRule(window=6, clean_windows=2)
LOSS, GAIN = (-1.0, -0.9, -1.1, -1.0, -0.9, -1.1), (1.0,) * 6


class Wisher:
    """Wishes for one thing for ever; counts what it was asked."""

    def __init__(self, name: str, wish: float) -> None:
        self.name, self.wish, self.asked, self.resets = name, wish, 0, 0

    def reset(self, seed: int) -> None:
        self.resets += 1

    def act(self, sight: Sight) -> np.ndarray:
        self.asked += 1
        return np.full(3, self.wish)


class Scripted(DriftDetector):
    """Fires at the calls that it is told."""

    def __init__(self, *calls: int) -> None:
        self.calls, self.count = calls, 0
        super().__init__(DriftRule(), np.ones(5))

    def update(self, observation: np.ndarray) -> tuple[str, ...]:
        self.count += 1
        return ("qps",) if self.count in self.calls else ()


def sight(saving: float | None) -> Sight:
    seen = np.zeros(SIZE, np.float32)
    if saving is not None:
        seen[SAVING], seen[KNOWN_SAVING] = saving, 1.0
    return Sight(seen, 0, 0.0, np.zeros(1), np.zeros(3))


def follow(savings: list[float | None], rule: GuardRule = RULE, fired: tuple[int, ...] = ()) -> list[GuardState]:
    states = [GuardState()]
    for index, saving in enumerate(savings):
        states.append(advance(states[-1], saving, index in fired, rule))
    return states


# What counts as a loss


def test_a_window_loses_where_the_upper_bound_of_its_mean_is_below_zero() -> None:
    """Mean -1, deviation 0.0894, no autocorrelation above zero: t of 5 degrees at 0.999 is 5.893, so the bound is
    -1 + 5.893 x 0.0894 / root 6 = -0.785."""
    assert loses(LOSS, RULE)
    assert loses(LOSS, GuardRule(window=6, tolerance=0.78))
    assert not loses(LOSS, GuardRule(window=6, tolerance=0.79))


def test_a_loss_that_may_be_chance_is_none() -> None:
    assert not loses((-3.0, 2.5, -3.0, 2.5, -3.0, 2.5), RULE)
    assert not loses(GAIN, RULE)
    assert not loses((0.0,) * 6, RULE)


def test_savings_that_hang_together_count_for_less() -> None:
    """The same values in runs are worth fewer independent ones than in turns."""
    rule = GuardRule(window=24, confidence=0.99)
    turns, runs = (-1.0, 0.2) * 12, ((-1.0,) * 6 + (0.2,) * 6) * 2
    assert loses(turns, rule)
    assert not loses(runs, rule)


def test_what_is_hardly_known_says_nothing() -> None:
    assert loses((None, None, None, -1.0, -0.9, -1.1), GuardRule(window=6, confidence=0.9))
    assert not loses((None, None, None, None, -1.0, -1.0), GuardRule(window=6, confidence=0.9))


# The state machine


def test_a_losing_window_makes_the_fallback_act() -> None:
    states = follow([*LOSS])
    assert [state.mode for state in states] == [Mode.CANDIDATE] * 6 + [Mode.FALLBACK]
    assert states[-1].falls == 1


def test_a_detected_change_does_so_at_once() -> None:
    assert [state.mode for state in follow([1.0, 1.0, 1.0], fired=(1,))][2:] == [Mode.FALLBACK] * 2


def test_the_candidate_comes_back_after_two_clean_windows() -> None:
    """A change in the third window makes it begin to count anew; a window of nothing known is not clean."""
    quiet: list[float | None] = [0.0] * 6
    modes = [state.mode for state in follow([*LOSS, *quiet, *quiet])]
    assert modes[6:] == [Mode.FALLBACK] * 12 + [Mode.CANDIDATE]
    disturbed = follow([*LOSS, *quiet, *quiet, *quiet, *quiet], fired=(13,))
    assert [state.mode for state in disturbed][6:] == [Mode.FALLBACK] * 24 + [Mode.CANDIDATE]
    unknown: list[float | None] = [None] * 6
    assert follow([*LOSS, *quiet, *unknown, *quiet])[-1].mode is Mode.FALLBACK


def test_without_a_rule_to_come_back_it_stays_out() -> None:
    latched = GuardRule(window=6)
    assert follow([*LOSS, *([1.0] * 600)], latched)[-1].mode is Mode.FALLBACK


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.floats(-5.0, 5.0)), st.integers(0, 9).map(lambda n: n == 0)), max_size=120
    ),
    st.integers(4, 9),
    st.one_of(st.none(), st.integers(1, 3)),
)
def test_it_leaves_a_mode_only_for_the_stated_reason(
    story: list[tuple[float | None, bool]], window: int, clean_windows: int | None
) -> None:
    rule = GuardRule(window, clean_windows=clean_windows)
    state, since, entered = GuardState(), 0, 0
    for saving, fired in story:
        before, state, since = state, advance(state, saving, fired, rule), since + 1
        assert len(state.savings) < window
        if before.mode is state.mode:
            assert state.falls == before.falls
            assert not (fired and state.mode is Mode.CANDIDATE)
            continue
        if state.mode is Mode.FALLBACK:
            assert fired or (len(before.savings) == window - 1 and loses((*before.savings, saving), rule))
            assert state.falls == before.falls + 1
        else:
            assert clean_windows is not None
            assert (since - entered) % window == 0
            assert since - entered >= clean_windows * window
            last = story[since - clean_windows * window : since]
            assert not any(fire for _, fire in last)
        assert state.savings == ()
        entered = since


# The policy


def test_both_see_everything_and_only_one_acts() -> None:
    candidate, fallback = Wisher("candidate", 0.3), Wisher("safe", 0.0)
    guard = DriftGuard(candidate, fallback, GuardRule(window=6))
    guard.reset(0)
    wishes = [guard.act(sight(saving))[0] for saving in (-9.0, *LOSS, *GAIN)]
    # the first saving is not the candidate's doing; the window of six after it loses
    assert wishes == [0.3] * 6 + [0.0] * 7
    assert (candidate.asked, fallback.asked) == (13, 13)
    assert guard.name == "candidate"


def test_someone_may_release_the_candidate() -> None:
    guard = DriftGuard(Wisher("candidate", 0.3), Wisher("safe", 0.0), GuardRule(window=6), Scripted(3))
    guard.reset(0)
    assert [guard.act(sight(1.0))[0] for _ in range(4)] == [0.3, 0.3, 0.0, 0.0]
    guard.release()
    assert guard.act(sight(1.0))[0] == 0.3
    assert guard.state.falls == 1


def test_reset_forgets_everything() -> None:
    candidate, fallback = Wisher("candidate", 0.3), Wisher("safe", 0.0)
    guard = DriftGuard(candidate, fallback, GuardRule(window=6), Scripted(2))
    guard.act(sight(None))
    guard.act(sight(None))
    assert guard.state.mode is Mode.FALLBACK
    guard.reset(0)
    assert guard.state == GuardState()
    assert (candidate.resets, fallback.resets) == (1, 1)


def test_guards_nest_down_to_a_static_setting() -> None:
    last_good = DriftGuard(Wisher("last good", 0.1), Wisher("static", 0.0), GuardRule(window=6), Scripted(4))
    guard = DriftGuard(Wisher("new", 0.3), last_good, GuardRule(window=6), Scripted(2))
    guard.reset(0)
    assert [guard.act(sight(1.0))[0] for _ in range(5)] == [0.3, 0.1, 0.1, 0.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"window": 3}, "window: got 3"),
        ({"confidence": 1.0}, "confidence: got 1.0"),
        ({"tolerance": -0.1}, "tolerance: got -0.1"),
        ({"clean_windows": 0}, "clean_windows: got 0"),
    ],
)
def test_a_bad_rule_names_the_field(changes: dict[str, float], said: str) -> None:
    with pytest.raises(InputError, match=said):
        GuardRule(**changes)  # type: ignore[arg-type]


def test_the_saving_is_read_where_the_observation_has_it() -> None:
    assert (names()[SAVING], names()[KNOWN_SAVING]) == ("saving", "known_saving")
