"""Ways to say that two questions are one, alone and with the guard: on labelled pairs, and on a bank's customers."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import fow_cache
import numpy as np
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from benchmarks.harness import SHARED_TRACES, Cell, Table, say
from caches.semantic.bucket_fitting import fit_buckets
from caches.semantic.bucket_map import BucketMap
from caches.semantic.embedder import Vectors
from caches.semantic.guard import veto_between
from caches.semantic.guard_alike import FUNCTION_WORDS
from caches.semantic.guard_reading import Reading, read
from caches.semantic.lemmas import ENGLISH, Lemmas
from caches.semantic.signature import Hyperplanes, differing_bits
from caches.semantic.verification import clopper_pearson
from caches.semantic.wordllama_embedder import WordLlamaEmbedder

BANKING = SHARED_TRACES / "text" / "banking77.csv.gz"
CANDIDATES = 8
FORM = "lemmas without small words, up to a turn (the tier's form)"
MOST_EDITS = 0.15
RADII = (3, 8, 12, 16)
THRESHOLDS = (0.9, 0.8)
Proposals = Sequence[Sequence[int]]  # for each question asked, stored ones, the likeliest first


@cache
def embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


@dataclass(frozen=True)
class Questions:
    """Texts, and what each matcher sees of them."""

    texts: Sequence[str]

    @cached_property
    def readings(self) -> list[Reading]:
        return [read(text) for text in self.texts]

    @cached_property
    def vectors(self) -> Vectors:
        return embedder().embed(self.texts)


@dataclass(frozen=True)
class Bank:
    """stored, asked: questions. intents: of each, equal where one answer mostly does for both."""

    stored: Questions
    asked: Questions
    stored_intents: Sequence[str]
    asked_intents: Sequence[str]


def bank(quick: bool) -> Bank | None:
    """The training part of Banking77 as stored, the test part as asked; None where the file is absent."""
    if not BANKING.is_file():
        return None
    with gzip.open(BANKING, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:: 10 if quick else 1]
    parts = {split: [row for row in rows if row["split"] == split] for split in ("train", "test")}
    texts = {split: Questions([row["text"] for row in some]) for split, some in parts.items()}
    intents = {split: [row["intent"] for row in some] for split, some in parts.items()}
    return Bank(texts["train"], texts["test"], intents["train"], intents["test"])


def fitted(known: Questions, quick: bool) -> BucketMap:
    return fit_buckets(known.vectors, WordLlamaEmbedder.name, 64 if quick else 1_024)


Matcher = Callable[[Questions, Questions], Proposals]


# --- matchers --------------------------------------------------------------------------------------------------------


def same_form(form: Callable[[Reading], str | None]) -> Matcher:
    def propose(stored: Questions, asked: Questions) -> Proposals:
        held: dict[str | None, list[int]] = defaultdict(list)
        for place, reading in enumerate(stored.readings):
            held[form(reading)].append(place)
        forms = (form(reading) for reading in asked.readings)
        return [[] if one is None else held.get(one, [])[:CANDIDATES] for one in forms]

    return propose


def similar(threshold: float) -> Matcher:
    def propose(stored: Questions, asked: Questions) -> Proposals:
        return [_best(-(stored.vectors @ vector), -threshold) for vector in asked.vectors]

    return propose


def signed(radius: int) -> Matcher:
    """By bits alone: no vector is kept, so the nearest is the one that differs in the fewest."""

    def propose(stored: Questions, asked: Questions) -> Proposals:
        planes = Hyperplanes(stored.vectors.shape[1])
        held = planes.signatures(stored.vectors)
        return [_best(differing_bits(held, one).astype(float), radius) for one in planes.signatures(asked.vectors)]

    return propose


def first_numbers(stored: Questions, asked: Questions) -> Proposals:
    """The sizes, without sign, of the first eight numbers of a vector, in steps of 1/255: a key that was proposed."""
    held: dict[bytes, list[int]] = defaultdict(list)
    for place, vector in enumerate(stored.vectors):
        held[_first_eight(vector)].append(place)
    return [held.get(_first_eight(vector), [])[:CANDIDATES] for vector in asked.vectors]


def edited(buckets: BucketMap | None) -> Matcher:
    """Texts that differ in few characters; in the same bucket, where there are buckets."""

    def propose(stored: Questions, asked: Questions) -> Proposals:
        here, there = ([reading.text for reading in one.readings] for one in (asked, stored))
        apart = cdist(here, there, scorer=Levenshtein.normalized_distance, score_cutoff=MOST_EDITS, dtype=np.float32)
        if buckets is not None:
            mine, theirs = buckets.buckets_of(asked.vectors), buckets.buckets_of(stored.vectors)
            apart = np.where(mine[:, np.newaxis] == theirs, apart, np.float32(1.0))
        return [_best(row, MOST_EDITS) for row in apart]

    return propose


def matchers(buckets: BucketMap) -> Mapping[str, Matcher]:
    lemmas = Lemmas(ENGLISH)

    def carrying(one: Reading) -> list[str]:
        return [lemmas.of_word(word) for word in one.words if word not in FUNCTION_WORDS]

    return {
        "the text, to the letter": same_form(lambda one: one.text),
        "its words, in order": same_form(lambda one: " ".join(one.words)),
        "lemmas of all words, in order": same_form(lambda one: " ".join(map(lemmas.of_word, one.words))),
        "lemmas without small words, in order": same_form(lambda one: " ".join(carrying(one)) or None),
        "lemmas without small words, in no order": same_form(lambda one: " ".join(sorted(carrying(one))) or None),
        FORM: same_form(lemmas.form),
        f"edits of at most {MOST_EDITS:g}": edited(None),
        f"the same of {len(buckets):,} buckets, edits of at most {MOST_EDITS:g}": edited(buckets),
        "first eight numbers of the vector": first_numbers,
        **{f"signatures within {radius} bits": signed(radius) for radius in RADII},
        **{f"similarity of at least {threshold:.2f}": similar(threshold) for threshold in THRESHOLDS},
        f"the tier's form, else similarity of at least {THRESHOLDS[0]:.2f}": either(
            same_form(lemmas.form), similar(THRESHOLDS[0])
        ),
    }


def either(first: Matcher, then: Matcher) -> Matcher:
    """The proposals of one, and behind them those of the other."""

    def propose(stored: Questions, asked: Questions) -> Proposals:
        both = zip(first(stored, asked), then(stored, asked), strict=True)
        return [[*one, *other] for one, other in both]

    return propose


def _best(apart: Vectors, at_most: float) -> list[int]:
    """Places of the smallest, the first among equals, none above."""
    near = np.flatnonzero(apart <= at_most)
    return [int(one) for one in near[np.argsort(apart[near], kind="stable")][:CANDIDATES]]


def _first_eight(vector: Vectors) -> bytes:
    return bytes((np.abs(vector[:8]) * 255).astype(np.uint8))


# --- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairScore:
    """Served among pairs with one answer, and among traps; how many of each there are."""

    right: int
    pairs: int
    wrong: int
    traps: int


def pair_scores(buckets: BucketMap, quick: bool) -> dict[str, tuple[PairScore, PairScore]]:
    """By matcher: alone, and with the guard. On pairs at odd places, each a cache of one entry."""
    pairs = fow_cache.load_questions()[1 :: 10 if quick else 2]
    same = np.array([pair["same_answer"] for pair in pairs])
    agreed = np.array([veto_between(read(pair["a"]), read(pair["b"])) is None for pair in pairs])
    scores = {}
    for name, propose in matchers(buckets).items():
        served = np.array([bool(propose(Questions([pair["a"]]), Questions([pair["b"]]))[0]) for pair in pairs])
        scores[name] = (_pair_score(served, same), _pair_score(served & agreed, same))
    return scores


def _pair_score(served: np.ndarray, same: np.ndarray) -> PairScore:
    return PairScore(int((served & same).sum()), int(same.sum()), int((served & ~same).sum()), int((~same).sum()))


def pair_table(scores: Mapping[str, tuple[PairScore, PairScore]]) -> Table:
    rows: list[list[Cell]] = []
    for name, both in scores.items():
        cells: list[Cell] = [name]
        for one in both:
            cells += [_share(one.right, one.pairs), _share(one.wrong, one.traps)]
        rows.append(cells)
    header = ("matcher", "served, %", "traps served, %", "with the guard: served, %", "traps served, % [95 %]")
    return Table("Labelled pairs of questions (fow-cache), a cache of one entry each", header, rows)


@dataclass(frozen=True)
class BankScore:
    """Of the questions asked: served, and of these with the answer to another intent."""

    served: int
    other: int
    asked: int


def bank_scores(found: Bank, buckets: BucketMap) -> dict[str, tuple[BankScore, BankScore]]:
    """By matcher: alone, when the likeliest is served, and with the guard, when the likeliest that it lets pass is."""
    scores = {}
    for name, propose in matchers(buckets).items():
        say(name)
        proposals = propose(found.stored, found.asked)
        scores[name] = (_bank_score(found, proposals, guarded=False), _bank_score(found, proposals, guarded=True))
    return scores


def _bank_score(found: Bank, proposals: Proposals, guarded: bool) -> BankScore:
    served, other = 0, 0
    for place, near in enumerate(proposals):
        asked = found.asked.readings[place]
        chosen = next((c for c in near if not guarded or veto_between(asked, found.stored.readings[c]) is None), None)
        if chosen is not None:
            served += 1
            other += found.stored_intents[chosen] != found.asked_intents[place]
    return BankScore(served, other, len(proposals))


def bank_table(scores: Mapping[str, tuple[BankScore, BankScore]], stored: int, asked: int) -> Table:
    rows: list[list[Cell]] = []
    for name, both in scores.items():
        cells: list[Cell] = [name]
        for one in both:
            cells += [f"{100.0 * one.served / one.asked:.1f}", _share(one.other, one.served)]
        rows.append(cells)
    header = (
        "matcher",
        "served, %",
        "other intent, % of served",
        "with the guard: served, %",
        "other intent, % of served",
    )
    note = "An intent is a topic and not an answer: a hit on another intent is wrong, one on the same may be."
    return Table(f"Banking77: {asked:,} questions asked of {stored:,} stored", header, rows, note)


def _share(part: int, whole: int) -> Cell:
    if whole == 0:
        return None
    low, high = clopper_pearson(part, whole)
    return f"{100.0 * part / whole:.1f} [{100.0 * low:.1f}, {100.0 * high:.1f}]"
