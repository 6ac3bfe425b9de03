"""Runs and policy versions: what was trained, how it did, and which policy is the champion.

A policy version is a plain folder (a PolicyBundle) in MLflow's registry, with lineage to the run that made
it; the aliases in use are `champion` and `challenger`. Nothing on a serving path calls into this module.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agents.bundle import PolicyBundle
from agents.mlflow_store import Store, mlflow
from caches.errors import InputError, Mismatch, NotFound

CHAMPION, CHALLENGER = "champion", "challenger"

_BATCH_METRICS, _BATCH_PARAMS = 1000, 100  # the most that MLflow takes in one call
_METRIC_TAG = "metric."


@dataclass(frozen=True)
class MetricRow:
    """Metrics of one step, by name with unit; None where there is no data, which is then not logged."""

    step: int
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class PolicyVersion:
    """One registered policy. `kind` and `bundle_sha256` are None where something else registered it."""

    version: int
    aliases: tuple[str, ...]
    created_unix_seconds: float
    run_id: str | None
    kind: str | None
    bundle_sha256: str | None
    trace_sha256: tuple[str, ...]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]


class Run:
    """An MLflow run that is under way; made by Registry.start_run."""

    def __init__(self, store: Store, info: Any, now_ms: Callable[[], int]) -> None:
        self.id: str = info.run_id
        self.artifact_uri: str = info.artifact_uri
        self._store, self._now_ms = store, now_ms

    def log_metrics(self, rows: Iterable[MetricRow]) -> None:
        """Log many values at once: one call to the store per thousand."""
        now_ms = self._now_ms()
        metrics = (
            mlflow().entities.Metric(name, float(value), now_ms, row.step)
            for row in rows
            for name, value in row.values.items()
            if value is not None
        )
        with self._store.asking(f"log metrics of run {self.id}") as client:
            while batch := list(islice(metrics, _BATCH_METRICS)):
                client.log_batch(self.id, metrics=batch)

    def log_table(self, name: str, columns: Mapping[str, Sequence[object]]) -> None:
        """Log a table for MLflow's pages, as the artefact `tables/<name>.json`; columns are of one length."""
        lengths = sorted({len(column) for column in columns.values()})
        if len(lengths) != 1:
            raise InputError(f"table {name}: got columns of {lengths} rows, expected one length")
        data = {title: list(column) for title, column in columns.items()}
        with self._store.asking(f"log table {name}") as client, warnings.catch_warnings():
            # mlflow 3.17 selects object columns in a way that pandas 3 deprecates.
            warnings.filterwarnings("ignore", "For backward compatibility, 'str' dtypes", DeprecationWarning)
            client.log_table(self.id, data, f"tables/{name}.json")

    def log_picture(self, path: Path) -> None:
        """Copy a picture to the run's artefacts, under `pictures`."""
        with self._store.asking(f"log picture {path}") as client:
            client.log_artifact(self.id, str(path), "pictures")

    def log_folder(self, path: Path, name: str) -> None:
        """Copy everything below `path` to the run's artefacts, under `name`."""
        with self._store.asking(f"log folder {path}") as client:
            client.log_artifacts(self.id, str(path), name)


class Registry:
    """One experiment and one registered model of an MLflow store; see Store for `tracking_uri`.

    Making one asks nothing of the store. Every method raises SetpointError, saying what could not be done
    where, when the store fails.
    """

    def __init__(
        self, tracking_uri: str, experiment: str, model_name: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = Store(tracking_uri)
        self.experiment = _checked_name("experiment", experiment)
        self.model_name = _checked_name("model name", model_name)
        self._clock = clock

    @contextmanager
    def start_run(
        self, name: str, params: Mapping[str, object], tags: Mapping[str, str] | None = None
    ) -> Iterator[Run]:
        """A run that ends FINISHED, FAILED when the block raises, or KILLED when it is interrupted."""
        experiment_id = self._store.experiment_id(self.experiment)
        with self._store.asking(f"start run {name}") as client:
            info = client.create_run(experiment_id, self._now_ms(), dict(tags or {}), name).info
            logged = iter([mlflow().entities.Param(key, str(value)) for key, value in params.items()])
            while batch := list(islice(logged, _BATCH_PARAMS)):
                client.log_batch(info.run_id, params=batch)
        status = "FAILED"
        try:
            yield Run(self._store, info, self._now_ms)
            status = "FINISHED"
        except KeyboardInterrupt:
            status = "KILLED"
            raise
        finally:
            with self._store.asking(f"end run {name}") as client:
                client.set_terminated(info.run_id, status, self._now_ms())

    def register(self, bundle_folder: Path, run: Run, metrics: Mapping[str, float]) -> int:
        """Copy a saved bundle to the run's artefacts and register it; returns the new version's number.

        metrics: shown with the version, by name with unit. Raises InputError for a folder that is no bundle.
        """
        bundle = PolicyBundle.load(bundle_folder)
        sha256 = bundle.sha256
        place = f"policy/{sha256[:12]}"
        tags = {
            "kind": bundle.kind,
            "bundle_sha256": sha256,
            "trace_sha256": ",".join(bundle.provenance.trace_sha256),
        } | {f"{_METRIC_TAG}{name}": repr(float(value)) for name, value in metrics.items()}
        run.log_folder(bundle_folder, place)
        self._store.create_model(self.model_name, {})
        with self._store.asking(f"register {bundle_folder}") as client:
            source = f"{run.artifact_uri}/{place}"
            made = client.create_model_version(self.model_name, source, run.id, tags=tags)
        return int(made.version)

    def load(self, reference: int | str) -> PolicyBundle:
        """The policy of a version number or an alias.

        Raises NotFound for an unknown one, InputError for damaged files, and Mismatch where the files are
        sound but are not those that were registered.
        """
        found = self.version(reference)
        with self._store.asking(f"find the files of version {found.version}") as client:
            uri = client.get_model_version_download_uri(self.model_name, str(found.version))
        with TemporaryDirectory() as scratch:
            bundle = PolicyBundle.load(self._store.local_copy(uri, Path(scratch)))
        if bundle.sha256 != found.bundle_sha256:
            raise Mismatch(
                f"policy version {found.version}: the registry has bundle {found.bundle_sha256}, "
                f"the files at {uri} are bundle {bundle.sha256}"
            )
        return bundle

    def version(self, reference: int | str) -> PolicyVersion:
        """One version by number or alias. Raises NotFound for an unknown one."""
        aliases = self._aliases()
        number = aliases.get(reference) if isinstance(reference, str) else reference
        if number is None:
            known = ", ".join(sorted(aliases)) or "none"
            raise NotFound(f"policy {self.model_name}: no alias {reference!r}, there is: {known}")
        with self._store.asking(f"read version {number} of {self.model_name}") as client:
            return _policy_version(client.get_model_version(self.model_name, str(number)), aliases)

    def versions(self) -> list[PolicyVersion]:
        """All versions, newest first. Raises NotFound when nothing has been registered yet."""
        aliases = self._aliases()
        found: list[PolicyVersion] = []
        token = None
        with self._store.asking(f"list versions of {self.model_name}") as client:
            while token != "":
                page = client.search_model_versions(f"name='{self.model_name}'", page_token=token)
                found += [_policy_version(version, aliases) for version in page]
                token = page.token or ""
        return sorted(found, key=lambda version: version.version, reverse=True)

    def champion(self) -> int | None:
        """The champion's version; None where there is none, also when nothing has been registered yet."""
        try:
            return self._aliases().get(CHAMPION)
        except NotFound:
            return None

    def set_challenger(self, version: int) -> None:
        """Raises NotFound for an unknown version."""
        self._set_alias(CHALLENGER, version)

    def forget_aliases(self) -> None:
        """No version is champion or challenger any more; nothing where nothing has been registered yet."""
        try:
            aliases = self._aliases()
        except NotFound:
            return
        with self._store.asking(f"remove the aliases of {self.model_name}") as client:
            for alias in aliases:
                client.delete_registered_model_alias(self.model_name, alias)

    def set_tag(self, version: int, name: str, value: str) -> None:
        """Note something down with a version; `version(...).tags` has it. NotFound for an unknown version."""
        with self._store.asking(f"tag version {version} of {self.model_name}") as client:
            client.set_model_version_tag(self.model_name, str(version), name, value)

    def swap_champion(self, version: int, expected: int | None) -> int | None:
        """Make `version` the champion if the champion is still `expected`; returns the champion it found.

        So the swap was made exactly when the result equals `expected`. A challenger alias on `version` goes.

        SQLite: the alias is read and written under an operating-system lock on a file beside the database.
        Of several swaps that expect the same champion exactly one is made, on any file system whose locks
        work; a process that dies lets go of the lock.
        Other stores: the lock is a registered model, `<model>.promotion-lock`. MLflow refuses a second model
        of one name (it is a primary key of the server's database), so again there is one holder at a time.
        Nobody breaks this lock: a process killed while holding it leaves it behind, and later swaps fail,
        saying what to delete, until a person does. Safety is kept at the price of that step by hand.
        In neither case is there protection from someone who moves the alias without this method (in MLflow's
        pages, say) or deletes a lock that is in use; and on a server a release that the client repeats after
        a lost answer can remove the lock of the next holder.
        """
        with self._store.swap_lock(self.model_name):
            found = self.champion()
            if found == expected:
                self._set_alias(CHAMPION, version)
                self._drop_challenger(version)
            return found

    def _drop_challenger(self, version: int) -> None:
        if self._aliases().get(CHALLENGER) == version:
            with self._store.asking("remove the challenger alias") as client:
                client.delete_registered_model_alias(self.model_name, CHALLENGER)

    def _set_alias(self, alias: str, version: int) -> None:
        self._aliases()
        with self._store.asking(f"make version {version} of {self.model_name} the {alias}") as client:
            client.set_registered_model_alias(self.model_name, alias, str(version))

    def _aliases(self) -> dict[str, int]:
        # Read from the model: on SQLite, search_model_versions leaves the aliases empty.
        nothing = NotFound(f"policy {self.model_name}: nothing registered yet")
        if self._store.is_missing:
            raise nothing
        try:
            with self._store.asking(f"read {self.model_name}") as client:
                model = client.get_registered_model(self.model_name)
        except NotFound as error:
            raise nothing from error
        return {alias: int(version) for alias, version in model.aliases.items()}

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def _policy_version(found: Any, aliases: Mapping[str, int]) -> PolicyVersion:
    tags, number = dict(found.tags), int(found.version)
    return PolicyVersion(
        version=number,
        aliases=tuple(sorted(alias for alias, version in aliases.items() if version == number)),
        created_unix_seconds=found.creation_timestamp / 1000,
        run_id=found.run_id or None,
        kind=tags.get("kind"),
        bundle_sha256=tags.get("bundle_sha256"),
        trace_sha256=tuple(filter(None, tags.get("trace_sha256", "").split(","))),
        metrics={
            name.removeprefix(_METRIC_TAG): float(value) for name, value in tags.items() if name.startswith(_METRIC_TAG)
        },
        tags=tags,
    )


def _checked_name(what: str, name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise InputError(f"{what}: got {name!r}, expected letters, digits, '-', '_' and '.'")
    return name
