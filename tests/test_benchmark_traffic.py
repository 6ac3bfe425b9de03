"""The questions that the benchmark of the stack asks."""

from __future__ import annotations

import pytest

pytest.importorskip("fow_cache", reason="the texts come with the extra bench")

from benchmarks.stack_traffic import CLOSERS, OPENERS, asked, keys_of, questions, reworded


def test_rewordings_hold_the_question_and_all_differ() -> None:
    ways = [reworded("Where is it?", number) for number in range(len(OPENERS) * len(CLOSERS))]
    assert len(set(ways)) == len(ways) == 224
    assert ways[0] == "Hi, where is it?"
    assert ways[17] == "Hello, where is it? Thanks"
    assert all("where is it?" in way for way in ways)


def test_known_questions_come_back_and_the_rest_never_do() -> None:
    known = questions()
    texts = asked(known, 5_000, 0.9)
    new = [text for text in texts if text not in set(known)]
    assert len(texts) == 5_000
    assert 400 <= len(new) <= 600
    assert len(set(new)) == len(new)
    assert texts == asked(known, 5_000, 0.9) != asked(known, 5_000, 0.9, seed=1)
    assert max(texts.count(text) for text in known[:200] + texts[:200]) > 100  # the most popular, of about 600


def test_equal_texts_have_one_key_in_one_context() -> None:
    first, second, again = keys_of(["Where?", "When?", "Where?"])
    assert first is again
    assert first.fingerprint != second.fingerprint
    assert first.context == second.context
    assert (first.question, second.question) == ("Where?", "When?")
