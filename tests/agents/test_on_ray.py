"""On a cluster of two nodes on this machine, each a process of its own with one CPU."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.on_ray import run_on_ray
from agents.training import TrainingPlan, train_seeds, train_seeds_on_ray
from caches.errors import InputError, NotFound
from tests.agents.test_continual import SPLIT, make_problem
from tests.agents.test_ppo import SMALL, assert_same_actor
from tests.envs.worlds import SETTINGS

ray = pytest.importorskip("ray", reason="needs the extra `ray`")
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.slow,  # a cluster of ten processes does not start in time on a machine that is busy with other tests
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    started.add_node(num_cpus=1)
    yield started.address
    ray.shutdown()
    started.shutdown()


def process_of(number: int) -> tuple[int, int]:
    return number, os.getpid()


def test_results_come_in_the_order_of_the_tasks_from_other_processes(cluster: str) -> None:
    seen: list[int] = []
    results = run_on_ray(cluster, process_of, [(number,) for number in range(6)], seen.append)
    assert [number for number, _ in results] == list(range(6))
    assert os.getpid() not in {process for _, process in results}
    assert sorted(seen) == list(range(6))


def lost_at_first(marker: str, number: int) -> int:
    """Kills its own worker, as an operator or a machine might, the first time."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def test_a_task_whose_worker_is_lost_starts_anew(cluster: str, tmp_path: Path) -> None:
    marker = str(tmp_path / "lost")
    assert run_on_ray(cluster, lost_at_first, [(marker, 3), (marker, 4)]) == [9, 16]
    assert Path(marker).exists()


def test_training_and_ghosts_are_the_same_to_the_digit_as_here(cluster: str) -> None:
    plan = TrainingPlan(make_problem, SPLIT, SETTINGS, SMALL)
    here, there = train_seeds(plan, [3, 4], workers=1), train_seeds_on_ray(cluster, plan, [3, 4])
    assert [one.looks for one in here] == [one.looks for one in there]
    for one, other in zip(here, there, strict=True):
        assert_same_actor(one, other)


def refuse(number: int) -> int:
    raise NotFound(f"task {number}: nothing there")


def test_an_error_of_ours_comes_back_as_it_is(cluster: str) -> None:
    with pytest.raises(NotFound, match="task 7: nothing there"):
        run_on_ray(cluster, refuse, [(7,)])


def test_a_cluster_that_is_not_there_is_named() -> None:
    if ray.is_initialized():
        ray.shutdown()
    with pytest.raises(InputError, match=r"--ray: got '127\.0\.0\.1:1', expected a running Ray cluster"):
        run_on_ray("127.0.0.1:1", process_of, [(1,)])


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"setpoint\[ray\]"):
        run_on_ray("auto", process_of, [(1,)])
