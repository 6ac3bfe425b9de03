"""Synthetic workloads from TOML: one table per part, named as in `traces.synthetic.parts`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from caches.errors import InputError
from traces.synthetic import parts
from traces.synthetic.parts import SyntheticWorkload

_PARTS = (
    parts.Popularity,
    parts.Rate,
    parts.Drift,
    parts.Launch,
    parts.FlashCrowd,
    parts.Scan,
    parts.Sessions,
    parts.Sizes,
    parts.Tokens,
)
_FIELDS = {part.TABLE: [f.name for f in fields(part)] for part in _PARTS}
_TOP = [f.name for f in fields(SyntheticWorkload)]


def load_workload(path: Path | None, settings: Sequence[str] = ()) -> SyntheticWorkload:
    """A workload from a TOML file, from single settings, or from both; without either, the defaults.

    settings: lines of TOML such as `popularity.alpha = 1.1`, which win over the file. Raises InputError
    naming the file or setting, the field, and for an unknown name the nearest known one.
    """
    content: dict[str, Any] = {} if path is None else _parse_file(path)
    origin = "workload" if path is None else str(path)
    _check_names(content, origin)
    for setting in settings:
        given = _parse_setting(setting)
        _check_names(given, f"setting {setting!r}")
        _overlay(content, given)
    try:
        # As JSON, because only there strict types (no true for 1, no "5" for 5) allow lists for tuples.
        return TypeAdapter(SyntheticWorkload).validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        raise InputError(_first_problem(error, origin)) from error
    except InputError as error:
        raise InputError(f"{origin}, {error}") from error


def _parse_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: got no such file, expected a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
        raise InputError(f"{path}: got {error}, expected a TOML file") from error


def _parse_setting(setting: str) -> dict[str, Any]:
    try:
        return tomllib.loads(setting)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"setting {setting!r}: got {error}, expected TOML such as rate.mean_rps = 5") from error


def _check_names(content: dict[str, Any], origin: str) -> None:
    for name, value in content.items():
        _check_name(name, _TOP, origin, "")
        tables = value if isinstance(value, list) else [value]
        for table in tables:
            if isinstance(table, dict):
                for inner in table:
                    _check_name(inner, _FIELDS.get(name, []), origin, f"{name}.")


def _check_name(name: str, known: list[str], origin: str, prefix: str) -> None:
    if name in known:
        return
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"{prefix}{near[0]}" if near else f"one of {', '.join(known)}"
    raise InputError(f"{origin}: got the unknown name {prefix}{name}, expected {hint}")


def _overlay(content: dict[str, Any], given: dict[str, Any]) -> None:
    for name, value in given.items():
        if isinstance(value, dict) and isinstance(content.get(name), dict):
            content[name].update(value)
        else:
            content[name] = value


def _first_problem(error: ValidationError, origin: str) -> str:
    problem = error.errors()[0]
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return f"{origin}: got no {place}, expected it to be set"
    expected = problem["msg"].removeprefix("Input should be ")
    return f"{origin}, {place}: got {problem['input']!r}, expected {expected}"
