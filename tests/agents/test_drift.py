from __future__ import annotations

import numpy as np
import pytest

from agents.drift import WATCHED, Changes, DriftDetector, DriftRule, calm_deviation
from caches.errors import InputError
from envs.observation import SIZE, names

DAY = 24  # intervals of an hour


def observation(known: bool = True, **signals: float) -> np.ndarray:
    seen = np.zeros(SIZE, np.float32)
    for name in WATCHED:
        seen[names().index(name)] = signals.get(name, 0.0)
        seen[names().index(f"known_{name}")] = float(known)
    return seen


def traffic(days: int, shift: float = 0.0, shift_from_day: int = 10**6, seed: int = 0) -> list[np.ndarray]:
    """A day's wave of height 1 in the rate, noise of deviation 0.1 in every signal; `shift` is added to the entropy."""
    rng = np.random.default_rng(seed)
    seen = []
    for hour in range(days * DAY):
        signals = {name: float(rng.normal(0.0, 0.1)) for name in WATCHED}
        signals["qps"] += np.sin(2 * np.pi * hour / DAY)
        signals["entropy"] += shift if hour >= shift_from_day * DAY else 0.0
        seen.append(observation(True, **signals))
    return seen


def alarms(observations: list[np.ndarray], rule: DriftRule) -> list[tuple[int, tuple[str, ...]]]:
    detector = DriftDetector(rule, calm_deviation(traffic(10, seed=99), rule))
    told = [(i, detector.update(seen)) for i, seen in enumerate(observations)]
    return [(i, fired) for i, fired in told if fired]


def test_changes_are_block_means_less_those_of_a_season_before() -> None:
    """Blocks of two, a season of two blocks: the rates 1..8 have block means 1.5, 3.5, 5.5 and 7.5."""
    changes = Changes(DriftRule(block=2, season=2, signals=("qps",)))
    told = [changes.add(observation(qps=float(rate))) for rate in range(1, 9)]
    assert [None if one is None else one.tolist() for one in told] == [None] * 5 + [[4.0], None, [4.0]]


def test_what_is_not_known_is_left_out_of_a_block() -> None:
    changes = Changes(DriftRule(block=2, signals=("qps",)))
    assert changes.add(observation(qps=3.0)) is None
    told = changes.add(observation(known=False, qps=100.0))
    assert told is not None
    assert told.tolist() == [3.0]
    changes.add(observation(known=False))
    told = changes.add(observation(known=False))
    assert told is not None
    assert np.isnan(told).all()


@pytest.mark.parametrize("seed", range(5))
def test_days_alike_raise_no_alarm_in_a_month(seed: int) -> None:
    assert alarms(traffic(30, seed=seed), DriftRule(block=1, season=DAY)) == []


def test_without_a_season_a_level_that_lasts_is_a_change() -> None:
    rng = np.random.default_rng(0)
    levels = np.concatenate((rng.normal(0.0, 0.1, 200), rng.normal(0.5, 0.1, 50)))
    seen = [observation(True, **dict.fromkeys(WATCHED, level)) for level in levels]
    rule = DriftRule(block=1)
    detector = DriftDetector(rule, calm_deviation(seen[:200], rule))
    told = [bool(detector.update(one)) for one in seen]
    assert not any(told[:200])
    assert any(told[200:])


@pytest.mark.parametrize("seed", range(3))
def test_a_change_is_found_within_a_day_and_named(seed: int) -> None:
    """The entropy rises by five deviations of an hour's change (0.1 x root 2) from day 8 on."""
    told = alarms(traffic(12, shift=0.7, shift_from_day=8, seed=seed), DriftRule(block=1, season=DAY))
    assert told
    assert told[0][1] == ("entropy",)
    assert 8 * DAY <= told[0][0] < 9 * DAY


def test_reset_forgets_the_traffic_but_not_what_calm_is() -> None:
    rule = DriftRule(block=1, season=DAY)
    detector = DriftDetector(rule, calm_deviation(traffic(10), rule))
    seen = traffic(12, shift=0.7, shift_from_day=8)
    first = [detector.update(one) for one in seen]
    detector.reset()
    assert [detector.update(one) for one in seen] == first
    assert any(first)


def test_calm_traffic_must_be_long_enough_and_move() -> None:
    rule = DriftRule(block=1, season=DAY)
    with pytest.raises(InputError, match="calm traffic: got 0 known changes of qps"):
        calm_deviation(traffic(1), rule)
    with pytest.raises(InputError, match="calm traffic: got no change at all of qps"):
        calm_deviation([observation()] * 100, rule)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"delta": 0.0}, "delta: got 0.0"),
        ({"block": 0}, "block: got 0"),
        ({"season": -1}, "season: got -1"),
        ({"signals": ("weather",)}, "signals: got weather"),
        ({"signals": ()}, "signals: got none"),
    ],
)
def test_a_bad_rule_names_the_field(changes: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        DriftRule(**changes)  # type: ignore[arg-type]


def test_a_daily_rule_fits_the_interval() -> None:
    assert DriftRule.daily(600.0) == DriftRule(block=6, season=24)
    assert DriftRule.daily(10_800.0) == DriftRule(block=1, season=8)
