from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from caches.errors import InputError
from envs.registration import ENV_ID, register
from envs.registration_target import VARIANTS, Scenario, built_in, make_replay_cache
from tests.envs.worlds import study

FRESH = """
import sys, time
import gymnasium
before = set(sys.modules)
begin = time.perf_counter()
import envs.registration
took = time.perf_counter() - begin
heavy = [name for name in set(sys.modules) - before if not name.startswith("envs")]
assert heavy == [], heavy
assert took < 0.1, took
env = gymnasium.make("setpoint/ReplayCache-v0")
seen, info = env.reset(seed=0)
print(info["interval"], env.step(env.action_space.sample() * 0)[1])
"""


def test_gymnasium_makes_it_in_a_fresh_process_and_registering_is_light() -> None:
    """Importing the registration takes next to nothing and loads nothing but itself."""
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    start, reward = done.stdout.split()
    assert int(start) in built_in().episodes.starts
    assert float(reward) == 0.0


def test_gymnasium_imports_the_module_that_the_name_tells() -> None:
    env = gymnasium.make(f"envs.registration:{ENV_ID}")
    assert env.spec is not None
    assert env.spec.id == ENV_ID


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_made_environment_passes_every_check_without_a_warning(variant: str) -> None:
    check_env(gymnasium.make(ENV_ID, variant=variant).unwrapped, skip_render_check=True)


def test_an_unknown_variant_is_named_beside_the_known() -> None:
    with pytest.raises(InputError, match="variant: got 'semantic', expected one of response, prefix"):
        make_replay_cache(variant="semantic")


def test_the_reference_saves_nothing_on_itself_in_the_prefix_variant() -> None:
    env = gymnasium.make(ENV_ID, variant="prefix")
    env.reset(seed=0)
    assert [env.step(np.zeros(3, np.float32))[1] for _ in range(20)] == [0.0] * 20


def test_registering_twice_changes_nothing() -> None:
    before = gymnasium.spec(ENV_ID)
    register()
    assert gymnasium.spec(ENV_ID) is before


@pytest.mark.parametrize("threads", [1, 2])
def test_a_study_of_ones_own(threads: int) -> None:
    scenario = Scenario(*study(threads=threads))
    env = gymnasium.make(ENV_ID, scenario=scenario)
    assert env.reset(options={"start": 4})[1] == {"interval": 4}
    assert env.step(np.zeros(3, np.float32))[1] == 0.0


def test_many_lanes_at_once() -> None:
    lanes = gymnasium.make_vec(ENV_ID, num_envs=3)
    seen, _ = lanes.reset(seed=0)
    assert seen in lanes.observation_space
    assert lanes.step(np.zeros((3, 3), np.float32))[1].tolist() == [0.0] * 3


def test_the_built_in_traffic_is_the_same_everywhere_and_made_once() -> None:
    assert built_in() is built_in()
    reference = built_in().reference
    assert len(reference.world.problem.trace) == 52_264
    assert make_replay_cache().reset(seed=1)[1]["interval"] in built_in().episodes.starts
    assert reference.settings == reference.world.problem.knobs.default()
