"""The semantic tier on labelled pairs: how many questions it serves, and how many it serves wrongly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import fow_cache
import numpy as np
from numpy.typing import NDArray

from benchmarks import gptcache_peer, semantic_answers
from benchmarks.harness import Benchmark, Cell, Goal, Report, Table, main, say
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.partitions import partition_of
from caches.keys.rules import KeyRules
from caches.knobs import Knob, KnobSpace
from caches.semantic.tier import SemanticOptions, SemanticTier
from caches.semantic.verification import clopper_pearson
from caches.semantic.wordllama_embedder import WordLlamaEmbedder
from caches.tiers.tier import Answer

Array = NDArray[Any]
THRESHOLDS = tuple(round(0.70 + 0.01 * step, 2) for step in range(30))
BUDGETS = (0.02, 0.05)
ONE_SIDED = 0.90  # a two-sided interval of which each end holds with 95 %
ALONE_THRESHOLD = 0.8
GPTCACHE, GPTCACHE_SETTING = f"GPTCache {gptcache_peer.VERSION}, its defaults", "0.8, its own scale"
RULES = KeyRules(allow_sampled=True)
SPACE = KnobSpace(
    Knob("cache_size", "bytes", 1.0, 1e9, 1e9, 1.0, "log"),
    Knob("ttl_seconds", "seconds", 1.0, 1e6, 1e6, 1.0, "log"),
    Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 1.0, "linear"),
)
Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Pair:
    """cached: what was answered. asked: what is asked then. same: whether one answer is right for both. kind: of the
    pair, by its author."""

    cached: Messages
    asked: Messages
    same: bool
    kind: str


@dataclass(frozen=True)
class Score:
    """Of pairs: similarity at which each was served, 0 where it was not (whatever the threshold)."""

    similarity: Array
    same: Array

    def at(self, threshold: float) -> tuple[int, int, int, int]:
        """(served among those with one answer, how many those are, served among the traps, how many those are)."""
        served = self.similarity >= threshold
        return (
            int((served & self.same).sum()),
            int(self.same.sum()),
            int((served & ~self.same).sum()),
            int((~self.same).sum()),
        )

    def half(self, which: int) -> Score:
        return Score(self.similarity[which::2], self.same[which::2])

    def lowest(self, budget: float) -> float | None:
        """The lowest threshold known to serve at most a share `budget` of the traps, as verification chooses: by the
        upper end of an interval. None where none is."""
        bounds = {one: clopper_pearson(*self.at(one)[2:], ONE_SIDED)[1] for one in THRESHOLDS}
        return min((threshold for threshold, bound in bounds.items() if bound <= budget), default=None)


def question_pairs() -> list[Pair]:
    return [
        Pair(_user(one["a"]), _user(one["b"]), one["same_answer"], one["category"])
        for one in fow_cache.load_questions()
    ]


def conversation_pairs() -> list[Pair]:
    return [Pair(one["a"], one["b"], one["same_answer"], one["subtype"]) for one in fow_cache.load_conversations()]


def _user(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def tier_score(pairs: Sequence[Pair], took: list[float]) -> Score:
    """Through keys and tier, a partition for each pair. took: receives the seconds of each lookup."""

    async def whole() -> list[float]:
        options = SemanticOptions(similarity_threshold=THRESHOLDS[0], lowest_threshold=THRESHOLDS[0])
        tier, found = SemanticTier(WordLlamaEmbedder(), SPACE, options=options), []
        for number, pair in enumerate(pairs):
            partition = partition_of("bench", f"pair-{number}")
            one, other = (
                request_key(Endpoint.CHAT, {"model": "m", "messages": messages}, partition, RULES)
                for messages in (pair.cached, pair.asked)
            )
            await tier.store(one, Answer(b"answer", 0.0), 0.0)
            began = time.perf_counter()
            hit = await tier.lookup(other, 1.0)
            took.append(time.perf_counter() - began)
            found.append(0.0 if hit is None else hit.similarity)
        await tier.close()
        return found

    return Score(np.array(asyncio.run(whole())), np.array([pair.same for pair in pairs]))


def plain_score(pairs: Sequence[Pair]) -> Score:
    """Similarity of the last messages alone, without guard and context."""
    embedder = WordLlamaEmbedder()
    one, other = (
        embedder.embed([getattr(pair, name)[-1]["content"] for pair in pairs]) for name in ("cached", "asked")
    )
    return Score(np.einsum("ij,ij->i", one, other), np.array([pair.same for pair in pairs]))


def exact_score(pairs: Sequence[Pair]) -> Score:
    """Equal conversations only."""
    return Score(
        np.array([float(pair.cached == pair.asked) for pair in pairs]), np.array([pair.same for pair in pairs])
    )


def gptcache_score(pairs: Sequence[Pair]) -> Score | None:
    """GPTCache itself on the last messages: similarity 1 where it served, else 0. None where it cannot be had."""
    texts = [(pair.cached[-1]["content"], pair.asked[-1]["content"]) for pair in pairs]
    try:
        served = gptcache_peer.served(texts, WordLlamaEmbedder())
    except gptcache_peer.Unavailable as why:
        say(str(why))
        return None
    return Score(np.array(served, float), np.array([pair.same for pair in pairs]))


def row(what: str, score: Score, threshold: float | None, told: str | None = None) -> list[Cell]:
    """told: the threshold as its owner names it."""
    if threshold is None:
        return [what, None, None, None, None]
    right, same, wrong, traps = score.at(threshold)
    low, high = clopper_pearson(wrong, traps)
    of_hits = None if right + wrong == 0 else f"{100.0 * wrong / (right + wrong):.1f}"
    return [
        what,
        told or f"{threshold:.2f}",
        f"{100.0 * right / same:.1f}",
        f"{100.0 * wrong / traps:.1f} [{100.0 * low:.1f}, {100.0 * high:.1f}]",
        of_hits,
    ]


HEADER = (
    "what serves",
    "threshold",
    "served of those with one answer, %",
    "served of the traps, % [95 %]",
    "wrong of all served, %",
)


def by_kind(pairs: Sequence[Pair], score: Score) -> Table:
    """Of each half, what is served at the default and at the lowest threshold."""
    default = SemanticOptions().similarity_threshold or 1.0
    rows: list[list[Cell]] = []
    for kind in dict.fromkeys(pair.kind for pair in pairs):
        cells: list[Cell] = [kind.replace("_", " "), "right" if _of_kind(pairs, kind)[0].same else "wrong"]
        for which in (0, 1):
            member = np.array([pair.kind == kind for pair in pairs])[which::2]
            similarity = score.half(which).similarity[member]
            cells += [f"{(similarity >= one).sum()} of {len(similarity)}" for one in (THRESHOLDS[0], default)]
        rows.append(cells)
    columns = [f"{half}, at {one:.2f}" for half in ("even", "odd") for one in (THRESHOLDS[0], default)]
    return Table("Served of each kind of question pairs", ("kind", "to serve it is", *columns), rows)


def _of_kind(pairs: Sequence[Pair], kind: str) -> list[Pair]:
    return [pair for pair in pairs if pair.kind == kind]


def measure(quick: bool) -> Report:
    questions, talks = question_pairs(), conversation_pairs()
    if quick:
        questions, talks = questions[::5], talks[::10]
    took: list[float] = []
    say("questions")
    tier, plain, exact = tier_score(questions, took), plain_score(questions), exact_score(questions)
    say("conversations")
    talked = tier_score(talks, [])
    say("GPTCache")
    peers = [gptcache_score(questions), gptcache_score(talks)]
    chosen = {budget: tier.half(0).lowest(budget) for budget in BUDGETS}
    alone = {budget: plain.half(0).lowest(budget) for budget in BUDGETS}
    default = SemanticOptions().similarity_threshold
    rows = [
        row("equal requests only", exact.half(1), 1.0),
        *(row(GPTCACHE, peer.half(1), 1.0, GPTCACHE_SETTING) for peer in peers[:1] if peer is not None),
        row("similarity alone", plain.half(1), ALONE_THRESHOLD),
        *(row(f"similarity alone, chosen for {budget:.0%} of traps", plain.half(1), alone[budget]) for budget in alone),
        *(row(f"semantic tier, chosen for {budget:.0%} of traps", tier.half(1), chosen[budget]) for budget in chosen),
        row("semantic tier, its default", tier.half(1), default),
        row("semantic tier, its lowest", tier.half(1), THRESHOLDS[0]),
    ]
    conversations = [
        *(row(GPTCACHE, peer, 1.0, GPTCACHE_SETTING) for peer in peers[1:] if peer is not None),
        row("similarity of the last message alone", plain_score(talks), ALONE_THRESHOLD),
        row("semantic tier, its default", talked, default),
    ]
    times = f"{1000.0 * float(np.median(took)):.2f} and {1000.0 * float(np.quantile(took, 0.99)):.2f} ms"
    note = f"A lookup takes {times} (p50 and p99), with one entry beside."
    say("answers")
    tables = [
        Table(f"{len(questions) // 2} question pairs, those at odd places", HEADER, rows, note),
        by_kind(questions, tier),
        Table(f"{len(talks)} pairs of conversations", HEADER, conversations),
        semantic_answers.table(WordLlamaEmbedder(), quick),
    ]
    return Report(_facts(), tables, _goals(tier.half(1), chosen[0.02], talked, default))


def _facts() -> list[str]:
    return [
        "fow-cache 0.1.0 (CC BY 4.0): 600 pairs of questions, half of them traps (negation, another name, number, date "
        "or scope), and 240 pairs of conversations whose last messages match. Embeddings: WordLlama, 256 dimensions.",
        "Thresholds are chosen on the pairs at even places, figures are of those at odd places: the lowest at which "
        "the upper end of a one-sided 95 % bound keeps the budget, as in verification. The guard's rules were improved "
        "by looking at failures at even places; of those at odd places only counts were seen, several times.",
        f"GPTCache {gptcache_peer.VERSION} as it comes, with the same embeddings, SQLite and faiss-cpu, a cache for "
        "each pair. Its threshold of 0.8 is of 4 minus the squared distance: it serves from a cosine of 0.6 on.",
        "How answers are compared: labels exist for questions only, so pairs of them stand in for answers; the answers "
        "are those of assistants in the conversations, changed by rule. A backend that words an answer anew, at "
        "greater length or with other examples, is in neither.",
    ]


def _goals(score: Score, threshold: float | None, talked: Score, default: float | None) -> list[Goal]:
    wanted = "at least 30 % served at most 2 % wrong, question pairs"
    if threshold is None or default is None:
        return [Goal(wanted, "no threshold keeps the budget", False)]
    right, same, wrong, traps = score.at(threshold)
    _, _, failed, of = talked.at(default)
    return [
        Goal(
            wanted,
            f"{right / same:.1%} served, {wrong / traps:.1%} of the traps wrong, at {threshold:.2f}",
            right / same >= 0.3 and wrong / traps <= 0.02,
        ),
        Goal("at most 2 % wrong, conversations", f"{failed / of:.1%} of the traps wrong", failed / of <= 0.02),
    ]


if __name__ == "__main__":
    packages = ("setpoint", "fow-cache", "wordllama", "tokenizers")
    main(Benchmark("semantic", "The semantic tier on labelled pairs", packages, measure))
