"""Keys by meaning and by structure: what each way to say that two requests are one serves, rightly and wrongly."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import fow_cache

from benchmarks.harness import Benchmark, Goal, Report, at_least, at_most, main, say
from benchmarks.key_candidates import Reached, candidate_table, larger, measured
from benchmarks.key_matchers import (
    BANKING,
    FORM,
    PairScore,
    Questions,
    bank,
    bank_scores,
    bank_table,
    fitted,
    pair_scores,
    pair_table,
)
from benchmarks.key_spellings import cost_table, drift_table
from caches.semantic.signed_matrix import RADIUS

LARGER = 65_536
SIGNATURES = f"signatures within {RADIUS} bits"


def measure(quick: bool) -> Report:
    found = bank(quick)
    if found is None:
        asked = list(dict.fromkeys(pair[side] for pair in fow_cache.load_questions() for side in "ab"))
        buckets = fitted(Questions(asked), quick=True)
    else:
        buckets = fitted(found.stored, quick)
    say("labelled pairs")
    pairs = pair_scores(buckets, quick)
    tables, reached = [pair_table(pairs)], list[dict[str, Reached]]()
    if found is not None:
        say("Banking77")
        scores = bank_scores(found, buckets)
        tables.append(bank_table(scores, len(found.stored.texts), len(found.asked.texts)))
        stored, asked_vectors = found.stored.vectors, found.asked.vectors[: 50 if quick else 1_000]
        reached.append(measured(stored, asked_vectors, buckets))
        tables.append(candidate_table("Banking77", len(stored), reached[-1]))
        rows, questions = larger(found, 2_000 if quick else LARGER)
        reached.append(measured(rows, questions, buckets))
        tables.append(candidate_table("vectors near those of Banking77", len(rows), reached[-1]))
    (drift, attributed), (costs, times) = drift_table(quick), cost_table(quick)
    goals = [
        *_matching_goals(pairs),
        *_candidate_goals(reached),
        at_least("drift put down to the change that was made", 95.0, 100.0 * attributed, "%"),
        at_most("a key with all rules of structure, by one without", 3.0, times, "times"),
    ]
    return Report(_facts(found is not None), [*tables, drift, costs], goals)


def _facts(with_bank: bool) -> list[str]:
    facts = [
        "fow-cache 0.1.0 (CC BY 4.0): pairs of questions, half of them traps; those at odd places. The guard's rules "
        "were made with a look at the others; the form of lemmas was chosen by counts over both.",
        "Vectors: WordLlama, 256 dimensions. Signatures: 64 hyperplanes, seed 0. Lemmas: simplemma, English.",
        "Composed chats: questions of fow-cache by Zipf's law, half of the requests changed in the way named, seed 0.",
    ]
    if with_bank:
        facts.append(
            "Banking77 (CC BY 4.0, Casanueva et al., 2020): the training part is stored and buckets are fitted on it, "
            "the test part is asked. Its intents are topics, not answers."
        )
    return facts if with_bank else [*facts, f"Banking77 was not there ({BANKING.name}): its tables are missing."]


def _matching_goals(pairs: Mapping[str, tuple[PairScore, PairScore]]) -> list[Goal]:
    lemmas = pairs[FORM][1]
    served, wrong = 100.0 * lemmas.right / lemmas.pairs, 100.0 * lemmas.wrong / lemmas.traps
    return [
        at_least("the tier's form with the guard, served of pairs with one answer", 20.0, served, "%"),
        at_most("the tier's form with the guard, traps served", 2.0, wrong, "%"),
    ]


def _candidate_goals(reached: Sequence[Mapping[str, Reached]]) -> list[Goal]:
    """reached: of Banking77 and of more rows."""
    if not reached:
        return [Goal("signatures find 95 % of neighbours, as soon as cells", "Banking77 was not there", None)]
    goals = []
    for where, found in zip(("Banking77", f"{LARGER:,} rows"), reached, strict=True):
        signatures, cells = found[SIGNATURES], found["cells (inverted file)"]
        sooner = statistics.median(cells.micros) / statistics.median(signatures.micros)
        goals += [
            at_least(f"{where}: {SIGNATURES}, neighbours found", 95.0, 100.0 * signatures.recall, "%"),
            at_least(f"{where}: time of a lookup in cells, by {SIGNATURES}", 1.0, sooner, "times"),
        ]
    return goals


if __name__ == "__main__":
    packages = ("setpoint", "fow-cache", "wordllama", "simplemma", "rapidfuzz", "scikit-learn", "faiss-cpu")
    main(Benchmark("keys", "Keys by meaning and by structure", packages, measure))
