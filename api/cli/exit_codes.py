"""What the exit code of `setpoint` means."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Every exit code of the command line. Scripts may rely on the numbers."""

    DONE = 0
    INTERNAL_ERROR = 1
    BAD_INPUT = 2
    NOT_PROMOTED = 3
    NOTHING_FOUND = 4
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.INTERNAL_ERROR: "internal error, with a traceback",
    ExitCode.BAD_INPUT: "bad input or usage; standard error names what and where",
    ExitCode.NOT_PROMOTED: "not promoted; the reasons are printed (`promote` only)",
    ExitCode.NOTHING_FOUND: "nothing found, for example no policy is registered yet or a required signal is missing",
    ExitCode.INTERRUPTED: "interrupted from the keyboard",
}
