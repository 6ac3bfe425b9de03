"""Mooncake and Qwen-Bailian traces: JSON lines with token counts and the hashes of the prompt's blocks.

Mooncake (FAST '25): `timestamp` in ms, `input_length`, `output_length`, `hash_ids` of 512-token blocks.
Qwen-Bailian (ATC '25): the same with `timestamp` in s, chat ids, and 16-token blocks, as the file name says
(`qwen_traceA_blksz_16.jsonl`); the chat ids tell sessions, `turn` and `type` are not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from traces.blocks import prompt_key
from traces.json_rows import JsonRow, json_rows, locator
from traces.modelled import SIZE_FROM_OUTPUT, size_from_output
from traces.reader import Blocks, Chunk, Format, Head, ReadOptions, TimeUnit

MOONCAKE_BLOCK_TOKENS = 512
BAILIAN_BLOCK_TOKENS = 16
NAMES = {
    "time": "timestamp",
    "prompt_tokens": "input_length",
    "output_tokens": "output_length",
    "size": "output_length",
}


def read(path: Path, options: ReadOptions) -> Iterator[Chunk]:
    """A request's key is its whole chain of blocks and its length: equal prompts have equal keys."""
    unit, block_tokens = options.time_unit, _block_tokens_in_name(path)
    chats = _Chats()
    for rows in json_rows(path, options):
        bailian = "chat_id" in rows[0].fields
        unit = unit or ("s" if bailian else "ms")
        block_tokens = block_tokens or (BAILIAN_BLOCK_TOKENS if bailian else MOONCAKE_BLOCK_TOKENS)
        chunk = _chunk(rows, unit, block_tokens)
        yield replace(chunk, session=pa.array([chats.first_of(row) for row in rows])) if bailian else chunk


class _Chats:
    """Each request of Bailian is a chat of its own that names the one it goes on from, -1 for none."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}

    def first_of(self, row: JsonRow) -> int:
        """The chat that began the session; one before the file's beginning stands for those before it."""
        chat, parent = row.integer("chat_id"), row.integer("parent_chat_id")
        self._first[chat] = chat if parent < 0 else self._first.get(parent, parent)
        return self._first[chat]


def _chunk(rows: list[JsonRow], unit: TimeUnit, block_tokens: int) -> Chunk:
    chains = [_chain(row) for row in rows]
    prompt = np.array([row.integer("input_length") for row in rows], dtype=np.int64)
    output = np.array([row.integer("output_length") for row in rows], dtype=np.int64)
    lengths = [len(chain) for chain in chains]
    return Chunk(
        keys=pa.array([prompt_key(chain, length) for chain, length in zip(chains, prompt, strict=True)], pa.binary()),
        locate=locator(rows),
        time=np.array([row.seconds("timestamp", unit) for row in rows]),
        size=size_from_output(output),
        prompt_tokens=prompt,
        output_tokens=output,
        blocks=Blocks(np.cumsum([0, *lengths], dtype=np.int64), np.concatenate(chains), block_tokens),
        names=NAMES,
        assumptions=(SIZE_FROM_OUTPUT,),
    )


def _chain(row: JsonRow) -> NDArray[np.int64]:
    value: Any = row.get("hash_ids")
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise row.bad("hash_ids", "a list of integers")
    try:
        return np.array(value, dtype=np.int64)
    except OverflowError as error:
        raise row.bad("hash_ids", "integers of at most 63 bits") from error


def _block_tokens_in_name(path: Path) -> int | None:
    found = re.search(r"blksz_(\d+)", path.name)
    return int(found.group(1)) or None if found else None


def _recognises(head: Head) -> bool:
    try:
        fields = orjson.loads(head.line)
    except orjson.JSONDecodeError:
        return False
    return isinstance(fields, dict) and {"timestamp", "input_length", "hash_ids"} <= fields.keys()


FORMAT = Format("mooncake", "Mooncake and Qwen-Bailian JSON lines with block hashes", read, _recognises)
