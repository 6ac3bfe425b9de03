"""Signals from a Prometheus: for each a query, and beside it the age of the series that the query reads.

All questions of a reading are asked side by side and within one time. What is not answered by then, or is not an
answer, is a missing signal with the reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from caches.errors import InputError
from tuner.prometheus.client import NotAnswered, PrometheusServer, Sample
from tuner.prometheus.preset_queries import Chosen, chosen_queries, labels_of
from tuner.prometheus.promql import Reads, age_query, check_matchers, duration, filled, placeholders, series_read
from tuner.prometheus.questions import Answer, Question, ask_all
from tuner.signal_sections import SignalsConfig
from tuner.signals import SIGNALS, Signal, all_missing, measured, missing

AT_ONCE = 8  # questions side by side
TOGETHER = 12  # ages in one of them, so that its URL stays short
MOST_THREADS = 2 * AT_ONCE  # with those of readings that were given up
CLOCK_SECONDS = 5.0  # by which clocks may differ: as much of a window may be empty at its end
CLOCK = "time()"
KNOWN = frozenset({"labels", "window", "slots"})


@dataclass(frozen=True)
class Asked:
    """query: as it is sent. reads: None where it cannot be asked, with the reason. origin: a preset or the settings."""

    signal: str
    origin: str
    query: str
    reads: Reads | None
    reason: str = ""


class PrometheusSignals:
    """clock_seconds: by how much Prometheus' clock may differ from the time of a reading; infinite to read the past.
    max_age_seconds: in place of that of each signal. A read takes timeout_seconds at most."""

    def __init__(
        self,
        server: PrometheusServer,
        asked: Iterable[Asked],
        timeout_seconds: float,
        max_age_seconds: float | None = None,
        clock_seconds: float = CLOCK_SECONDS,
    ) -> None:
        self.asked: Mapping[str, Asked] = {one.signal: one for one in asked}
        self._server, self._timeout_seconds = server, timeout_seconds
        self._max_age_seconds, self._clock_seconds = max_age_seconds, clock_seconds
        self._threads: list[threading.Thread] = []

    def read(self, now_seconds: float) -> Mapping[str, Signal]:
        began = time.monotonic()
        answers = self._answers(now_seconds)
        reason = self._clock_reason(answers[CLOCK], now_seconds, time.monotonic() - began)
        if reason is not None:
            return all_missing(reason)
        return {name: self._signal(name, answers, now_seconds) for name in SIGNALS}

    def _answers(self, now_seconds: float) -> dict[str, Answer]:
        """By query. CLOCK is asked of the server's own clock, everything else of the time now."""
        asked = [one for one in self.asked.values() if one.reads is not None]
        values = dict.fromkeys(one.query for one in asked)
        ages = [*dict.fromkeys(age_query(selector) for one in asked if one.reads for selector in one.reads.selectors())]
        questions = [
            Question((CLOCK,), None),
            *(Question((query,), now_seconds) for query in values),
            *(Question(tuple(ages[at : at + TOGETHER]), now_seconds) for at in range(0, len(ages), TOGETHER)),
        ]
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        free = MOST_THREADS - len(self._threads)
        if free <= 0:
            stuck = NotAnswered(f"{self._server.shown} still holds the questions of readings before: see what ails it")
            return dict.fromkeys((query for question in questions for query in question.queries), stuck)
        with self._server.inquiry(self._timeout_seconds) as inquiry:
            return ask_all(inquiry, questions, min(AT_ONCE, free), self._threads.append)

    def _clock_reason(self, answer: Answer, now_seconds: float, took_seconds: float) -> str | None:
        """Why nothing can be made of this reading."""
        if isinstance(answer, NotAnswered):
            return str(answer)
        if len(answer) != 1:
            return f"{self._server.shown} does not know what time it is: is this the URL of a Prometheus?"
        ahead = answer[0].value - now_seconds
        if -self._clock_seconds <= ahead <= took_seconds + self._clock_seconds:
            return None
        return f"the clock of {self._server.shown} is {ahead:+.0f} s away from this machine's: set them right"

    def _signal(self, name: str, answers: Mapping[str, Answer], now_seconds: float) -> Signal:
        one = self.asked.get(name)
        if one is None:
            return missing(name, f"no query: add a preset that has one, or signals.queries.{name}")
        if one.reads is None:
            return missing(name, one.reason)
        sampled: dict[str, float | None] = {}
        for selector in one.reads.selectors():
            answer = answers[age_query(selector)]
            if isinstance(answer, NotAnswered):
                return missing(name, str(answer))
            sampled[selector] = answer[0].value if answer else None
        found = answers[one.query]
        if isinstance(found, NotAnswered):
            return missing(name, str(found))
        oldest = one.reads.oldest(sampled)
        reason = _why_no_value(found, oldest, ", ".join(one.reads.lacking(sampled)))
        if reason is not None or oldest is None:
            return missing(name, reason or "no sample")
        return measured(SIGNALS[name], found[0].value, now_seconds - oldest, self._max_age_seconds)


def prometheus_signals(config: SignalsConfig, token: str | None = None) -> PrometheusSignals:
    """As the settings say. InputError where they name no Prometheus, a preset that is not known, or no PromQL."""
    if config.prometheus is None:
        raise InputError("signals.prometheus: not set, expected the URL of a Prometheus")
    server = PrometheusServer(config.prometheus, token)
    return PrometheusSignals(server, asked_by(config), config.timeout_seconds, config.max_age_seconds)


def asked_by(config: SignalsConfig) -> list[Asked]:
    """The queries that the settings choose, with values for their placeholders."""
    return [_asked(chosen, config) for chosen in chosen_queries(config).values()]


def _asked(chosen: Chosen, config: SignalsConfig) -> Asked:
    labels = labels_of(config, chosen.origin)
    check_matchers("signals.labels", labels)
    wanted = placeholders(chosen.text)
    if not wanted <= KNOWN:
        known = ", ".join(f"${name}" for name in sorted(KNOWN))
        raise InputError(f"{chosen.place}: got ${min(wanted - KNOWN)}, expected one of {known}")
    values = {"labels": labels, "window": duration(config.window_seconds), "slots": str(config.slots or "$slots")}
    query = filled(chosen.text, values).strip()
    reads = series_read(chosen.place, query.replace("$slots", "1"))
    if "slots" in wanted and config.slots is None:
        return Asked(
            chosen.signal, chosen.origin, query, None, "it needs signals.slots, the sequences that one backend runs"
        )
    return Asked(chosen.signal, chosen.origin, query, reads)


def _why_no_value(found: Sequence[Sample], oldest: float | None, lacking: str) -> str | None:
    if len(found) > 1:
        some = ", ".join(_labels(sample) for sample in found[:3])
        return f"{len(found)} series where one value is expected ({some}, …): add them up, or name one by its labels"
    if oldest is not None:
        return (
            None
            if found
            else "its series are there but give no value: a rate takes two samples within signals.window_seconds"
        )
    if found:
        return (
            f"{lacking} has no sample now, though the query has a value: its exporter is gone or not scraped, and the "
            "window still knows it, or something stands in for it"
        )
    return f"no series {lacking}: see whether Prometheus scrapes it, and whether signals.labels fit"


def _labels(sample: Sample) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items())) + "}"
