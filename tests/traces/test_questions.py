"""Questions out of logs, text files and the folder of a semantic tier, and buckets fitted to them by a command."""

from __future__ import annotations

import gzip
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from api.cli.main import app
from caches.errors import BadRecord, InputError
from caches.semantic.bucket_map import load_bucket_map
from caches.semantic.snapshot import save_tier
from caches.semantic.tier import SemanticTier
from caches.semantic.wordllama_embedder import WordLlamaEmbedder
from tests.caches.semantic.toy import START, ToyEmbedder, ask, say, space
from traces.questions import questions_of

CODE = "fix this\n```\nx\n```"


def test_a_line_is_a_question(tmp_path: Path) -> None:
    path = tmp_path / "questions.txt"
    path.write_text("one?\r\n\n  two?  \none?\n" + "x" * 1_001)
    assert questions_of(path) == ["one?", "two?", "one?"]


def test_of_json_lines_the_last_message_of_a_user_or_a_text(tmp_path: Path) -> None:
    user, assistant = {"role": "user", "content": "one?"}, {"role": "assistant", "content": "yes"}
    rows = [
        {"messages": [{"role": "system", "content": "s"}, user]},
        {"messages": [user, assistant]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "parts"}]}]},
        {"messages": []},
        {"prompt": "two?"},
        {"question": "three?", "text": "not this"},
        {"input": ["a", "b"]},
        {"prompt": CODE},
        {},
    ]
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(map(orjson.dumps, rows))))
    assert questions_of(path) == ["one?", "two?", "three?"]


async def test_of_a_tier_what_it_holds(tmp_path: Path) -> None:
    tier = SemanticTier(ToyEmbedder(), space())
    for question in ("one?", None, "two?"):
        await tier.store(ask(question), say("x"), START)
    save_tier(tier, tmp_path)
    assert questions_of(tmp_path) == ["one?", "two?"]


def test_what_is_no_source_of_questions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"got a folder without entries\.jsonl"):
        questions_of(tmp_path)
    with pytest.raises(InputError, match=r"absent\.txt"):
        questions_of(tmp_path / "absent.txt")
    (tmp_path / "bad.txt").write_bytes(b"one?\n\xff\n")
    with pytest.raises(InputError, match=r"bad\.txt, line 2: got text that is not UTF-8"):
        questions_of(tmp_path / "bad.txt")
    (tmp_path / "bad.jsonl").write_bytes(b'{"prompt": "a"}\n{')
    with pytest.raises(BadRecord, match="line 2"):
        questions_of(tmp_path / "bad.jsonl")


def test_buckets_from_the_command_line(tmp_path: Path) -> None:
    path, out = tmp_path / "questions.txt", tmp_path / "buckets.npz"
    path.write_text("\n".join(f"where is number {number} kept" for number in range(12)))
    done = CliRunner().invoke(app, ["keys", "fit", str(path), "--out", str(out), "--buckets", "3"])
    assert done.exit_code == 0, done.output
    assert "12" in done.stdout
    found = load_bucket_map(out, WordLlamaEmbedder.name, 256)
    assert (len(found), found.fitted_on) == (3, 12)
    more = CliRunner().invoke(app, ["keys", "fit", str(path), "--out", str(out)], catch_exceptions=True)
    assert more.exit_code != 0
    assert "expected 1,024 or more, or fewer buckets" in str(more.exception or more.output)
    path.write_text("```")
    none = CliRunner().invoke(app, ["keys", "fit", str(path)])
    assert "got no question that can be matched" in str(none.exception)
