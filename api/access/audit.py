"""A record of what was refused and what was asked for: lines of JSON that are only ever added."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import orjson

from caches.errors import InputError, SetpointError


class AuditUnavailable(SetpointError):
    """A line could not be written. What was to be recorded is then not done."""


class Audit:
    """To a file that only its owner reads, or to standard error. Each line is written in one go, so several processes
    may share the file. Used by several threads."""

    def __init__(self, path: Path | None, clock: Callable[[], float], setting: str = "api.audit_log") -> None:
        """clock: Unix time. setting: that names the path. Raises InputError for a file that cannot be written."""
        self._clock, self._lock, self._path = clock, threading.Lock(), path
        self._file: int | None = None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise InputError(f"{setting}: {path} cannot be written: {error.strerror}") from error

    def note(self, event: str, who: str, address: str, **more: object) -> None:
        """event: denied, wish, login, logout. Raises AuditUnavailable."""
        told = {"at_seconds": round(self._clock(), 3), "event": event, "who": who, "address": address, **more}
        line = orjson.dumps(told) + b"\n"
        with self._lock:
            if self._file is None:
                sys.stderr.write(line.decode())
                return
            try:
                written = os.write(self._file, line)
            except OSError as error:
                raise AuditUnavailable(f"audit log {self._path}: {error.strerror}") from error
            if written < len(line):
                raise AuditUnavailable(f"audit log {self._path}: the disk is full")

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None
