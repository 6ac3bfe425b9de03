"""A PostgreSQL of a benchmark's or a test's own, on a free loopback port, with a folder that goes with it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from benchmarks.processes import free_port, running

USER = "setpoint"
SPEED_ONLY = ("-F",)  # what is written may be lost with the machine


def why_not() -> str | None:
    """Why none can be started here; None where one can."""
    if find_spec("psycopg") is None:
        return 'no driver for PostgreSQL: pip install "setpoint[postgres]" brings one'
    if programs_folder() is None:
        return "no PostgreSQL here: apt install postgresql"
    if _account() is not None and shutil.which("setpriv") is None:
        return "PostgreSQL refuses to be root's, and there is no `setpriv` to start it as somebody else"
    return None


def programs_folder() -> Path | None:
    """Of the newest version. Debian keeps the programs of each in a folder of its own, which is not on the PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    versions = [file.parent for file in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(versions, key=lambda folder: int(re.sub(r"\D.*", "", folder.parent.name) or 0), default=None)


def postgres_version() -> str:
    """Such as 15.18. Only where `why_not` finds nothing."""
    line = subprocess.run([str(_programs() / "postgres"), "--version"], capture_output=True, text=True, check=True)
    return line.stdout.split()[2]


@contextmanager
def postgres_process(parent: Path | None = None, *, durable: bool = True) -> Iterator[str]:
    """URL of an empty database, on a server that lets anybody in and ends with the block. parent: of its folder; by
    default where temporary files go. durable: a commit waits until it is on the disk.

    Raises RuntimeError, with its own words, where it does not start, or where `why_not` says why.
    """
    programs = _programs()
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder, port = Path(name), free_port()
        account = _account()
        if account:
            shutil.chown(folder, account)
        options = ["--username", USER, "--auth", "trust", "--encoding", "UTF8", *([] if durable else ["--no-sync"])]
        make = [*_becoming(account), str(programs / "initdb"), "--pgdata", str(folder / "data"), *options]
        made = subprocess.run(make, capture_output=True, text=True, check=False)
        if made.returncode:
            raise RuntimeError(f"initdb failed: {made.stderr[-2000:]}")
        serve = [*_becoming(account), str(programs / "postgres"), "-D", str(folder / "data"), "-p", str(port)]
        serve += ["-k", str(folder), "-c", "listen_addresses=127.0.0.1", *(() if durable else SPEED_ONLY)]
        ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        with running(serve, folder / "log.txt", lambda: subprocess.run(ready, check=False).returncode == 0):
            yield f"postgresql://{USER}@127.0.0.1:{port}/postgres"


def _programs() -> Path:
    folder, reason = programs_folder(), why_not()
    if folder is None or reason is not None:
        raise RuntimeError(reason)
    return folder


def _account() -> str | None:
    """Whose server it has to be: it refuses to be root's."""
    return "nobody" if os.geteuid() == 0 else None


def _becoming(account: str | None) -> list[str]:
    """Words before a command by which it runs as somebody else."""
    if account is None:
        return []
    return ["setpriv", "--reuid", account, "--regid", str(pwd.getpwnam(account).pw_gid), "--clear-groups"]
