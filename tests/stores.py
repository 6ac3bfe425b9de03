"""A real MLflow store on SQLite. Making a database takes seconds: one is made per session, then copied."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.mlflow_store import default_tracking_uri
from agents.registry import Registry
from tests.servers import free_port, is_ready

SERVER_START_SECONDS = 120.0
SERVER_STOP_SECONDS = 30.0


FIRST_USE = """
import sys
from pathlib import Path
from agents.mlflow_store import default_tracking_uri
from agents.registry import Registry

registry = Registry(default_tracking_uri(Path(sys.argv[1]), {}), "first", "first-policy")
with registry.start_run("first", {"a": 1}) as run:
    run.log_table("t", {"a": ["x"]})
"""


@dataclass(frozen=True)
class FirstUse:
    """What the first use of a store left behind, in a process of its own."""

    process: subprocess.CompletedProcess[str]
    mlruns: Path
    working_folder: Path


@pytest.fixture(scope="session")
def first_use(tmp_path_factory: pytest.TempPathFactory) -> FirstUse:
    mlruns, elsewhere = tmp_path_factory.mktemp("template") / "mlruns", tmp_path_factory.mktemp("elsewhere")
    command = [sys.executable, "-W", "error::DeprecationWarning", "-c", FIRST_USE, str(mlruns)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=elsewhere)
    return FirstUse(process, mlruns, elsewhere)


@pytest.fixture
def mlruns(tmp_path: Path, first_use: FirstUse) -> Path:
    """A folder as a user has it, its name not the easiest, with a store where nothing was registered yet."""
    folder = tmp_path / "my runs #1 50%"
    folder.mkdir()
    shutil.copy(first_use.mlruns / "mlflow.db", folder / "mlflow.db")
    return folder


@pytest.fixture
def registry(mlruns: Path) -> Registry:
    return Registry(default_tracking_uri(mlruns, {}), "tuning", "cache-policy", clock=lambda: 1_000.0)


@pytest.fixture
def mlflow_server(mlruns: Path) -> Iterator[str]:
    """The address of a real MLflow server on the store of `mlruns`."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", default_tracking_uri(mlruns, {}), "--workers", "1"]
    command += ["--artifacts-destination", str(mlruns / "served")]
    # Without this it starts eight more processes.
    small = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    log = mlruns / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=os.environ | small, stdout=output, stderr=output, start_new_session=True
        )
    try:
        deadline = time.monotonic() + SERVER_START_SECONDS
        while not is_ready(f"http://127.0.0.1:{port}/health"):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the MLflow server did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(SERVER_STOP_SECONDS)
