"""Request logs in the shape of the OpenAI API: JSON lines with a prompt, a model and the answer or its usage.

Per row: the prompt in `messages`, `prompt` or `input`; `model` (may be missing); a time in `timestamp_us`,
`timestamp`, `created_at`, `created` or `time`; `usage` at the top or inside `response`, with `prompt_tokens`
and `completion_tokens` or `input_tokens` and `output_tokens`; the answer in `response` or `output`, as text
or as an API response with `choices`. A row needs the answer or the usage.

The key is SHA-256 over model and normalised prompt. Normalised means: every string in Unicode NFC, runs of
white space as one space, none at the ends; the order of JSON keys does not count; roles, order and everything
else inside the prompt do. Sampling parameters and tools outside the prompt are not part of the key.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from traces.formats.prompt_levels import prompt_levels
from traces.json_rows import JsonRow, json_rows, locator
from traces.modelled import BYTES_PER_TOKEN
from traces.reader import Chunk, Format, Head, ReadOptions, TimeUnit

PROMPTS = ("messages", "prompt", "input")
TIMES = ("timestamp_us", "timestamp", "created_at", "created", "time")
CHARACTERS_PER_TOKEN = 4
SIZE_FROM_USAGE = (
    f"Response sizes are modelled as {BYTES_PER_TOKEN} bytes per output token where a record has no answer."
)
TOKENS_FROM_TEXT = f"Token counts are modelled as characters / {CHARACTERS_PER_TOKEN} where a record has no usage."


def read(path: Path, options: ReadOptions) -> Iterator[Chunk]:
    time: tuple[str, TimeUnit] | None = None
    key_of = fingerprint if options.key_level is None else prompt_levels(options.key_level)
    for rows in json_rows(path, options):
        time = time or _time_field(rows[0], options)
        yield _chunk(rows, *time, key_of)


def fingerprint(model: str, prompt: object) -> bytes:
    """The key of a request: 32 bytes. prompt: a string or a JSON value such as a list of messages."""
    content = orjson.dumps([model, normalise(prompt)], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(content).digest()


def normalise(value: object) -> object:
    """The value with every string in it normalised as the module's text says."""
    if isinstance(value, str):
        return " ".join(unicodedata.normalize("NFC", value).split())
    if isinstance(value, list):
        return [normalise(item) for item in value]
    if isinstance(value, dict):
        return {name: normalise(item) for name, item in value.items()}
    return value


def _chunk(rows: list[JsonRow], time: str, unit: TimeUnit, key_of: Callable[[str, object], bytes]) -> Chunk:
    prompts = [_prompt(row) for row in rows]
    models = ["default" if row.get("model") is None else row.text("model") for row in rows]
    usages = [_usage(row) for row in rows]
    answers = [_answer(row) for row in rows]
    prompt_tokens, output_tokens, sizes = [], [], []
    assumptions = set()
    for row, prompt, usage, answer in zip(rows, prompts, usages, answers, strict=True):
        if usage is None:
            assumptions.add(TOKENS_FROM_TEXT)
            if answer is None:
                raise row.bad("usage", "token counts, or an answer in response or output")
            usage = _tokens(_text_of(prompt)), _tokens(answer)
        if answer is None:
            assumptions.add(SIZE_FROM_USAGE)
        prompt_tokens.append(usage[0])
        output_tokens.append(usage[1])
        sizes.append(usage[1] * BYTES_PER_TOKEN if answer is None else len(answer.encode()))
    return Chunk(
        keys=pa.array([key_of(m, p) for m, p in zip(models, prompts, strict=True)], pa.binary()),
        locate=locator(rows),
        time=np.array([row.seconds(time, unit) for row in rows]),
        size=np.array(sizes, dtype=np.int64),
        prompt_tokens=np.array(prompt_tokens, dtype=np.int64),
        output_tokens=np.array(output_tokens, dtype=np.int64),
        namespace=pa.array(models),
        names={"time": time},
        assumptions=tuple(sorted(assumptions)),
    )


def _time_field(row: JsonRow, options: ReadOptions) -> tuple[str, TimeUnit]:
    for name in TIMES:
        value = row.get(name)
        if value is not None:
            own: TimeUnit = "us" if name == "timestamp_us" else "iso" if isinstance(value, str) else "s"
            return name, options.time_unit or own
    raise row.bad(TIMES[1], f"a time in one of {', '.join(TIMES)}")


def _prompt(row: JsonRow) -> Any:
    for name in PROMPTS:
        value = row.get(name)
        if value is not None:
            if not isinstance(value, str | list):
                raise row.bad(name, "a string or a list of messages")
            return value
    raise row.bad("messages", f"a prompt in one of {', '.join(PROMPTS)}")


def _usage(row: JsonRow) -> tuple[int, int] | None:
    for place in ("usage", "response.usage"):
        for prompt, output in (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens")):
            if row.get(f"{place}.{prompt}") is not None:
                return row.integer(f"{place}.{prompt}"), row.integer(f"{place}.{output}")
    return None


def _answer(row: JsonRow) -> str | None:
    """The text of the answer, None where the log has none."""
    answer = row.get("response") if row.get("response") is not None else row.get("output")
    if isinstance(answer, dict):
        answer = answer.get("choices", answer.get("output"))
    return None if answer is None else _text_of(answer)


def _text_of(value: object) -> str:
    """All texts of a prompt or an answer, in order; role names and other fields are not text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_text_of(item) for item in value)
    if isinstance(value, dict):
        inner = next((value[name] for name in ("content", "text", "message") if name in value), None)
        return _text_of(inner)
    return ""


def _tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _recognises(head: Head) -> bool:
    try:
        fields = orjson.loads(head.line)
    except orjson.JSONDecodeError:
        return False
    return isinstance(fields, dict) and any(prompt in fields for prompt in PROMPTS)


FORMAT = Format(
    "openai_log", "OpenAI-style request logs with messages, prompt or input", read, _recognises, levels=lambda _: True
)
