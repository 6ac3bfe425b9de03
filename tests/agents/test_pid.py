from __future__ import annotations

import math

import numpy as np
import pytest

from agents.baselines.pid import Gains, PidToP99
from caches.errors import InputError
from tests.agents.sights import row_of, sight_of

HOME = np.array([0.5, 0.25, 0.75])
OBJECTIVE = 2.0


def pid(gains: Gains, max_step: float = 1.0, directions: tuple[float, float, float] = (1.0, 0.0, 0.0)) -> PidToP99:
    return PidToP99(HOME, OBJECTIVE, max_step, gains, directions)


def after(policy: PidToP99, *errors: float) -> list[float]:
    """The offset of the size after intervals whose P99 was exp(error) times the objective."""
    return [policy.act(sight_of(row=row_of(p99_ttft_seconds=OBJECTIVE * math.exp(e))))[0] for e in errors]


def test_each_part_by_hand() -> None:
    none = {"proportional": 0.0, "integral": 0.0, "derivative": 0.0}
    assert after(pid(Gains(**none | {"proportional": 0.1})), 1.0, -2.0, 0.0) == pytest.approx([0.1, -0.2, 0.0])
    assert after(pid(Gains(**none | {"integral": 0.1})), 1.0, 1.0, -3.0) == pytest.approx([0.1, 0.2, -0.1])
    assert after(pid(Gains(**none | {"derivative": 0.1})), 1.0, 3.0, 2.0) == pytest.approx([0.0, 0.2, -0.1])
    together = pid(Gains(proportional=0.1, integral=0.01, derivative=0.1))
    assert after(together, 1.0, 2.0) == pytest.approx([0.11, 0.2 + 0.03 + 0.1])
    together.reset(0)
    assert after(together, 1.0) == pytest.approx([0.11])


def test_no_step_is_larger_than_allowed() -> None:
    policy = pid(Gains(proportional=1.0, integral=0.0, derivative=0.0), max_step=0.1)
    assert after(policy, 0.25, 0.25, 0.25, -0.5) == pytest.approx([0.1, 0.2, 0.25, 0.15])


def test_the_integral_does_not_wind_up() -> None:
    """Ten intervals three e-foldings too slow leave the cache at its largest, 0.5 above home. The sum was only added to
    while it did anything: so one interval as much too fast brings it down at once; the whole sum, 27, would not."""
    policy = pid(Gains(proportional=0.0, integral=0.1, derivative=0.0))
    assert after(policy, *[3.0] * 10)[-1] == pytest.approx(0.5)
    assert after(policy, -3.0, -3.0) == pytest.approx([0.0, -0.3])


def test_it_holds_still_without_data() -> None:
    policy = pid(Gains(proportional=0.1, integral=0.0, derivative=0.1))
    assert after(policy, 1.0) == pytest.approx([0.1])
    assert policy.act(sight_of()) == pytest.approx([0.1, 0.0, 0.0])
    assert after(policy, 1.0) == pytest.approx([0.1])  # the change is against the last known error


def test_better_than_asked_for_is_no_reason_to_move_where_slack_allows_it() -> None:
    gains = Gains(proportional=0.1, integral=0.1, derivative=0.0, keep=0.5, slack=1.0)
    assert after(pid(gains), -1.0, -0.5) == [0.0, 0.0]
    assert after(pid(gains), -1.5) == pytest.approx([-0.3])
    # too slow once: 0.1 + 0.1, then what the integral keeps, halved each interval
    assert after(pid(gains), 1.0, -0.5, -0.5) == pytest.approx([0.2, 0.05, 0.025])


def test_size_and_lifetime_move_together_when_told() -> None:
    """The lifetime half as far. The size ends at its largest, 0.5 away, the lifetime 1.5 units of offset away."""
    policy = pid(Gains(proportional=1.0, integral=0.0, derivative=0.0), 5.0, (1.0, 0.5, 0.0))
    assert (policy.lowest, policy.highest) == (-0.5, 1.5)
    seen = sight_of(row=row_of(p99_ttft_seconds=OBJECTIVE * math.exp(0.8)))
    assert policy.act(seen) == pytest.approx([0.5, 0.4, 0.0])


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="directions: got"):
        pid(Gains(), directions=(0.0, 0.0, 0.0))
    with pytest.raises(InputError, match=r"integral: got -0.1, expected at least 0"):
        Gains(integral=-0.1)
    with pytest.raises(InputError, match=r"keep: got 0.0, expected in \(0, 1\]"):
        Gains(keep=0.0)
