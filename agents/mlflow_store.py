"""The connection to MLflow: the only file that imports mlflow.

mlflow takes seconds to import and a new database seconds to make, so both wait for the first call that needs
them; importing this module is cheap. Failures of the store become errors of ours that say what and where.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agents.champion_lock import file_lock, model_lock
from caches.errors import InputError, NotFound, SetpointError

_SQLITE = "sqlite:///"


def default_tracking_uri(mlruns: Path, environ: Mapping[str, str]) -> str:
    """MLFLOW_TRACKING_URI where it is set, else the SQLite database `mlflow.db` in the folder `mlruns`."""
    return environ.get("MLFLOW_TRACKING_URI") or f"{_SQLITE}{mlruns.absolute() / 'mlflow.db'}"


class Store:
    """One MLflow store: `sqlite:///<path of the database>`, the address of a server, or a database's address.

    database: the file of a SQLite store, else None; the first call of `asking` makes it. Raises InputError
    where the path holds something else.
    """

    def __init__(self, tracking_uri: str) -> None:
        self.database = _database_path(tracking_uri)
        self.tracking_uri = tracking_uri if self.database is None else f"{_SQLITE}{self.database}"

    @property
    def is_missing(self) -> bool:
        """True where a SQLite database would have to be made first, so that nothing can be read."""
        return self.database is not None and not self.database.exists()

    @contextmanager
    def asking(self, what: str) -> Iterator[Any]:
        """The MLflow client, for a block whose failures become SetpointError: cannot do `what`, where, why.

        What the store does not have becomes NotFound.
        """
        try:
            yield self._client
        except _failures() as error:
            kind = NotFound if _is_code(error, "RESOURCE_DOES_NOT_EXIST") else SetpointError
            reason = str(error).partition("\n")[0]
            text = _without_password(f"MLflow at {self.tracking_uri}: cannot {what}: {reason}")
            raise kind(text[:400]) from error

    def experiment_id(self, name: str) -> str:
        """The experiment's id; makes it where it is new. With SQLite its artefacts go beside the database."""
        place = None if self.database is None else str(self.database.parent / "artifacts" / name)
        with self.asking(f"open experiment {name}") as client:
            if client.get_experiment_by_name(name) is None:
                _unless_exists(lambda: client.create_experiment(name, place))
            return str(client.get_experiment_by_name(name).experiment_id)

    def create_model(self, name: str, tags: Mapping[str, str]) -> bool:
        """Make a registered model; False, changing nothing, where it exists already."""
        with self.asking(f"create registered model {name}") as client:
            return _unless_exists(lambda: client.create_registered_model(name, tags=dict(tags)))

    def model_tags(self, name: str) -> Mapping[str, str] | None:
        """None where there is no such registered model."""
        try:
            with self.asking(f"read registered model {name}") as client:
                return dict(client.get_registered_model(name).tags)
        except NotFound:
            return None

    def delete_model(self, name: str) -> None:
        """Remove a registered model."""
        with self.asking(f"delete registered model {name}") as client:
            client.delete_registered_model(name)

    def swap_lock(self, model_name: str) -> AbstractContextManager[None]:
        """One holder at a time for all users of the store; Registry.swap_champion says how far that goes."""
        if self.database is None:
            return model_lock(self, f"{model_name}.promotion-lock")
        return file_lock(self.database)

    def local_copy(self, uri: str, scratch: Path) -> Path:
        """A folder with the artefacts at `uri`: the place itself where it is on this machine, else a copy."""
        if uri.startswith("/"):
            return Path(uri)
        with self.asking(f"download {uri}"):
            copy = mlflow().artifacts.download_artifacts(uri, dst_path=str(scratch), tracking_uri=self.tracking_uri)
        return Path(copy)

    @cached_property
    def _client(self) -> Any:
        if self.database is None or self.database.exists():
            return self._connect()
        with file_lock(self.database):  # two processes that migrate one new database get in each other's way
            return self._connect()

    def _connect(self) -> Any:
        with warnings.catch_warnings():
            # mlflow 3.17 maps its tables with a loader option that SQLAlchemy 2.1 deprecates.
            warnings.filterwarnings("ignore", "The ``noload`` loader strategy", DeprecationWarning)
            client = mlflow().MlflowClient(self.tracking_uri, self.tracking_uri)
            client.search_experiments(max_results=1)
            client.search_registered_models(max_results=1)
        return client


@cache
def mlflow() -> Any:
    """The mlflow package, told to be quiet before it is imported; settings of the user's own stay."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    # mlflow's default of seven retries takes four minutes to report a server that is not there.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    import mlflow as package

    return package


def _is_code(error: Exception, code: str) -> bool:
    """Whether a failure is the one that MLflow calls `code`."""
    return getattr(error, "error_code", None) == code


@cache
def _failures() -> tuple[type[Exception], ...]:
    """What a failing store raises: mlflow's own error, its database layer's, and the file system's."""
    from sqlalchemy.exc import SQLAlchemyError

    return mlflow().exceptions.MlflowException, SQLAlchemyError, OSError


def _unless_exists(create: Any) -> bool:
    try:
        create()
    except _failures() as error:
        if not _is_code(error, "RESOURCE_ALREADY_EXISTS"):
            raise
        return False
    return True


def _database_path(tracking_uri: str) -> Path | None:
    if not tracking_uri.startswith(_SQLITE):
        if urlsplit(tracking_uri).scheme in ("", "file", "sqlite"):
            raise InputError(
                f"tracking URI: got {tracking_uri!r}, expected sqlite:///<path> or the address of a server"
            )
        return None
    path = Path(tracking_uri.removeprefix(_SQLITE)).absolute()
    if path.exists() and _first_bytes(path) not in (b"", b"SQLite format 3"):
        raise InputError(f"{path}: got a file of another kind, expected a SQLite database")
    return path


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(15)
    except OSError as error:
        raise InputError(f"{path}: cannot be read as a database: {error.strerror}") from error


def _without_password(text: str) -> str:
    return re.sub(r"://[^/\s]*@", "://", text)
