"""The hash of an API key, read from where no list of processes shows it."""

from __future__ import annotations

import hashlib
import io
import re
import sys
from typing import cast

import pytest

from api.cli.main import COMMANDS, Entry, load
from caches.errors import InputError

ENTRY = cast(Entry, COMMANDS["hash-key"])


def run(*options: str) -> None:
    load("hash-key", ENTRY).main(list(options), standalone_mode=False)


def test_what_is_read_is_hashed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The end of the line is no part of a key."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("sp-0123456789abcdef\n"))
    run()
    assert capsys.readouterr().out == hashlib.sha256(b"sp-0123456789abcdef").hexdigest() + "\n"


def test_a_new_key_is_printed_with_its_hash(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        run("--new")
    one, its, other, _ = capsys.readouterr().out.splitlines()
    assert re.fullmatch("sp-[A-Za-z0-9_-]{43}", one)
    assert its == hashlib.sha256(one.encode()).hexdigest()
    assert one != other


def test_a_key_that_can_be_guessed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hunter2"))
    with pytest.raises(InputError, match="key: got 7 characters, expected 16 or more"):
        run()
