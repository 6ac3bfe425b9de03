"""How much of a text has to be typed anew to make another of it. Nobody else knows rapidfuzz."""

from __future__ import annotations

from rapidfuzz.distance import Levenshtein


def share_of_edits(one: str, other: str, at_most: float = 1.0) -> float:
    """Characters to insert, delete or replace (Levenshtein, 1966), of those of the longer text: in [0, 1], and 0 for
    two that are empty. Anything above `at_most` is told as 1, which is found sooner."""
    return Levenshtein.normalized_distance(one, other, score_cutoff=at_most)
