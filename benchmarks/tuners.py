"""PPO against everything else on held-out traffic: fixed settings, rules, rival tuners, and the clairvoyant bound."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from agents.baselines.best_static import StaticFit, fit_best_static
from agents.judge import Judgement, judge
from agents.ppo import ActorPolicy, Trained
from agents.results import PolicyResult
from agents.study import open_study
from agents.tracks import RUNNABLE, Contender
from agents.training import TrainingPlan, train_seeds
from benchmarks.harness import Benchmark, Cell, Goal, Report, Table, main, say
from benchmarks.live_budget import LiveResult, by_replay, live
from benchmarks.offline_search import OfflineResult, search
from benchmarks.workloads import SEEDS, UNSEEN, WORKERS, WORKLOADS, Workload, config_of, problem_for
from envs.ghosts import ghost_grid
from envs.world import World
from tuner.problem import split_of

BUDGETS = (300, 3_000)
SMALL_BUDGET_STEPS = 40_000
HEADROOM_WANTED = ("servegen-twitter", "events")


@dataclass(frozen=True)
class Outcome:
    """One workload. cpu_seconds: of training one seed. live: by budget. offline: fixed settings, searched as long."""

    workload: Workload
    fit: StaticFit
    judgement: Judgement
    cpu_seconds: float
    live: tuple[LiveResult, ...]
    offline: tuple[OfflineResult, ...]

    @property
    def ppo(self) -> PolicyResult:
        """Any of the seeds."""
        return next(policy for policy in self.judgement.evaluation.policies if policy.role == "learned")

    @property
    def saving(self) -> tuple[float, float]:
        """PPO's saving over best static, mean over seeds, and where its 95 % interval begins; percent."""
        learned = self.judgement.evaluation.learned
        assert learned is not None
        assert learned.saving_percent is not None
        found = learned.saving_percent
        return found.mean, found.mean if found.low is None else found.low


def run(workload: Workload, quick: bool, peers: bool = True) -> Outcome:
    """Everything on one workload; without `peers` only what a judgement compares."""
    say(f"{workload.name}: ghosts and best static setting")
    config = config_of(workload, quick=quick)
    world = World(problem_for(workload, quick=quick), threads=2)
    split, seeds = split_of(config), SEEDS[:2] if quick else SEEDS
    grid = ghost_grid(world)
    training, _, _ = world.timeline.split(split.train, split.validation)
    fit = fit_best_static(world, training, grid=grid)
    say(f"  {fit.settings}; training {len(seeds)} seeds")
    before = _children_cpu_seconds()
    plan = TrainingPlan(partial(problem_for, workload, 1.0, quick), split, fit.settings, config.ppo)
    trained = train_seeds(plan, seeds, WORKERS)
    cpu_seconds = (_children_cpu_seconds() - before) / len(seeds)
    study = open_study(world, split, fit.settings, config.ppo.horizon, config.ppo.starts, grid=grid)
    say("  judging")
    judgement = judge(study, _contenders(trained, seeds))
    if not peers:
        return Outcome(workload, fit, judgement, cpu_seconds, (), ())
    lived = []
    for budget in (60, 120) if quick else BUDGETS:
        say(f"  peers on {budget} live intervals")
        lived += live(study, budget, seeds)
    say("  PPO by replay of the smaller budget; fixed settings by search")
    small = config.ppo.model_copy(update={"total_steps": min(config.ppo.total_steps, SMALL_BUDGET_STEPS)})
    lived.append(by_replay(study, 60 if quick else BUDGETS[0], seeds, small))
    offline = search(study, 2.0 if quick else cpu_seconds, seed=0)
    return Outcome(workload, fit, judgement, cpu_seconds, tuple(lived), tuple(offline))


def _contenders(trained: Sequence[Trained], seeds: Sequence[int]) -> list[Contender]:
    return [
        Contender(ActorPolicy(f"PPO seed {seed}", one.actor), seed) for seed, one in zip(seeds, trained, strict=True)
    ]


def _children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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


def judged_table(outcome: Outcome) -> Table:
    evaluation = outcome.judgement.evaluation
    header = (
        *("policy", "USD per 1,000", "saving % over best static [95 %, time]", "headroom", "hit ratio"),
        *("unsafe per 1,000", "changes a day", *outcome.ppo.usd_by_cause_per_1000),
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
    settings = outcome.fit.settings
    note += f" Best static: cache_size {settings.cache_size:,.0f} bytes, ttl_seconds {settings.ttl_seconds:,.0f}, "
    note += f"warmup_ratio {settings.warmup_ratio:.2f}. {' '.join(evaluation.notes)}"
    return Table(f"{outcome.workload.name}", header, [policy_row(policy) for policy in evaluation.policies], note)


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
        evaluation = outcome.judgement.evaluation
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
        learned = outcome.judgement.evaluation.learned
        if outcome.workload.name in HEADROOM_WANTED and learned is not None and learned.headroom_captured is not None:
            mean = learned.headroom_captured.mean
            goals.append(Goal(f"{outcome.workload.name}: headroom captured at least 0.6", f"{mean:.2f}", mean >= 0.6))
    for budget in sorted({one.budget for outcome in outcomes for one in outcome.live}):
        wins = [o.workload.name for o in outcomes if _beats_peers(o, budget)]
        wanted = f"PPO beats every peer at {budget} live intervals on at least 4 of {count}"
        goals.append(Goal(wanted, f"on {len(wins)}: {', '.join(wins) or 'none'}", len(wins) >= 4))
    return goals


def _unsafe(outcome: Outcome) -> tuple[float, float]:
    policies = outcome.judgement.evaluation.policies
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


def measure(quick: bool) -> Report:
    there = [workload for workload in (WORKLOADS[-1:] if quick else WORKLOADS) if not workload.missing]
    absent = [f"{w.name}: not run, {', '.join(w.missing)} not beside the repository." for w in WORKLOADS if w.missing]
    if not there:
        return Report(absent, [], [])
    outcomes = [run(workload, quick) for workload in there]
    more = [] if quick or UNSEEN.missing else [run(UNSEEN, quick, peers=False)]
    facts = [fact for workload in (*there, *(one.workload for one in more)) for fact in workload.facts]
    facts += [
        *absent,
        "Split by time: 60 % training, 20 % validation (early stopping, choice of rules), 20 % test. Seeds 0 to 4. All "
        "start from the cache and settings that best static left. Prices and constraints: the defaults of "
        "docs/configuration.md, except what benchmarks/workloads.py sets per workload.",
        "Peers are told the saving against the reference on the same requests, as PPO is, averaged over the second "
        f"half of trials of 6 intervals; they may ask for any setting. Budgets: the latest {BUDGETS[0]} intervals of "
        f"the training traffic; {BUDGETS[1]:,} intervals, the whole of it as often as needed.",
    ]
    tables = [summary_table([*outcomes, *more]), *(judged_table(one) for one in (*outcomes, *more))]
    return Report(facts, [*tables, live_table(outcomes), offline_table(outcomes)], goals_of(outcomes))


if __name__ == "__main__":
    main(
        Benchmark(
            "tuners",
            "Tuners: what each saves on traffic it never saw",
            ("setpoint", "stable-baselines3", "torch", "numba", "optuna", "smac", "vowpalwabbit"),
            measure,
        )
    )
