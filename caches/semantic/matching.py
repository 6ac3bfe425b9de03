"""What tiers that answer by meaning have in common: thresholds by partition, the guard, what a question counts for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from caches.errors import InputError
from caches.keys.by_name import ByName
from caches.keys.request_key import Partition, RequestKey
from caches.knobs import Knob
from caches.semantic.edits import share_of_edits
from caches.semantic.embedder import Embedder
from caches.semantic.guard import veto_between
from caches.semantic.guard_reading import Reading, read
from caches.semantic.questions import LONGEST_QUESTION, REMEMBERED, QuestionVectors, speaks

THRESHOLD = "similarity_threshold"
THRESHOLD_STEP = 0.1
MOST_SIMILAR = 0.999999  # of another request: 1 says that the request was equal
VECTOR_NUMBER_BYTES = 4
TEXT_STEP_BYTES = 16  # memory is given out in steps, not by the byte
N = TypeVar("N")


@dataclass(frozen=True)
class MatchingOptions:
    """similarity_threshold: at the start, in [0, 1]; None serves equal requests only. namespace_thresholds: the same of
    namespaces that state one. lowest_threshold, highest_threshold: no threshold can be outside; None always can be set,
    since it serves less than any. candidates: neighbours that the guard may reject before a lookup misses.
    longest_question: in characters. embed_timeout_seconds: for a slow embedder. most_edits: share of a question's text,
    in [0, 1], that may differ from that of the one answered; None: any. side_of: of a key; an entry answers by
    meaning only questions of its own side, as it is now. None: there are no sides."""

    similarity_threshold: float | None = 0.9
    namespace_thresholds: ByName[float | None] = field(default_factory=lambda: ByName({}, None))
    lowest_threshold: float = 0.7
    highest_threshold: float = 1.0
    candidates: int = 8
    longest_question: int = LONGEST_QUESTION
    embed_timeout_seconds: float = 2.0
    most_edits: float | None = None
    side_of: Callable[[RequestKey], Hashable] | None = None

    @property
    def threshold_knob(self) -> Knob:
        """A knob as those of a `KnobSpace`, beside them: no policy moves it. Raises InputError."""
        low, high = self.lowest_threshold, self.highest_threshold
        default = high if self.similarity_threshold is None else self.similarity_threshold
        return Knob(THRESHOLD, "similarity", low, high, default, THRESHOLD_STEP, "linear")


@dataclass(frozen=True)
class SemanticCounts:
    """Since the tier began. equal_hits + semantic_hits = hits. vetoes: neighbours similar enough that the guard
    rejected."""

    equal_hits: int = 0
    semantic_hits: int = 0
    vetoes: int = 0


class Matching:
    """Thresholds are this process's own, also where the entries are shared."""

    def __init__(self, embedder: Embedder, options: MatchingOptions) -> None:
        if options.most_edits is not None and not 0.0 <= options.most_edits <= 1.0:
            raise InputError(f"most_edits: got {options.most_edits}, expected 0 to 1")
        self._embedder, self._matching = embedder, options
        self._questions = QuestionVectors(embedder, options.embed_timeout_seconds)
        self._read = lru_cache(REMEMBERED)(read)  # a miss reads its question to look up, and again to store
        self.threshold_knob = options.threshold_knob
        self._thresholds: dict[Partition, float | None] = {}
        self._threshold = self._allowed(options.similarity_threshold)
        self._matched: Counter[str] = Counter()

    def similarity_threshold(self, partition: Partition | None = None) -> float | None:
        """What binds for a partition, or for all that have none of their own. None: equal requests only."""
        if partition is None:
            return self._threshold
        if partition in self._thresholds:
            return self._thresholds[partition]
        stated = self._matching.namespace_thresholds.of(partition.namespace)
        return self._threshold if stated is None else self._allowed(stated)

    def set_thresholds(self) -> dict[Partition, float | None]:
        """Of the partitions for which one was set since the start."""
        return dict(self._thresholds)

    def set_similarity_threshold(self, threshold: float | None, partition: Partition | None = None) -> float | None:
        """From the next lookup on; returns what was taken, within the operator's range."""
        taken = self._allowed(threshold)
        if partition is None:
            self._threshold = taken
        else:
            self._thresholds[partition] = taken
        return taken

    def counts(self) -> SemanticCounts:
        return SemanticCounts(**self._matched)

    @property
    def embedder_name(self) -> str:
        return self._embedder.name

    def _allowed(self, threshold: float | None) -> float | None:
        if threshold is None:
            return None
        if not 0.0 <= threshold <= 1.0:
            raise InputError(f"{THRESHOLD}: got {threshold}, expected 0 to 1")
        return self.threshold_knob.within(threshold)

    def _speaks(self, key: RequestKey) -> bool:
        return speaks(key.question, self._matching.longest_question)

    def _matches(self, key: RequestKey) -> bool:
        """Whether this request may be answered by meaning."""
        return self._speaks(key) and self.similarity_threshold(key.partition) is not None

    def _same_side(self, key: RequestKey, other: RequestKey) -> bool:
        side_of = self._matching.side_of
        return side_of is None or side_of(key) == side_of(other)

    def _question_bytes(self, key: RequestKey, number_bytes: int = VECTOR_NUMBER_BYTES) -> int:
        """Of the question and its vector; 0 where it has none that may be matched."""
        if key.question is None or not self._speaks(key):
            return 0
        text = -(-len(key.question.encode()) // TEXT_STEP_BYTES) * TEXT_STEP_BYTES
        return text + number_bytes * self._embedder.dimensions

    def _may_answer(self, key: RequestKey, near: Iterable[tuple[N, float, Reading]]) -> Iterator[tuple[N, float]]:
        """Of neighbours with their similarity and question, the most similar first, those that may answer."""
        threshold, asked = self.similarity_threshold(key.partition), None
        for neighbour, similarity, reading in near:
            if threshold is None or not similarity >= threshold:  # nor where it is no number
                return
            asked = asked or self._read(key.question or "")
            if self._agree(asked, reading):
                yield neighbour, min(similarity, MOST_SIMILAR)

    def _agree(self, asked: Reading, answered: Reading) -> bool:
        """Whether nothing speaks against one answer for both; counted where something does."""
        most = self._matching.most_edits
        near = most is None or share_of_edits(asked.text, answered.text, most) <= most
        agreed = near and veto_between(asked, answered) is None
        self._matched["vetoes"] += not agreed
        return agreed
