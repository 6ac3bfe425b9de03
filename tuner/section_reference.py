"""Sections of settings as pages to read: every key with default, unit and help."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from typing import get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tuner.config_loader import entry_class, section_class


def section_reference(section: type[BaseModel], path: str, brackets: str = "[]") -> Iterator[str]:
    """The part of a reference page for a section and those below it; path: dotted, empty for the whole. Of sections
    that are named by whoever sets them, and of lists of sections, the form of one is told."""
    fields = section.model_fields
    rows = [_row(name, info) for name, info in fields.items() if not (section_class(info) or entry_class(info))]
    if rows:
        opening, closing = brackets[: len(brackets) // 2], brackets[len(brackets) // 2 :]
        yield f"\n## {opening}{path}{closing}\n\n{inspect.getdoc(section)}\n\n{_TABLE_HEAD}"
        yield from rows
    for name, info in fields.items():
        below = f"{path}.{name}" if path else name
        inner, entry = section_class(info), entry_class(info)
        if inner is not None:
            yield from section_reference(inner, below)
        elif entry is not None:
            named = get_origin(info.annotation) is dict
            yield from section_reference(entry, f"{below}.NAME" if named else below, "[]" if named else "[[]]")


def _row(name: str, info: FieldInfo) -> str:
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    meaning = _sentence(str(info.description))
    if "source" in extra:
        meaning += f" Source: {_sentence(str(extra['source']), capital=False)}"
    if "variable" in extra:
        meaning += f" The variable `{extra['variable']}` sets it too."
    default = "required" if info.is_required() else _literal(info.get_default(call_default_factory=True))
    return f"| `{name}` | {default} | {extra.get('unit', '')} | {meaning} |\n"


def _sentence(text: str, capital: bool = True) -> str:
    return f"{text[:1].upper() if capital else text[:1]}{text[1:].rstrip('.')}."


def _literal(value: object) -> str:
    """As it would be written in TOML."""
    if value is None:
        return "not set"
    if isinstance(value, Enum):
        return _literal(value.value)
    if isinstance(value, tuple):
        return f"`{[one.value if isinstance(one, Enum) else one for one in value]}`"
    if isinstance(value, dict):
        return f"`{value}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if isinstance(value, int | float) else f'`"{value}"`'


_TABLE_HEAD = "| key | default | unit | meaning |\n|---|---|---|---|\n"
