"""Request logs in the shape of the OpenAI API."""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson
import pytest

from caches.errors import InputError
from tests.traces.trace_samples import FOLDER
from traces.catalog import read_trace
from traces.formats.openai_log import fingerprint, normalise


def test_sample() -> None:
    trace = read_trace(FOLDER / "openai.jsonl")
    # The first two differ in white space and in the order of JSON keys only; the third asks another model,
    # the fourth says the same words in another role.
    assert trace.key.tolist() == [0, 0, 1, 2]
    assert trace.arrival_seconds.tolist() == [0, 1, 2, 4]
    assert trace.info.start_unix_seconds == 1_767_600_000
    assert trace.info.namespaces == ("small", "large")
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    # Usage where there is one; else ceil(16 characters / 4) = 4, ceil(14 / 4) = 4, ceil(8 / 4) = 2.
    assert trace.prompt_tokens.tolist() == [12, 12, 4, 4]
    assert trace.output_tokens.tolist() == [3, 3, 4, 2]
    # "A store." has 8 bytes; no answer: 3 tokens of 4 bytes; "Ein Gedächtnis" has 15 bytes in UTF-8.
    assert trace.size_bytes.tolist() == [8, 12, 15, 8]
    assert len(trace.info.assumptions) == 2


def test_fingerprint_is_sha256_of_model_and_normalised_prompt() -> None:
    assert fingerprint("m", " a \n b ") == hashlib.sha256(b'["m","a b"]').digest()
    assert fingerprint("m", [{"role": "user", "content": "a"}]) == fingerprint(
        "m", [{"content": "a\t", "role": "user"}]
    )


def test_what_counts_and_what_does_not() -> None:
    assert normalise("cafe\u0301") == normalise("caf\u00e9")
    assert normalise("a\u00a0\u2003b") == "a b"
    assert normalise("A") != normalise("a")
    assert fingerprint("m", "ab") != fingerprint("m", "a b")
    assert fingerprint("m1", "a") != fingerprint("m2", "a")
    assert fingerprint("m", ["a", "b"]) != fingerprint("m", ["b", "a"])
    assert normalise([{"x": [1, None, True, " y "]}]) == [{"x": [1, None, True, "y"]}]


def test_other_shapes(tmp_path: Path) -> None:
    usage = {"input_tokens": 7, "output_tokens": 2}
    parts = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    trace = read_trace(
        _log(tmp_path, {"timestamp": "2026-01-05T08:00:00Z", "input": parts, "response": {"usage": usage}})
    )
    assert trace.prompt_tokens is not None
    assert trace.prompt_tokens.tolist() == [7]
    assert trace.size_bytes.tolist() == [8]
    assert trace.namespace is None
    trace = read_trace(_log(tmp_path, {"timestamp_us": 1_760_587_666_509_217, "prompt": "hello", "output": ""}))
    assert trace.info.start_unix_seconds == pytest.approx(1_760_587_666.509217, abs=1e-6)
    assert trace.size_bytes.tolist() == [0]
    answer = {"output": [{"content": [{"type": "output_text", "text": "four"}]}]}
    trace = read_trace(_log(tmp_path, {"created": 1, "prompt": "hello", "response": answer}))
    assert trace.size_bytes.tolist() == [4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": 7}, "prompt: got 7, expected a string or a list of messages"),
        ({"prompt": None}, "messages: got None, expected a prompt in one of messages, prompt, input"),
        ({"model": 7}, "model: got 7, expected a string"),
        (
            {"response": None},
            "usage: got None, expected token counts, or an answer in response or output",
        ),
        ({"created": "soon"}, "created: got 'soon', expected a number"),
        ({"usage": {"prompt_tokens": "7"}}, "usage.prompt_tokens: got '7', expected an integer"),
        ({"usage": {"prompt_tokens": 7}}, "usage.completion_tokens: got None, expected an integer"),
    ],
)
def test_refuses_bad_rows(tmp_path: Path, change: dict[str, object], message: str) -> None:
    good = {"created": 1, "prompt": "hello", "response": "hi"}
    path = _log(tmp_path, good, {**good, **change})
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert str(caught.value) == f"{path}, line 2, {message}"


def test_a_log_needs_times(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 1, timestamp: got None, expected a time in one of"):
        read_trace(_log(tmp_path, {"prompt": "hello", "response": "hi"}))


def _log(folder: Path, *rows: dict[str, object]) -> Path:
    path = folder / "log.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps(row) for row in rows))
    return path
