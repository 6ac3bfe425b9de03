from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agents.baselines import bandit
from agents.baselines.bandit import Bandit, ContextualBandit, Experience, context_of, fit_bandit
from agents.policy import Sight
from agents.rollout import roll_out
from agents.study import Split, Study, open_study
from caches.errors import InputError
from envs.ghosts import ghost_grid
from envs.observation import SIZE, names
from envs.world import World
from tests.agents.sights import sight_of
from tests.envs.worlds import SETTINGS, problem, random_trace

QPS = names().index("qps")


@pytest.fixture(autouse=True)
def _needs_the_package() -> None:
    pytest.importorskip("vowpalwabbit", reason="the extra `bandit` is not installed")


@pytest.fixture(scope="module")
def small() -> Study:
    world = World(problem(random_trace(4, 60, 15.0)))
    return open_study(world, Split(0.5, 0.25), SETTINGS, horizon=5, starts=2, grid=ghost_grid(world))


def busy(sight: Sight, qps: float) -> Sight:
    observation = sight.observation.copy()
    observation[QPS] = qps
    return replace(sight, observation=observation)


def test_seven_wishes() -> None:
    policy = ContextualBandit(Bandit(offset=0.2))
    assert sorted(policy.wishes.tolist()) == sorted(
        [[0, 0, 0], [-0.2, 0, 0], [0.2, 0, 0], [0, -0.2, 0], [0, 0.2, 0], [0, 0, -0.2], [0, 0, 0.2]]
    )
    assert any((policy.act(sight_of()) == wish).all() for wish in policy.wishes)


def test_a_context_names_what_is_not_zero() -> None:
    observation = np.zeros(SIZE, np.float32)
    observation[QPS], observation[1] = -0.5, 0.25
    assert context_of(observation) == "shared |o qps:-0.5 hit_ratio:0.25"


def test_what_it_experiences_by_hand() -> None:
    """A choice is kept for two intervals; its cost is the mean of what is known of them, negated. The saving seen when
    the first choice is made belongs to nobody."""
    policy = ContextualBandit(Bandit(hold=2, epsilon=1.0))  # all alike: a seventh each
    first = policy.act(sight_of(saving=9.0))
    assert policy.act(sight_of(saving=1.0)).tolist() == first.tolist()
    assert policy.lived == []
    policy.act(sight_of(saving=0.5))
    assert [(one.cost, policy.wishes[one.arm].tolist()) for one in policy.lived] == [(-0.75, first.tolist())]
    assert policy.lived[0].probability == pytest.approx(1 / 7)
    policy.act(sight_of())
    policy.act(sight_of())
    assert len(policy.lived) == 1  # nothing was known of the second choice
    policy.reset(0)
    assert policy.lived == []


def test_it_learns_which_wish_pays_in_which_context() -> None:
    """Busy intervals reward the larger cache, calm ones the smaller. After 600 of them, drawn at random, it chooses so
    nearly always."""
    policy = ContextualBandit(Bandit(hold=1, epsilon=0.2))
    policy.reset(1)
    rng = np.random.default_rng(0)
    right, saving = [], None
    for step in range(700):
        qps = float(rng.choice([-1.0, 1.0]))
        wish = policy.act(busy(sight_of(saving=saving), qps))
        saving = float(np.sign(wish[0]) * qps)
        if step >= 600:
            right.append(saving == 1.0)
    assert np.mean(right) > 0.75  # a fifth is drawn at random, six of seven of these wrong


def test_equal_seeds_repeat(small: Study) -> None:
    def ran(seed: int) -> np.ndarray:
        return roll_out(small.reference, small.scale, [ContextualBandit()], small.training, seed).settings

    one, same, other = ran(3), ran(3), ran(4)
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_reset_brings_back_what_it_knew() -> None:
    """It knows that the last wish saves whatever is seen."""
    context = context_of(sight_of().observation + np.float32(0.1))
    past = [Experience(context, arm, -1.0 if arm == 6 else 1.0, 1 / 7) for arm in range(7)] * 5
    policy = ContextualBandit(Bandit(hold=1, epsilon=0.0), past)
    seen = replace(sight_of(), observation=sight_of().observation + np.float32(0.1))
    for seed in range(3):
        policy.reset(seed)
        assert policy.act(seen).tolist() == policy.wishes[6].tolist()


def test_fitting_repeats_and_knows_training_traffic(small: Study) -> None:
    assert small.grid is not None
    one, other = (fit_bandit(small, small.grid) for _ in range(2))
    assert one.options == other.options
    assert one.past == other.past
    assert one.options.epsilon == bandit.LATER_EPSILON
    assert 0 < len(one.past) <= len(small.training)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandit, "Workspace", None)
    assert not bandit.is_offered()
    with pytest.raises(InputError, match=r"got no package vowpalwabbit, .*setpoint\[bandit\]"):
        ContextualBandit()


@pytest.mark.parametrize(("field", "value"), [("offset", 0.0), ("hold", 0), ("epsilon", 1.5), ("learning_rate", 0.0)])
def test_options_are_checked(field: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{field}: got {value}, expected"):
        Bandit(**{field: value})
