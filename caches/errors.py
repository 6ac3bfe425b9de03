"""Errors that a person can act on. The command line prints their text on one line and exits with `exit_code`."""

from __future__ import annotations

from pathlib import Path


class SetpointError(Exception):
    """Base of every error that Setpoint raises on purpose."""

    exit_code = 1


class InputError(SetpointError):
    """Something the user gave us is wrong: says where, what it was and what was expected."""

    exit_code = 2


class BadRecord(InputError):
    """A record of an input file is wrong.

    `line` counts from 1 and is None where the format has no lines (say "record N" in `field` then).
    """

    def __init__(self, path: Path | str, line: int | None, field: str | None, value: object, expected: str) -> None:
        self.path, self.line, self.field, self.value, self.expected = path, line, field, value, expected
        place = f"{path}" if line is None else f"{path}, line {line}"
        what = "" if field is None else f", {field}"
        super().__init__(f"{place}{what}: got {_shorten(value)}, expected {expected}")


class Mismatch(InputError):
    """Two parts that must agree do not, for example a policy bundle and the running observation version."""


class NotFound(SetpointError):
    """What was asked for is not there (yet), for example a champion before the first promotion."""

    exit_code = 4


def _shorten(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
