"""Questions out of what an operator has of them: a request log, a text file, or the folder of a semantic tier."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from caches.errors import InputError
from caches.semantic.questions import LONGEST_QUESTION, speaks
from caches.semantic.snapshot import ENTRIES, entries_in
from traces.json_rows import json_rows
from traces.reader import ReadOptions
from traces.streams import read_blocks, uncompressed_name

TEXTS = ("question", "text", "prompt", "input")


def questions_of(path: Path) -> list[str]:
    """As often as they were asked, in order; those that are never matched by meaning are left out.

    A folder: the entries of a semantic tier. JSON lines: the last user message of `messages`, else the text in one of
    TEXTS. Any other file: a question a line. Also .gz and .zst. Raises InputError, and BadRecord with the line.
    """
    if path.is_dir():
        if not (path / ENTRIES).is_file():
            raise InputError(f"{path}: got a folder without {ENTRIES}, expected that of a semantic tier")
        found: Iterator[str | None] = (key.question for key, _ in entries_in(path))
    elif uncompressed_name(path).endswith((".jsonl", ".ndjson")):
        found = (_asked(row.fields) for rows in json_rows(path, ReadOptions()) for row in rows)
    else:
        found = _lines(path)
    return [one for one in found if one is not None and speaks(one, LONGEST_QUESTION)]


def _asked(fields: dict[str, Any]) -> str | None:
    messages = fields.get("messages")
    if isinstance(messages, list):
        last = messages[-1] if messages else None
        content = last.get("content") if isinstance(last, dict) and last.get("role") == "user" else None
        return content if isinstance(content, str) else None
    return next((fields[name] for name in TEXTS if isinstance(fields.get(name), str)), None)


def _lines(path: Path) -> Iterator[str]:
    for block in read_blocks(path, ReadOptions().chunk_bytes, None):
        for number, line in enumerate(block.data.split(b"\n"), block.first_line):
            try:
                yield line.decode().strip()
            except UnicodeDecodeError as error:
                raise InputError(f"{path}, line {number}: got text that is not UTF-8, expected a question") from error
