"""What is said of namespaces, each by its name or by how their names begin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Generic, TypeVar

from caches.errors import InputError
from caches.keys.partitions import EXPECTED, NAME

Value = TypeVar("Value")

ANY = "*"
PATTERN = re.compile(rf"{NAME.pattern}|[A-Za-z0-9][A-Za-z0-9._-]{{0,62}}\*|\*")


class ByName(Generic[Value]):
    """values: by a whole name, or by a beginning and `*`. A whole name counts before all, then the longest beginning,
    then the default. Raises InputError for what is neither."""

    def __init__(self, values: Mapping[str, Value], default: Value) -> None:
        for pattern in values:
            if not PATTERN.fullmatch(pattern):
                raise InputError(
                    f"namespace: got {pattern[:80]!r}, expected a name or the beginning of names and *, of {EXPECTED}"
                )
        self._whole = {name: value for name, value in values.items() if not name.endswith(ANY)}
        beginnings = sorted((name for name in values if name.endswith(ANY)), key=len, reverse=True)
        self._beginnings = [(name.removesuffix(ANY), values[name]) for name in beginnings]
        self._default = default

    def of(self, name: str) -> Value:
        if name in self._whole:
            return self._whole[name]
        return next((value for start, value in self._beginnings if name.startswith(start)), self._default)

    def values(self) -> list[Value]:
        """All, the default first."""
        return [self._default, *self._whole.values(), *(value for _, value in self._beginnings)]
