"""Parts of benchmarks/tuners.py: what came out, as tables and goals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agents.baselines.best_static import StaticFit
from agents.results import Evaluation, PolicyResult
from agents.tracks import RUNNABLE
from benchmarks.harness import Cell, Goal, Table
from benchmarks.live_budget import LiveResult
from benchmarks.offline_search import OfflineResult
from benchmarks.workloads import Workload

HEADROOM_WANTED = ("servegen-twitter", "events")


@dataclass(frozen=True)
class Outcome:
    """One workload. cpu_seconds: of training one seed. live: by budget. offline: fixed settings, searched as long."""

    workload: Workload
    fit: StaticFit
    evaluation: Evaluation
    cpu_seconds: float
    live: tuple[LiveResult, ...]
    offline: tuple[OfflineResult, ...]

    @property
    def ppo(self) -> PolicyResult:
        """Any of the seeds."""
        return next(policy for policy in self.evaluation.policies if policy.role == "learned")

    @property
    def saving(self) -> tuple[float, float]:
        """PPO's saving over best static, mean over seeds, and where its 95 % interval begins; percent."""
        learned = self.evaluation.learned
        assert learned is not None
        assert learned.saving_percent is not None
        found = learned.saving_percent
        return found.mean, found.mean if found.low is None else found.low


def policy_row(policy: PolicyResult) -> list[Cell]:
    saving = None if policy.saving is None or policy.saving.percent is None else policy.saving.percent
    return [
        policy.name,
        f"{policy.usd_per_1000:.5f}",
        None if saving is None else f"{saving.mean:+.2f} [{saving.low:+.2f}, {saving.high:+.2f}]",
        None if policy.headroom_captured is None else f"{policy.headroom_captured:.2f}",
        f"{policy.hit_ratio:.3f}",
        f"{policy.unsafe_per_1000_intervals:.1f}",
        None if policy.changes is None else f"{policy.changes.per_day:.0f}",
        *(f"{usd:.5f}" for usd in policy.usd_by_cause_per_1000.values()),
    ]


def judged_table(title: str, fit: StaticFit, evaluation: Evaluation) -> Table:
    header = (
        *("policy", "USD per 1,000", "saving % over best static [95 %, time]", "headroom", "hit ratio"),
        *("unsafe per 1,000", "changes a day", *evaluation.policies[0].usd_by_cause_per_1000),
    )
    learned = evaluation.learned
    note = ""
    if learned is not None and learned.saving_percent is not None:
        saving, headroom = learned.saving_percent, learned.headroom_captured
        note = f"PPO over {saving.seeds} seeds: saving {saving.mean:+.2f} % (95 % interval over seeds "
        note += (
            f"{saving.low:+.2f} to {saving.high:+.2f}, smallest {saving.smallest:+.2f}, largest {saving.largest:+.2f})"
        )
        note += "." if headroom is None else f"; headroom captured {headroom.mean:.2f}."
    settings = fit.settings
    note += f" Best static: cache_size {settings.cache_size:,.0f} bytes, ttl_seconds {settings.ttl_seconds:,.0f}, "
    note += f"warmup_ratio {settings.warmup_ratio:.2f}. {' '.join(evaluation.notes)}"
    return Table(title, header, [policy_row(policy) for policy in evaluation.policies], note)


def live_table(outcomes: Sequence[Outcome]) -> Table:
    header = (
        *("workload", "tuner", "live intervals", "cost beyond best static while learning, %", "unsafe per 1,000 then"),
        *("saving on test, % (smallest to largest seed)", "unsafe per 1,000 on test"),
    )
    rows: list[list[Cell]] = []
    for outcome in outcomes:
        for one in outcome.live:
            savings = (
                f"{np.mean(one.saving_percent):+.2f} ({min(one.saving_percent):+.2f} to {max(one.saving_percent):+.2f})"
            )
            regret = None if one.regret_percent is None else f"{np.mean(one.regret_percent):+.2f}"
            unsafe = None if one.learning_unsafe_per_1000 is None else f"{one.learning_unsafe_per_1000:.1f}"
            rows.append(
                [outcome.workload.name, one.name, one.budget, regret, unsafe, savings, f"{one.unsafe_per_1000:.1f}"]
            )
    note = "PPO by replay learns from the recorded traffic of the same intervals and tries nothing on live traffic."
    return Table("Equal budget of live intervals", header, rows, note)


def offline_table(outcomes: Sequence[Outcome]) -> Table:
    header = ("workload", "search", "CPU seconds", "settings priced", "saving on test, %", "PPO's saving, %")
    rows: list[list[Cell]] = []
    for outcome in outcomes:
        for one in outcome.offline:
            saved = f"{one.saving_percent:+.2f}"
            mine = f"{outcome.saving[0]:+.2f}"
            rows.append([outcome.workload.name, one.name, f"{one.cpu_seconds:.0f}", one.trials, saved, mine])
    return Table("Equal CPU seconds: one fixed setting found by search", header, rows, "One seed each.")


def summary_table(outcomes: Sequence[Outcome]) -> Table:
    header = (
        "workload",
        "PPO's saving, %",
        "bound's saving, %",
        "headroom",
        "cheapest that can be run",
        "its saving, %",
    )
    rows: list[list[Cell]] = []
    for outcome in outcomes:
        evaluation = outcome.evaluation
        bound, learned = evaluation.one("bound"), evaluation.learned
        cheapest = min((p for p in evaluation.policies if p.role in RUNNABLE), key=lambda p: p.usd_per_1000)
        captured = None if learned is None or learned.headroom_captured is None else learned.headroom_captured.mean
        rows.append(
            [
                outcome.workload.name,
                f"{outcome.saving[0]:+.2f} (from {outcome.saving[1]:+.2f})",
                _percent(bound),
                None if captured is None else f"{captured:.2f}",
                cheapest.name,
                _percent(cheapest),
            ]
        )
    return Table("In short", header, rows)


def _percent(policy: PolicyResult | None) -> str | None:
    if policy is None or policy.saving is None or policy.saving.percent is None:
        return None
    return f"{policy.saving.percent.mean:+.2f}"


def goals_of(outcomes: Sequence[Outcome]) -> list[Goal]:
    """Over the workloads that tuners are compared on."""
    count = len(outcomes)
    better = [o.workload.name for o in outcomes if o.saving[1] > 0]
    worst = min(outcomes, key=lambda o: o.saving[0])
    unsafe = {o.workload.name: _unsafe(o) for o in outcomes}
    goals = [
        Goal(
            f"PPO beats best static (95 % interval over seeds above zero) on at least 4 of {count}",
            f"on {len(better)}: {', '.join(better) or 'none'}",
            len(better) >= 4,
        ),
        Goal(
            "PPO never costs more than 1 % over best static",
            f"{worst.workload.name}: {worst.saving[0]:+.2f} %",
            worst.saving[0] > -1,
        ),
        Goal(
            "at most 1 unsafe interval in 1,000 after training",
            ", ".join(f"{name} {mine:.1f} (best static {static:.1f})" for name, (mine, static) in unsafe.items()),
            all(mine <= 1 for mine, _ in unsafe.values()),
        ),
    ]
    for outcome in outcomes:
        learned = outcome.evaluation.learned
        if outcome.workload.name in HEADROOM_WANTED and learned is not None and learned.headroom_captured is not None:
            mean = learned.headroom_captured.mean
            goals.append(Goal(f"{outcome.workload.name}: headroom captured at least 0.6", f"{mean:.2f}", mean >= 0.6))
    for budget in sorted({one.budget for outcome in outcomes for one in outcome.live}):
        wins = [o.workload.name for o in outcomes if _beats_peers(o, budget)]
        wanted = f"PPO beats every peer at {budget} live intervals on at least 4 of {count}"
        goals.append(Goal(wanted, f"on {len(wins)}: {', '.join(wins) or 'none'}", len(wins) >= 4))
    return goals


def _unsafe(outcome: Outcome) -> tuple[float, float]:
    policies = outcome.evaluation.policies
    mine = [policy.unsafe_per_1000_intervals for policy in policies if policy.role == "learned"]
    static = next(policy for policy in policies if policy.role == "best static")
    return float(np.mean(mine)), static.unsafe_per_1000_intervals


def _beats_peers(outcome: Outcome, budget: int) -> bool:
    """Mean over seeds. With a budget of all training traffic or more PPO is the one trained on all of it."""
    peers = [float(np.mean(one.saving_percent)) for one in outcome.live if one.budget == budget and one.regret_percent]
    mine = [
        float(np.mean(one.saving_percent)) for one in outcome.live if one.budget == budget and not one.regret_percent
    ]
    return max(peers) < (mine[0] if mine else outcome.saving[0])
