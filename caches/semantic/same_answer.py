"""Whether two answers say the same: the seam that verification compares by, and what fills it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from caches.semantic.embedder import Embedder
from caches.semantic.guard import negation, numbers
from caches.semantic.guard_reading import read

SameAnswer = Callable[[str, str], bool]


def exact(served: str, fresh: str) -> bool:
    """To the letter. With a temperature above 0 hardly any two answers are."""
    return served == fresh


def normalised(served: str, fresh: str) -> bool:
    """But for case, spacing, punctuation between words and the way that characters are encoded. Signs and points of
    numbers stay."""
    return _plain(served) == _plain(fresh)


def by_similarity(embedder: Embedder, at_least: float) -> SameAnswer:
    """Where their vectors are as similar as that. It forgives another wording, and may forgive another fact."""

    def same(served: str, fresh: str) -> bool:
        if normalised(served, fresh):
            return True
        one, other = embedder.embed([served, fresh])
        return float(one @ other) >= at_least

    return same


def by_facts(embedder: Embedder, at_least: float) -> SameAnswer:
    """As `by_similarity`, with the same numbers and units in the same order, and as many negations. What a backend says
    at greater length with another number in it is another answer then."""
    similar = by_similarity(embedder, at_least)

    def same(served: str, fresh: str) -> bool:
        one, other = read(served), read(fresh)
        return numbers(one, other) is None and negation(one, other) is None and similar(served, fresh)

    return same


def _plain(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(re.findall(r"-?\d+(?:[.,]\d+)*|\w+|[^\w\s.,;:!?'\"“”‘’«»()*`-]", text))
