"""Which questions may be matched by meaning, and their vectors."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from caches.keys.prose import is_prose
from caches.semantic.embedder import Embedder, Vectors
from caches.tiers.tier import TierError

REMEMBERED = 1_024
LONGEST_QUESTION = 1_000  # in characters


def speaks(question: str | None, longest: int) -> bool:
    """Whether a question may be matched by meaning: short prose. In a long text the difference that matters drowns, and
    in code the indentation counts; those share an answer only where they are equal."""
    return bool(question and len(question) <= longest and is_prose(question))


class QuestionVectors:
    """Vectors of questions, the latest remembered: a miss asks for the same one twice, to look up and to store."""

    def __init__(self, embedder: Embedder, timeout_seconds: float) -> None:
        self._embedder, self._timeout_seconds = embedder, timeout_seconds
        self._recent: OrderedDict[str, Vectors] = OrderedDict()

    async def of(self, questions: Sequence[str]) -> dict[str, Vectors]:
        """One call of the embedder for all that are new. Raises TierError where it fails or takes too long."""
        found = {question: self._recent[question] for question in questions if question in self._recent}
        new = [question for question in dict.fromkeys(questions) if question not in found]
        if new:
            found.update(zip(new, await self._embed(new), strict=True))
        for question, vector in found.items():
            self.remember(question, vector)
        return found

    def remember(self, question: str, vector: Vectors) -> None:
        """A vector that this embedder gave."""
        self._recent[question] = vector
        self._recent.move_to_end(question)
        while len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)

    async def _embed(self, texts: list[str]) -> Vectors:
        if not self._embedder.slow:
            return self._embedder.embed(texts)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await asyncio.to_thread(self._embedder.embed, texts)
        except TimeoutError as error:
            raise TierError(f"{self._embedder.name}: no vectors within {self._timeout_seconds} s") from error
