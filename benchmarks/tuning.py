"""PPO against the best static setting and simple baselines on held-out traffic, five seeds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from agents.baselines.best_static import StaticFit, fit_best_static
from agents.judge import Judgement, judge
from agents.ppo import ActorPolicy, Trained
from agents.study import open_study
from agents.tracks import Contender
from agents.training import TrainingPlan, train_seeds
from agents.uncertainty import Spread
from benchmarks.harness import Benchmark, Goal, Report, Table, main, say
from benchmarks.tuner_tables import policy_row
from benchmarks.workloads import (
    COMPOSED,
    DEFAULT_MEMORY_PRICE,
    SEEDS,
    TWITTER_ALONE,
    UNSEEN,
    WORKERS,
    Workload,
    config_of,
    problem_for,
)
from envs.world import World
from tuner.problem import split_of


@dataclass(frozen=True)
class Outcome:
    workload: Workload
    memory_factor: float
    fit: StaticFit
    trained: tuple[Trained, ...]
    judgement: Judgement


def run(workload: Workload, quick: bool, trained: tuple[Trained, ...] = (), memory_factor: float = 1.0) -> Outcome:
    """Trains all seeds around the best static setting and judges them; policies given as `trained` are only judged."""
    say(f"{workload.name}, memory price x {memory_factor:g}: best static setting")
    config = config_of(workload, memory_factor, quick)
    world = World(problem_for(workload, memory_factor, quick), threads=2)
    split = split_of(config)
    training, _, _ = world.timeline.split(split.train, split.validation)
    fit = fit_best_static(world, training)
    seeds = SEEDS[:2] if quick else SEEDS
    if not trained:
        say(f"  {fit.settings}; training {len(seeds)} seeds")
        plan = TrainingPlan(partial(problem_for, workload, memory_factor, quick), split, fit.settings, config.ppo)
        trained = tuple(train_seeds(plan, seeds, WORKERS))
    study = open_study(world, split, fit.settings, config.ppo.horizon, config.ppo.starts)
    contenders = [
        Contender(ActorPolicy(f"PPO seed {seed}", one.actor), seed) for seed, one in zip(seeds, trained, strict=True)
    ]
    return Outcome(workload, memory_factor, fit, trained, judge(study, contenders))


def table_of(outcome: Outcome) -> Table:
    evaluation = outcome.judgement.evaluation
    causes = list(evaluation.policies[0].usd_by_cause_per_1000)
    header = (
        *("policy", "USD per 1,000", "saving % over best static [95 %, time]", "headroom", "hit ratio"),
        *("unsafe per 1,000", "changes a day", *causes),
    )
    rows = [policy_row(policy) for policy in evaluation.policies]
    learned = evaluation.learned
    note = ""
    if learned is not None and learned.saving_percent is not None and learned.headroom_captured is not None:
        note = f"{_spread(learned.saving_percent, learned.headroom_captured)} Best static: {_settings(outcome.fit)}."
    price = outcome.memory_factor * DEFAULT_MEMORY_PRICE
    return Table(f"{outcome.workload.name}, memory at {price:g} USD/(GiB h)", header, rows, note)


def _spread(saving: Spread, headroom: Spread) -> str:
    return (
        f"PPO over {saving.seeds} seeds: saving {saving.mean:+.2f} % (95 % interval over seeds {saving.low:+.2f} to "
        f"{saving.high:+.2f}, smallest {saving.smallest:+.2f}, largest {saving.largest:+.2f}); headroom captured "
        f"{headroom.mean:.2f} ({headroom.smallest:.2f} to {headroom.largest:.2f})."
    )


def _settings(fit: StaticFit) -> str:
    settings = fit.settings
    return (
        f"cache_size {settings.cache_size:,.0f} bytes, ttl_seconds {settings.ttl_seconds:,.0f}, "
        f"warmup_ratio {settings.warmup_ratio:.2f}"
    )


def goals_of(outcome: Outcome) -> list[Goal]:
    learned = outcome.judgement.evaluation.learned
    name = outcome.workload.name
    if learned is None or learned.saving_percent is None:
        return [Goal(f"{name}: PPO against best static", "nothing was learned", None)]
    saving, headroom = learned.saving_percent, learned.headroom_captured
    low = saving.low if saving.low is not None else saving.mean
    goals = [
        Goal(f"{name}: PPO costs at most 1 % more than best static", f"saves {saving.mean:+.2f} %", saving.mean > -1)
    ]
    if outcome.workload.beats and headroom is not None:
        goals += [
            Goal(f"{name}: 95 % interval of PPO's saving over seeds above zero", f"from {low:+.2f} %", low > 0),
            Goal(f"{name}: headroom captured at least 0.5", f"{headroom.mean:.2f}", headroom.mean >= 0.5),
        ]
    return goals


def measure(quick: bool) -> Report:
    missing = sorted({name for workload in (COMPOSED, UNSEEN, TWITTER_ALONE) for name in workload.missing})
    if missing:
        return Report([f"Not run: {', '.join(missing)} not beside the repository."], [], [])
    outcomes = [run(COMPOSED, quick)]
    if not quick:
        repriced = [run(COMPOSED, quick, outcomes[0].trained, factor) for factor in (0.1, 10.0)]
        outcomes = [*outcomes, run(UNSEEN, quick), run(TWITTER_ALONE, quick), *repriced]
    facts = [fact for workload in (COMPOSED, UNSEEN, TWITTER_ALONE) for fact in workload.facts]
    facts += [
        "Split by time: 60 % training, 20 % validation (early stopping), 20 % test. Seeds 0 to 4. The bound prices "
        "each interval at its cheapest of the static settings that the search's grid holds, in hindsight.",
        "At a tenth and ten times the memory price the same policies act around the best static setting of that price.",
        f"Prices and constraints: the defaults of docs/configuration.md, except {COMPOSED.settings} and "
        f"{TWITTER_ALONE.settings}.",
    ]
    goals = [goal for outcome in outcomes if outcome.memory_factor == 1.0 for goal in goals_of(outcome)]
    return Report(facts, [table_of(outcome) for outcome in outcomes], goals)


if __name__ == "__main__":
    main(
        Benchmark(
            "tuning",
            "Tuning: what PPO saves on traffic it never saw",
            ("setpoint", "stable-baselines3", "torch", "numba", "gymnasium"),
            measure,
        )
    )
