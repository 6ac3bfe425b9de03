"""A real PostgreSQL for tests: one that is named, or one that is started."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers import free_port, running

MEMORY = Path("/dev/shm")
START_SECONDS = 60.0
USER = "setpoint"


@contextmanager
def postgres_database() -> Iterator[str]:
    """URL of a database: SETPOINT_TEST_POSTGRESQL, or on the newest PostgreSQL that is installed. Without either, or
    without the driver, the test is skipped."""
    pytest.importorskip("psycopg", reason='no driver for PostgreSQL: pip install "setpoint[postgres]" brings one')
    named, programs = os.environ.get("SETPOINT_TEST_POSTGRESQL"), programs_folder()
    if named:
        yield named
    elif programs is None:
        pytest.skip("no PostgreSQL here: neither SETPOINT_TEST_POSTGRESQL=postgresql://… nor `apt install postgresql`")
    else:
        place = MEMORY if MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(dir=place) as folder, postgres_running(programs, Path(folder)) as port:
            yield f"postgresql://{USER}@127.0.0.1:{port}/postgres"


def programs_folder() -> Path | None:
    """Debian keeps the programs of each version in a folder of its own, which is not on the PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    versions = [file.parent for file in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(versions, key=lambda folder: int(re.sub(r"\D.*", "", folder.parent.name) or 0), default=None)


@contextmanager
def postgres_running(programs: Path, folder: Path) -> Iterator[int]:
    """Port of a server on loopback that lets anybody in and does not wait for the disk."""
    data, port = folder / "data", free_port()
    who = account()
    if who:
        shutil.chown(folder, who)
    make = [*becoming(who), str(programs / "initdb"), "--pgdata", str(data), "--username", USER, "--auth", "trust"]
    made = subprocess.run([*make, "--encoding", "UTF8", "--no-sync"], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.fail(f"initdb failed:\n{made.stderr[-2000:]}")
    serve = [*becoming(who), str(programs / "postgres"), "-D", str(data), "-p", str(port), "-F", "-k", str(folder)]
    ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    with running(
        [*serve, "-c", "listen_addresses=127.0.0.1"],
        folder,
        lambda: subprocess.run(ready, check=False).returncode == 0,
        START_SECONDS,
    ):
        yield port


def account() -> str | None:
    """Whose server it has to be: it refuses to be root's."""
    return "nobody" if os.geteuid() == 0 else None


def becoming(who: str | None) -> list[str]:
    """Words before a command by which it runs as somebody else."""
    if who is None:
        return []
    program = shutil.which("setpriv")
    if program is None:
        pytest.skip("PostgreSQL refuses to be root's, and there is no `setpriv` to start it as somebody else")
    return [program, "--reuid", who, "--regid", str(pwd.getpwnam(who).pw_gid), "--clear-groups"]
