"""Looks at answers that were asked for again, in a file: what was learned of how often they change outlives a restart.

A line of JSON for each partition. A look is an age and whether the answer had changed by then, neither of which grows
old while nobody runs. Processes that share the file each write what they know: the last one counts.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from caches.errors import InputError
from caches.files import written_whole
from caches.freshness.change_rate import Look
from caches.keys.partitions import partition_of
from caches.keys.request_key import Partition

Looks = Mapping[Partition, Sequence[Look]]
SHOWN = 60  # characters of a wrong line


class LooksFile:
    """path: made with its folder at the first write, for its owner only: it names tenants and namespaces."""

    def __init__(self, path: Path) -> None:
        self._path, self._writing = path, threading.Lock()

    def read(self) -> Looks:
        """Empty where there is no file. Raises InputError naming file, line and what was expected."""
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise InputError(f"{self._path}: cannot be read: {error.strerror}") from error
        return dict(self._parsed(line, number) for number, line in enumerate(lines, start=1))

    def write(self, looks: Looks) -> None:
        """Raises SetpointError naming the file where it cannot be written."""
        with self._writing, written_whole(self._path) as partial:  # at a stop another write may be on its way
            partial.touch(0o600)
            partial.write_bytes(b"".join(_line(partition, some) for partition, some in looks.items()))

    def _parsed(self, line: bytes, number: int) -> tuple[Partition, list[Look]]:
        try:
            one = orjson.loads(line)
            looks = [_look(age, changed) for age, changed in zip(one["ages_seconds"], one["changed"], strict=True)]
            return partition_of(one["tenant"], one["namespace"]), looks
        except (ValueError, TypeError, KeyError, InputError) as error:
            raise InputError(
                f"{self._path}, line {number}: got {line[:SHOWN]!r}, expected tenant, namespace, ages_seconds above 0 "
                "and as many changed, true or false; without the file all is learned anew"
            ) from error


def _line(partition: Partition, looks: Sequence[Look]) -> bytes:
    line = {
        "tenant": partition.tenant,
        "namespace": partition.namespace,
        "ages_seconds": [look.age_seconds for look in looks],
        "changed": [look.changed for look in looks],
    }
    return orjson.dumps(line) + b"\n"


def _look(age: Any, changed: Any) -> Look:
    if not isinstance(changed, bool) or not isinstance(age, float) or not age > 0.0:
        raise TypeError("no look")
    return Look(age, changed)
