"""Which column of a file plays which role, for the formats without fixed names (csv, jsonl, parquet)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from caches.errors import InputError

ROLES = ("time", "key", "size", "prompt_tokens", "output_tokens", "namespace", "ttl", "operation", "session")
CHUNK_NAMES = {"ttl": "ttl_seconds"}
# Other names of columns, taken for a role where its own name is absent. Only names that leave no doubt about the unit.
ALIASES = {
    "time": ("t_s", "time_seconds", "arrival_seconds"),
    "size": ("size_b", "size_bytes"),
    "ttl": ("ttl_s", "ttl_seconds"),
}


def check_roles(columns: Mapping[str, str]) -> None:
    """Raises InputError for a role that does not exist, naming the nearest one that does."""
    for role in columns:
        if role not in ROLES:
            near = difflib.get_close_matches(role, ROLES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InputError(f"column role: got {role!r}, expected one of {', '.join(ROLES)}{hint}")


def resolve(path: Path, columns: Mapping[str, str], present: tuple[str, ...]) -> dict[str, str]:
    """Role -> column. A role without a mapping takes the column of its own name or of one of its ALIASES.

    Raises InputError where a mapped column or a column for the keys is missing.
    """
    check_roles(columns)
    for role, column in columns.items():
        if column not in present:
            near = difflib.get_close_matches(column, present, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"{path}, {role}: got the column {column!r}, expected one of {', '.join(present)}{hint}")
    found = {role: name for role in ROLES if (name := _column_of(role, columns, present)) is not None}
    if "key" not in found:
        raise InputError(
            f"{path}, key: got no column for the keys, expected key=COLUMN with one of {', '.join(present)}"
        )
    return found


def _column_of(role: str, columns: Mapping[str, str], present: tuple[str, ...]) -> str | None:
    names = (columns[role],) if role in columns else (role, *ALIASES.get(role, ()))
    return next((name for name in names if name in present), None)


def chunk_names(mapping: Mapping[str, str]) -> dict[str, str]:
    """`Chunk.names` for a mapping."""
    return {CHUNK_NAMES.get(role, role): column for role, column in mapping.items()}
