"""How far verification can be believed: how often each way to compare two answers calls right wrong and wrong right.

No set of answers with labels was found, so two stand in: pairs of questions, labelled by what they mean, taken as
texts that say the same or not; and answers out of conversations, each changed in one known way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import fow_cache
import numpy as np

from benchmarks.harness import Cell, Table
from caches.semantic.embedder import Embedder
from caches.semantic.same_answer import SameAnswer, by_facts, by_similarity, exact, normalised
from caches.semantic.verification import clopper_pearson

SIMILARITY = 0.85  # the default of the setting
LEAST_WORDS = 8
SEED = 0
Changed = Callable[[str], str | None]
Texts = Sequence[tuple[str, str]]
_FULL = {"I'm": "I am", "I've": "I have", "I'll": "I will", "it's": "it is", "It's": "It is", "don't": "do not"}
_FULL |= {"You'll": "You will", "you'll": "you will", "we'll": "we will", "We'll": "We will", "can't": "cannot"}
_FULL |= {"you're": "you are", "You're": "You are", "that's": "that is", "That's": "That is", "there's": "there is"}
_CONTRACTED = re.compile("|".join(rf"\b{one}\b" for one in _FULL))
_VERB = re.compile(r"\b(is|are|was|can|will|should)\b(?! not)")
_NUMBER = re.compile(r"\d+")


def in_full(text: str) -> str | None:
    """Contractions written out. None, here and below, for a text in which there is nothing to change."""
    changed = _CONTRACTED.sub(lambda match: _FULL[match.group()], text)
    return None if changed == text else changed


def politely(text: str) -> str | None:
    return f"Thanks for asking. {text} I hope this helps."


def another_number(text: str) -> str | None:
    """The first number is one higher."""
    changed = _NUMBER.sub(lambda match: str(int(match.group()) + 1), text, count=1)
    return None if changed == text else changed


def negated(text: str) -> str | None:
    """The first auxiliary verb."""
    changed = _VERB.sub(r"\1 not", text, count=1)
    return None if changed == text else changed


CHANGES: Mapping[str, tuple[bool, Changed]] = {
    "contractions written out": (True, in_full),
    "polite words around it": (True, politely),
    "the first number one higher": (False, another_number),
    "the first verb negated": (False, negated),
}


def answers() -> list[str]:
    """What assistants say in the conversations, each once, in order; greetings and the like are left out."""
    said = [turn["content"] for one in fow_cache.load_conversations() for turn in one["a"] if turn["role"] != "user"]
    return [text for text in dict.fromkeys(said) if len(text.split()) >= LEAST_WORDS]


def cases() -> list[tuple[str, bool, Texts]]:
    """What, whether the two say the same, and the pairs."""
    found: list[tuple[str, bool, Texts]] = []
    questions = fow_cache.load_questions()
    for kind in dict.fromkeys(one["category"] for one in questions):
        some = [one for one in questions if one["category"] == kind]
        pairs = [(one["a"], one["b"]) for one in some]
        found.append((f"questions: {kind.replace('_', ' ')}", some[0]["same_answer"], pairs))
    texts = answers()
    for what, (same, change) in CHANGES.items():
        made = ((text, change(text)) for text in texts)
        found.append((f"answers: {what}", same, [(text, other) for text, other in made if other is not None]))
    others = np.random.default_rng(SEED).permutation(len(texts))
    mixed = [(text, texts[other]) for text, other in zip(texts, others, strict=True) if text != texts[other]]
    return [*found, ("answers: that of another question", False, mixed)]


def table(embedder: Embedder, quick: bool) -> Table:
    """Of pairs that say the same those called wrong, of the others those called right."""
    ways: dict[str, SameAnswer] = {
        "similar": by_similarity(embedder, SIMILARITY),
        "facts": by_facts(embedder, SIMILARITY),
        "normalised": normalised,
        "exact": exact,
    }
    rows = [
        [what, "wrong" if same else "right", len(pairs), *(_mistaken(way, same, pairs) for way in ways.values())]
        for what, same, pairs in ((what, same, pairs[:: 10 if quick else 1]) for what, same, pairs in cases())
    ]
    header = ("two texts", "which would be a mistake to call", "pairs", *(f"{way}, % [95 %]" for way in ways))
    return Table("How often two answers are compared wrongly", header, rows)


def _mistaken(way: SameAnswer, same: bool, pairs: Texts) -> Cell:
    mistakes = sum(way(one, other) != same for one, other in pairs)
    low, high = clopper_pearson(mistakes, len(pairs))
    return f"{100.0 * mistakes / len(pairs):.1f} [{100.0 * low:.1f}, {100.0 * high:.1f}]"
