"""The first bytes of an SQLite file, which say whose it is before anything is done to it."""

from __future__ import annotations

from pathlib import Path

from caches.errors import InputError

HEADER_BYTES = 100
_VERSION, _APPLICATION = slice(60, 64), slice(68, 72)  # user_version and application_id


def version_in(path: Path, application: int, expected: str) -> int | None:
    """The version of the format that is there; None where nothing is. Only reads.

    application: the id of whose files are meant. expected: how errors end. Raises InputError for any other file, so
    that it is never written to.
    """
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(header) < HEADER_BYTES or not header.startswith(b"SQLite format 3\0"):
        raise InputError(f"{path}: got a file that is no SQLite database, {expected}")
    if int.from_bytes(header[_APPLICATION]) != application:
        raise InputError(f"{path}: got an SQLite database of another program, {expected}")
    return int.from_bytes(header[_VERSION])
