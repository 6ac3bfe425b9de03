"""Many questions to a Prometheus side by side, all of them answered or given up within one time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from tuner.prometheus.client import Inquiry, NotAnswered, Sample
from tuner.prometheus.promql import PLACE, union

LEAST_SECONDS = 0.001

Answer = tuple[Sample, ...] | NotAnswered


@dataclass(frozen=True)
class Question:
    """queries: several are asked as one, which saves most of the work, and apart where that is refused: one that is
    wrong must not take the others along. at_seconds: Unix time, None for the server's now."""

    queries: tuple[str, ...]
    at_seconds: float | None


def ask_all(
    inquiry: Inquiry, questions: Sequence[Question], workers: int, started: Callable[[threading.Thread], None]
) -> dict[str, Answer]:
    """Answers by query, all of them, when the inquiry's time is up at the latest. Threads that are stuck by then are
    daemons: they neither hold up the caller nor the end of the program. started: is told of each thread."""
    waiting: SimpleQueue[Question] = SimpleQueue()
    come: SimpleQueue[tuple[str, Answer]] = SimpleQueue()
    for question in questions:
        waiting.put(question)

    def work() -> None:
        while True:
            try:
                question = waiting.get_nowait()
            except Empty:
                return
            for pair in _answered(inquiry, question):
                come.put(pair)

    for _ in range(min(workers, len(questions))):
        thread = threading.Thread(target=work, name="signals", daemon=True)
        thread.start()
        started(thread)
    queries = [query for question in questions for query in question.queries]
    answers: dict[str, Answer] = dict.fromkeys(queries, inquiry.late())
    for _ in queries:
        try:
            query, answer = come.get(timeout=max(inquiry.left_seconds(), LEAST_SECONDS))
        except Empty:
            break
        answers[query] = answer
    return answers


def _answered(inquiry: Inquiry, question: Question) -> Iterator[tuple[str, Answer]]:
    (first, *others), at_seconds = question.queries, question.at_seconds
    try:
        found = inquiry.ask(union(question.queries) if others else first, at_seconds)
    except NotAnswered as reason:
        if not others:
            yield first, reason
            return
        for query in question.queries:
            yield from _answered(inquiry, Question((query,), at_seconds))
        return
    if not others:
        yield first, found
        return
    for place, query in enumerate(question.queries):
        yield query, tuple(sample for sample in found if sample.labels.get(PLACE) == str(place))
