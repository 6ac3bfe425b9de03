"""The registry on a real SQLite store, and once on a real MLflow server."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agents.bundle import WEIGHTS_FILE
from agents.champion_lock import file_lock, model_lock
from agents.mlflow_store import Store, default_tracking_uri
from agents.registry import MetricRow, Registry
from caches.errors import InputError, Mismatch, NotFound, SetpointError
from tests.agents.bundles import TRACE_SHA256, ppo_bundle, static_bundle
from tests.stores import FirstUse


def add_version(registry: Registry, folder: Path, seed: int = 0, **metrics: float) -> int:
    ppo_bundle(seed).save(folder / f"bundle-{seed}")
    with registry.start_run(f"seed {seed}", {"seed": seed}) as run:
        return registry.register(folder / f"bundle-{seed}", run, metrics)


def client_of(mlruns: Path) -> Any:
    """MLflow's own client, to look at what was written without our code."""
    with Store(default_tracking_uri(mlruns, {})).asking("connect") as client:
        return client


def test_registered_policy_comes_back_by_version_and_by_alias(registry: Registry, tmp_path: Path) -> None:
    version = add_version(registry, tmp_path)
    assert version == 1
    assert registry.load(1).sha256 == ppo_bundle().sha256
    registry.set_challenger(1)
    assert registry.load("challenger").sha256 == ppo_bundle().sha256


def test_static_policy_can_be_registered(registry: Registry, tmp_path: Path) -> None:
    static_bundle().save(tmp_path / "static")
    with registry.start_run("static", {}) as run:
        version = registry.register(tmp_path / "static", run, {})
    assert registry.version(version).kind == "static"
    assert registry.load(version).reference == static_bundle().reference


def test_versions_tell_metrics_aliases_and_lineage(registry: Registry, tmp_path: Path, mlruns: Path) -> None:
    before = time.time()
    add_version(registry, tmp_path, 0, saving_usd_per_1000=0.125)
    add_version(registry, tmp_path, 1)
    assert registry.swap_champion(1, None) is None
    newest, oldest = registry.versions()
    assert (newest.version, oldest.version) == (2, 1)
    assert (newest.aliases, oldest.aliases) == ((), ("champion",))
    assert oldest.metrics == {"saving_usd_per_1000": 0.125}
    assert oldest.bundle_sha256 == ppo_bundle(0).sha256
    assert oldest.trace_sha256 == (TRACE_SHA256,)
    assert before - 1 <= oldest.created_unix_seconds <= time.time()
    run = client_of(mlruns).get_run(oldest.run_id)
    assert run.info.run_name == "seed 0"
    assert run.data.params == {"seed": "0"}


def test_more_versions_than_one_page_are_all_listed(registry: Registry, tmp_path: Path, mlruns: Path) -> None:
    add_version(registry, tmp_path)
    client = client_of(mlruns)
    for _ in range(204):  # a page holds 200
        client.create_model_version("cache-policy", source=str(tmp_path))
    assert [version.version for version in registry.versions()] == list(range(205, 0, -1))


def test_metrics_cross_the_batch_limit_and_keep_their_steps(registry: Registry, mlruns: Path) -> None:
    # 3 values per step, one of them missing on odd steps: 2.5 per step, 2,250 in all, three batches.
    rows = (MetricRow(step, {"a": step / 2, "b": 1.0, "c": None if step % 2 else 2.0}) for step in range(900))
    with registry.start_run("curves", {}) as run:
        run.log_metrics(rows)
    client = client_of(mlruns)
    history = client.get_metric_history(run.id, "a")
    assert sorted((m.step, m.value) for m in history) == [(step, step / 2) for step in range(900)]
    assert len(client.get_metric_history(run.id, "c")) == 450
    assert {m.timestamp for m in history} == {1_000_000}  # the clock stands at 1,000 s


def test_more_parameters_than_one_batch_are_all_logged(registry: Registry, mlruns: Path) -> None:
    params = {f"p{number}": number for number in range(250)}
    with registry.start_run("many", params) as run:
        pass
    assert client_of(mlruns).get_run(run.id).data.params == {name: str(n) for name, n in params.items()}


def test_tables_pictures_and_folders_become_artefacts(registry: Registry, mlruns: Path, tmp_path: Path) -> None:
    (tmp_path / "cost.png").write_bytes(b"picture")
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "notes.txt").write_text("x")
    with registry.start_run("artefacts", {}) as run:
        run.log_table("result", {"policy": ["static", "ppo"], "cost_usd": [2.0, None]})
        run.log_picture(tmp_path / "cost.png")
        run.log_folder(tmp_path / "extra", "extra")
    root = Path(run.artifact_uri)
    assert root.is_relative_to(mlruns / "artifacts" / "tuning")
    table = json.loads((root / "tables" / "result.json").read_text())
    assert table == {"columns": ["policy", "cost_usd"], "data": [["static", 2.0], ["ppo", None]]}
    assert (root / "pictures" / "cost.png").read_bytes() == b"picture"
    assert (root / "extra" / "notes.txt").read_text() == "x"
    with registry.start_run("bad", {}) as run, pytest.raises(InputError, match=r"columns of \[1, 2\] rows"):
        run.log_table("result", {"a": [1], "b": [1, 2]})


@pytest.mark.parametrize(
    ("error", "status"), [(None, "FINISHED"), (ValueError, "FAILED"), (KeyboardInterrupt, "KILLED")]
)
def test_run_ends_with_the_right_status(registry: Registry, mlruns: Path, error, status: str) -> None:
    try:
        with registry.start_run("r", {}) as run:
            if error:
                raise error
    except (ValueError, KeyboardInterrupt) as raised:
        assert type(raised) is error  # noqa: PT017 (one case raises nothing)
    info = client_of(mlruns).get_run(run.id).info
    assert (info.status, info.end_time) == (status, 1_000_000)


def test_nothing_registered_yet_is_not_found_and_makes_no_database(tmp_path: Path) -> None:
    registry = Registry(default_tracking_uri(tmp_path / "mlruns", {}), "tuning", "cache-policy")
    for ask in (registry.versions, lambda: registry.load("champion"), lambda: registry.set_challenger(1)):
        with pytest.raises(NotFound, match="nothing registered yet") as raised:
            ask()
        assert raised.value.exit_code == 4
    assert registry.champion() is None
    assert list(tmp_path.iterdir()) == []


def test_empty_store_unknown_version_and_unknown_alias_are_not_found(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nothing registered yet"):
        registry.versions()
    add_version(registry, tmp_path)
    registry.set_challenger(1)
    with pytest.raises(NotFound, match=r"no alias 'champion', there is: challenger"):
        registry.load("champion")
    for ask in (lambda: registry.load(7), lambda: registry.set_challenger(7)):
        with pytest.raises(NotFound, match=r"MLflow at sqlite:.*version.* 7 .*not found"):
            ask()
    with pytest.raises(NotFound):
        registry.set_tag(7, "a", "b")


def test_files_exchanged_in_the_store_are_noticed(registry: Registry, tmp_path: Path) -> None:
    """Bundle 1 in the place of bundle 0 is sound in itself; only the registry's hash tells."""
    add_version(registry, tmp_path, 0)
    (place,) = (tmp_path / "my runs #1 50%" / "artifacts").rglob("bundle.json")
    shutil.rmtree(place.parent)
    ppo_bundle(1).save(place.parent)
    with pytest.raises(Mismatch) as raised:
        registry.load(1)
    assert ppo_bundle(0).sha256 in str(raised.value)
    assert ppo_bundle(1).sha256 in str(raised.value)
    (place.parent / WEIGHTS_FILE).unlink()
    with pytest.raises(InputError, match=rf"policy/.*{WEIGHTS_FILE}"):
        registry.load(1)


def test_folder_that_is_no_bundle_is_not_registered(registry: Registry, tmp_path: Path) -> None:
    with registry.start_run("r", {}) as run, pytest.raises(InputError, match=r"bundle\.json"):
        registry.register(tmp_path, run, {})
    with pytest.raises(NotFound):
        registry.versions()


def test_swap_moves_the_champion_only_from_the_expected_one(registry: Registry, tmp_path: Path) -> None:
    add_version(registry, tmp_path, 0)
    add_version(registry, tmp_path, 1)
    registry.set_challenger(2)
    assert registry.swap_champion(1, None) is None
    assert registry.swap_champion(2, None) == 1
    assert registry.champion() == 1
    assert registry.version(2).aliases == ("challenger",)
    assert registry.swap_champion(2, 1) == 1
    # The challenger became champion, so it is no challenger any more.
    assert registry.version(2).aliases == ("champion",)


@pytest.mark.parametrize("uri", ["mlruns", "file:///tmp/mlruns", "sqlite://"])
def test_stores_that_cannot_work_are_refused(uri: str) -> None:
    with pytest.raises(InputError, match="tracking URI"):
        Registry(uri, "tuning", "cache-policy")


def test_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("my dear diary, this is no database")
    with pytest.raises(InputError, match=r"mlflow\.db: got a file of another kind"):
        Registry(default_tracking_uri(tmp_path, {}), "tuning", "cache-policy")
    assert (tmp_path / "mlflow.db").read_text().startswith("my dear diary")


@pytest.mark.parametrize("name", ["", "a/b", "it's", "../x", "a b"])
def test_names_that_would_escape_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="model name"):
        Registry("sqlite:///x.db", "tuning", name)
    with pytest.raises(InputError, match="experiment"):
        Registry("sqlite:///x.db", name, "cache-policy")


def test_environment_names_the_store_when_set(tmp_path: Path) -> None:
    assert default_tracking_uri(tmp_path, {"MLFLOW_TRACKING_URI": "http://h:1"}) == "http://h:1"
    assert default_tracking_uri(tmp_path, {}) == f"sqlite:///{tmp_path}/mlflow.db"


def test_unreachable_server_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        port = unused.getsockname()[1]
        registry = Registry(f"http://me:secret@127.0.0.1:{port}", "tuning", "cache-policy")
        with pytest.raises(SetpointError, match=f"MLflow at http://127.0.0.1:{port}: cannot") as raised:
            registry.versions()
    assert raised.value.exit_code == 1
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_model_lock_excludes_until_released_and_says_what_to_delete(mlruns: Path) -> None:
    """The lock for servers, on a SQLite store: it needs only that model names are unique."""
    store, other = (Store(default_tracking_uri(mlruns, {})) for _ in range(2))
    with model_lock(store, "m.promotion-lock"):
        waited: list[float] = []
        with (
            pytest.raises(SetpointError, match=r"delete the registered model 'm\.promotion-lock'"),
            model_lock(other, "m.promotion-lock", timeout_seconds=0.3, sleep=waited.append),
        ):
            pytest.fail("two held the lock")
        assert waited == [0.1] * 4
    with model_lock(other, "m.promotion-lock"):
        pass
    assert store.model_tags("m.promotion-lock") is None


def test_lock_held_by_another_process_is_named_after_the_wait(tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    with (
        file_lock(database),
        pytest.raises(SetpointError, match=r"mlflow\.db\.lock: another process has held this lock for 0\.2 s"),
        file_lock(database, timeout_seconds=0.2),
    ):
        pytest.fail("two held the lock")
    with file_lock(database):
        pass
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(SetpointError, match=r"x\.db\.lock: cannot lock"),
        file_lock(tmp_path / "file" / "x.db"),
    ):
        pytest.fail("a lock below a file")


def test_importing_the_registry_does_not_import_mlflow() -> None:
    program = "import sys, agents.promotion; print([m for m in ('mlflow', 'torch') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_new_store_is_made_without_a_word(first_use: FirstUse) -> None:
    """Nothing on stdout or stderr, no deprecation warning, no file outside the given folder."""
    done = first_use.process
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {path.name for path in first_use.mlruns.iterdir()} == {"mlflow.db", "mlflow.db.lock", "artifacts"}
    assert list(first_use.working_folder.iterdir()) == []


@pytest.mark.slow
def test_a_server_works_like_the_local_store(mlflow_server: str, tmp_path: Path) -> None:
    registry = Registry(mlflow_server, "tuning", "cache-policy")
    with pytest.raises(NotFound, match="nothing registered yet"):
        registry.versions()
    add_version(registry, tmp_path, 0, saving_usd_per_1000=0.5)
    add_version(registry, tmp_path, 1)
    assert registry.load(1).sha256 == ppo_bundle(0).sha256
    assert registry.swap_champion(1, None) is None
    assert registry.swap_champion(2, None) == 1
    assert registry.load("champion").sha256 == ppo_bundle(0).sha256
    assert [(v.version, v.aliases) for v in registry.versions()] == [(2, ()), (1, ("champion",))]
    assert registry.versions()[1].metrics == {"saving_usd_per_1000": 0.5}
