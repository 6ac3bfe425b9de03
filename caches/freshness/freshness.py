"""How long entries may be served: schedules by namespace, with all that they go by. What the stack asks.

A lookup costs a few microseconds here. What is known of requests, answers and feedback lies in memory, of the latest
keys only: what was forgotten or was before a restart is not known, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from caches.freshness.answer_facts import AnswerFacts, facts_of
from caches.freshness.evidence import Evidence
from caches.freshness.lifetime import Bounded, Context, EntryFacts, Verdict
from caches.freshness.load_meter import LoadMeter
from caches.freshness.recent import Recent
from caches.freshness.schedules import FIXED, HAZARD, LOAD, QUALITY, SAMPLING, VERDICTS
from caches.freshness.shift import Drift
from caches.keys.by_name import ByName
from caches.keys.request_key import Partition, RequestKey
from caches.tiers.tier import Answer, Found

REMEMBERED = 65_536  # keys


@dataclass(frozen=True)
class Rule:
    """Of a namespace. name: of the schedule, one of schedules.NAMES."""

    name: str
    bounded: Bounded


class Freshness:
    """rules: of namespaces. drift: None where it is not looked for, or changes no lifetimes."""

    def __init__(
        self, rules: ByName[Rule], load: LoadMeter[str], drift: Drift | None = None, remembered: int = REMEMBERED
    ) -> None:
        self._rules, self.load, self.evidence, self._drift = rules, load, Evidence(), drift
        self._sampling: Recent[bytes, tuple[float | None, float | None]] = Recent(remembered)
        self._answers: Recent[bytes, tuple[float, AnswerFacts]] = Recent(remembered)
        self._feedback: Recent[bytes, tuple[Verdict, ...]] = Recent(remembered)
        self._not_by_meaning: Recent[bytes, bool] = Recent(remembered)
        self._facts: dict[str, Callable[[RequestKey, Answer, float], EntryFacts]] = {
            QUALITY: self._of_quality,
            SAMPLING: self._of_sampling,
        }

    # --- on the path of requests -----------------------------------------------------------------------------------

    def rule(self, partition: Partition) -> Rule:
        return self._rules.of(partition.namespace)

    def asked(self, key: RequestKey, temperature: object, top_p: object, now_seconds: float) -> None:
        """A request, before it is looked up; what is no number is as good as not stated."""
        name = self.rule(key.partition).name
        if name == LOAD:
            self.load.asked(key.partition.namespace, now_seconds)
        elif name == SAMPLING:
            self._sampling.note(key.id, (_number(temperature), _number(top_p)))

    def called(self, key: RequestKey, failed: bool, now_seconds: float) -> None:
        """A call of the backend for it has ended."""
        if self.rule(key.partition).name == LOAD:
            self.load.called(key.partition.namespace, failed, now_seconds)

    def lifetime(self, key: RequestKey, found: Found, base_ttl_seconds: float, now_seconds: float) -> float:
        """Seconds from the write of what was found. 0 for an answer to another question that somebody called wrong."""
        if found.similarity < 1.0 and self._not_by_meaning.get(key.id):
            return 0.0
        share = 1.0 if self._drift is None else self._drift.lifetime_share(found.stored_by(key))
        rule = self.rule(key.partition)
        if rule.name == FIXED and share == 1.0:
            return base_ttl_seconds
        facts = self._facts.get(rule.name)
        answer = found.answer
        entry = facts(key, answer, base_ttl_seconds) if facts else EntryFacts(answer.written_seconds, base_ttl_seconds)
        return rule.bounded.lifetime(entry, self._context(rule.name, key.partition, now_seconds), share)

    # --- beside it -------------------------------------------------------------------------------------------------

    def judged(self, key: RequestKey, verdict: Verdict, by_meaning: bool) -> None:
        """by_meaning: what was answered was the answer to another question; then a verdict says nothing of an entry
        under this key, and a bad one keeps this question from being answered so again."""
        if not by_meaning:
            known = self._feedback.get(key.id) or ()
            self._feedback.note(key.id, (*known, verdict)[-VERDICTS:])
        elif verdict is not Verdict.USEFUL:
            self._not_by_meaning.note(key.id, True)

    def feedback(self, key: RequestKey) -> tuple[Verdict, ...]:
        return self._feedback.get(key.id) or ()

    def _context(self, name: str, partition: Partition, now_seconds: float) -> Context:
        if name == LOAD:
            load = self.load.load(partition.namespace, now_seconds)
            return Context(now_seconds) if load is None else Context(now_seconds, load.qps, load.error_rate)
        if name == HAZARD:
            rate = self.evidence.rate(partition)
            if rate is not None:
                return Context(now_seconds, change_rate=rate.high, longest_age_seconds=rate.longest_age_seconds)
        return Context(now_seconds)

    def _of_quality(self, key: RequestKey, answer: Answer, base_ttl_seconds: float) -> EntryFacts:
        facts = self.answer_facts(key, answer)
        return EntryFacts(
            answer.written_seconds,
            base_ttl_seconds,
            tokens=answer.output_tokens or None,
            mean_logprob=facts.mean_logprob,
            entropy_bits=facts.entropy_bits,
            feedback=self.feedback(key),
        )

    def _of_sampling(self, key: RequestKey, answer: Answer, base_ttl_seconds: float) -> EntryFacts:
        temperature, top_p = self._sampling.get(key.id) or (None, None)
        return EntryFacts(answer.written_seconds, base_ttl_seconds, temperature=temperature, top_p=top_p)

    def answer_facts(self, key: RequestKey, answer: Answer) -> AnswerFacts:
        """Read once for each answer."""
        known = self._answers.get(key.id)
        if known is None or known[0] != answer.written_seconds:
            known = answer.written_seconds, facts_of(answer.body)
            self._answers.note(key.id, known)
        return known[1]


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
