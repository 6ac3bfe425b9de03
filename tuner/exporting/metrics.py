"""From where a daemon stands and what it recorded to the samples of its metrics. Pure; nothing known gives no sample.

Labels are bounded: arms, causes, verdicts, guardrails and phases are few. No key is one, and a version only in the
metric that says who decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from caches.target import Arm
from envs.reward import CAUSES
from envs.traffic import DRIFT as DRIFT_COLUMN
from envs.traffic import ENTROPY as ENTROPY_COLUMN
from tuner.account import usd_per_1000, value
from tuner.exporting import metric_table as table
from tuner.exporting.metric_table import Measure
from tuner.exporting.regret import Regret, ghost_interval
from tuner.loop.arms_now import VERDICTS
from tuner.loop.closing import Looked
from tuner.loop.next_tick import ROLES
from tuner.loop.steering import CHALLENGER, CHAMPION
from tuner.records import ControlState, Decision, IntervalRecord, Phase, Verdict

RECORDED, MISSED = "recorded", "missed"
Labels = tuple[str, ...]


def _none(*second: str) -> dict[Labels, float]:
    return {(arm.value, label): 0.0 for arm in Arm for label in second}


@dataclass(frozen=True)
class Sample:
    """labels: values, in the order of measure.labels."""

    measure: Measure
    labels: Labels
    value: float


@dataclass(frozen=True)
class Terms:
    """What stays while a daemon runs. The objectives are seconds; None: there is none."""

    interval_seconds: float
    p99_ttft_seconds: float | None
    p99_latency_seconds: float | None


@dataclass(frozen=True)
class Counts:
    """Since the daemon began. What can happen and has not is 0, so that the first time is seen as growth too."""

    usd: Mapping[Labels, float] = field(default_factory=dict)
    requests: Mapping[Labels, float] = field(default_factory=dict)
    intervals: Mapping[Labels, float] = field(default_factory=lambda: _none(RECORDED, MISSED))
    decisions: Mapping[Labels, float] = field(default_factory=lambda: _none(*(verdict.value for verdict in Verdict)))
    rollbacks: float = 0.0

    def after(self, records: Iterable[IntervalRecord], decisions: Iterable[Decision], rolled_back: bool) -> Counts:
        usd, requests, intervals = dict(self.usd), dict(self.requests), dict(self.intervals)
        for record in records:
            _add(intervals, (record.arm.value, MISSED if record.window is None else RECORDED), 1.0)
            causes = {cause: value(record, f"{cause}_usd") for cause in CAUSES}
            asked = value(record, "requests")
            if asked is None or None in causes.values():
                continue
            _add(requests, (record.arm.value,), asked)
            for cause, amount in causes.items():
                _add(usd, (record.arm.value, cause), amount or 0.0)
        made = dict(self.decisions)
        for decision in decisions:
            _add(made, (decision.arm.value, decision.verdict.value), 1.0)
        return Counts(usd, requests, intervals, made, self.rollbacks + rolled_back)


@dataclass(frozen=True)
class Traffic:
    """Of the keys, in the last interval; None where not known."""

    entropy_bits: float | None = None
    drift_bits: float | None = None
    entropy_change_bits: float | None = None

    def after(self, looked: Looked) -> Traffic:
        entropy, drift = (_known(looked.keys.traffic[column]) for column in (ENTROPY_COLUMN, DRIFT_COLUMN))
        before = self.entropy_bits
        return Traffic(entropy, drift, None if entropy is None or before is None else entropy - before)


@dataclass(frozen=True)
class Known:
    """What samples are made of. state: None in standby, of which only `lease_held` and the counts are told. records,
    decisions: the newest of each arm. fence: None while no lease is held."""

    state: ControlState | None = None
    fence: int | None = None
    records: Mapping[Arm, IntervalRecord] = field(default_factory=dict)
    decisions: Mapping[Arm, Decision] = field(default_factory=dict)
    traffic: Traffic = Traffic()
    regret: Regret = field(default_factory=Regret)
    last_good_seconds: float | None = None
    counts: Counts = field(default_factory=Counts)

    def after(
        self,
        state: ControlState,
        records: Sequence[IntervalRecord],
        decisions: Sequence[Decision],
        looked: Looked | None,
        *,
        counted: bool = True,
    ) -> Known:
        """With what was written since. records, decisions: new ones, by index. looked: what was seen of the interval
        that is over; None where this daemon did not look. counted: not so for what was there before it began."""
        good = [record.ended_seconds for record in records if record.window is not None]
        newest = max((record.index for record in records), default=None)
        last = [record for record in records if record.index == newest]
        before = Phase.ROLLED_BACK if self.state is None else self.state.phase
        rolled_back = state.phase is Phase.ROLLED_BACK and before is not Phase.ROLLED_BACK
        ghosts = None if looked is None or newest != state.index - 1 else ghost_interval(looked)
        if self.last_good_seconds is not None:
            good.append(self.last_good_seconds)
        return replace(
            self,
            state=state,
            records={record.arm: record for record in last} if records else self.records,
            decisions={one.arm: one for one in decisions if one.index == state.index} if decisions else self.decisions,
            traffic=Traffic() if looked is None else self.traffic.after(looked),
            regret=self.regret.after(last, ghosts),
            last_good_seconds=max(good, default=None),
            counts=self.counts.after(records, decisions, rolled_back) if counted else self.counts,
        )


def samples(known: Known, terms: Terms) -> list[Sample]:
    """All but the durations of ticks."""
    found = [
        Sample(table.LEASE, (), float(known.fence is not None)),
        Sample(table.INTERVAL, (), terms.interval_seconds),
    ]
    found += _optional(
        (table.TTFT_OBJECTIVE, (), terms.p99_ttft_seconds),
        (table.LATENCY_OBJECTIVE, (), terms.p99_latency_seconds),
    )
    found += _counted(known.counts)
    if known.state is None or known.fence is None:
        return found
    found.append(Sample(table.FENCE, (), float(known.fence)))
    found += _of_state(known.state)
    found += _of_records(known.records.values())
    found += _of_decisions(known.state, known.decisions.values())
    found += _optional(
        (table.ENTROPY, (), known.traffic.entropy_bits),
        (table.ENTROPY_CHANGE, (), known.traffic.entropy_change_bits),
        (table.DRIFT, (), known.traffic.drift_bits),
        (table.REGRET, (), known.regret.usd_per_1000()),
        (table.LAST_GOOD, (), known.last_good_seconds),
    )
    return found


def _counted(counts: Counts) -> Iterator[Sample]:
    for measure, values in (
        (table.COST, counts.usd),
        (table.REQUESTS, counts.requests),
        (table.INTERVALS, counts.intervals),
        (table.DECISIONS, counts.decisions),
    ):
        yield from (Sample(measure, labels, amount) for labels, amount in values.items())
    yield Sample(table.ROLLBACKS, (), counts.rollbacks)


def _of_state(state: ControlState) -> Iterator[Sample]:
    yield Sample(table.CONFIRMED, (), float(state.confirmed))
    yield Sample(table.PAUSED, (), float(state.paused is not None))
    yield Sample(table.LATCHED, (), float(state.latched is not None))
    for phase in Phase:
        yield Sample(table.PHASE, (phase.value,), float(phase is state.phase))
    for arm in Arm:
        share, settings = state.plan.split.share(arm), state.plan.settings(arm)
        yield Sample(table.SHARE, (arm.value,), share)
        if share:
            yield Sample(table.CACHE_SIZE, (arm.value,), settings.cache_size)
            yield Sample(table.TTL, (arm.value,), settings.ttl_seconds)
            yield Sample(table.WARMUP, (arm.value,), settings.warmup_ratio)


def _of_records(records: Iterable[IntervalRecord]) -> Iterator[Sample]:
    for record in records:
        arm = (record.arm.value,)
        yield from _optional(
            (table.HIT_RATIO, arm, value(record, "hit_ratio")),
            (table.P99_TTFT, arm, value(record, "p99_ttft_seconds")),
            (table.P99_LATENCY, arm, value(record, "p99_latency_seconds")),
            (table.COST_NOW, arm, usd_per_1000(record)),
        )


def _of_decisions(state: ControlState, decisions: Iterable[Decision]) -> Iterator[Sample]:
    for one in decisions:
        version = "" if one.version is None else str(one.version)
        yield Sample(table.POLICY, (one.arm.value, one.policy, version, one.mode.value), 1.0)
    for role, arm in ((CHAMPION, Arm.CONTROL), (CHALLENGER, Arm.TREATMENT)):
        for guardrail, verdict in _verdicts(state, role).items():
            yield Sample(table.GUARDRAIL, (arm.value, guardrail), float(verdict != Verdict.ALLOW.value))


def _verdicts(state: ControlState, role: str) -> Mapping[str, object]:
    """What each guardrail said of a role in the interval that is over; nothing where it was not played."""
    roles = state.memory.get(ROLES)
    memory = roles.get(role) if isinstance(roles, Mapping) else None
    verdicts = memory.get(VERDICTS) if isinstance(memory, Mapping) else None
    return verdicts if isinstance(verdicts, Mapping) else {}


def _optional(*found: tuple[Measure, Labels, float | None]) -> Iterator[Sample]:
    yield from (Sample(measure, labels, amount) for measure, labels, amount in found if amount is not None)


def _add(totals: dict[Labels, float], labels: Labels, amount: float) -> None:
    totals[labels] = totals.get(labels, 0.0) + amount


def _known(number: float) -> float | None:
    return float(number) if number == number else None
