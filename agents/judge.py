"""Judges policies on held-out traffic: what `setpoint evaluate`, the first run and the benchmarks share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agents.baselines.catalog import Rivals
from agents.evaluation import Ground, evaluate, savings
from agents.promotion import PromotionEvidence, Saving
from agents.provenance import Provenance, TracePart
from agents.results import Evaluation, Savings, Setting
from agents.study import Study
from agents.tracks import Champion, Contender, Depth, Track, run_tracks
from agents.uncertainty import Estimate, Resampling
from caches.errors import Mismatch
from envs import traffic as traffic_columns
from envs.interval import column
from envs.world import Progress
from traces.store import trace_sha256


@dataclass(frozen=True)
class Judgement:
    """The numbers, and the tracks behind them for pictures and evidence."""

    study: Study
    tracks: tuple[Track, ...]
    evaluation: Evaluation
    resampling: Resampling

    def track(self, version: int) -> Track:
        """Of a judged policy by its version in the registry."""
        return next(track for track in self.tracks if track.role != "champion" and track.version == version)


def judge(
    study: Study,
    learned: Sequence[Contender],
    champion: Champion | None = None,
    resampling: Resampling | None = None,
    progress: Progress | None = None,
    depth: Depth = Depth.FULL,
    fitted: Rivals | None = None,
) -> Judgement:
    """Compares the learned policies (one per seed) with the baselines, the champion and the bounds on study.test.

    resampling.seed also seeds the random baseline. fitted: the rivals, where they were fitted elsewhere. Raises
    Mismatch where the champion does not fit this world, and InputError where nothing was requested in the test traffic.
    """
    how = resampling or Resampling()
    compared = run_tracks(study, learned, champion, how.seed, progress, depth, fitted)
    problem = study.world.problem
    traffic = study.world.traffic[study.test.start : study.test.stop]
    tokens = column(study.reference.rows, "requests")[study.test.start : study.test.stop] * (
        traffic[:, traffic_columns.PROMPT] + traffic[:, traffic_columns.OUTPUT]
    )
    ground = Ground(problem.knobs, problem.constraints, tokens)
    notes = (*_of_the_cache(study, champion), *compared.notes)
    evaluation = evaluate(compared.tracks, _setting(study, how), ground, how, notes, compared.bound)
    return Judgement(study, compared.tracks, evaluation, how)


def _of_the_cache(study: Study, champion: Champion | None) -> Iterator[str]:
    """What to know where caches are not, or not all, least recently used."""
    here = study.world.problem.policy
    if not here.plain:
        yield f"The cache runs under {here}, whatever its settings."
    if champion is not None and champion.bundle.policy != here:
        yield f"The champion is shown with the cache that it was made for, under {champion.bundle.policy}."


def evidence(judgement: Judgement, version: int, champion: int | None) -> PromotionEvidence:
    """What the judgement says about promoting a version. champion: the version that was champion while judging; it
    must be among the tracks unless it is `version` itself."""
    mine = judgement.track(version)
    result = next(one for one in judgement.evaluation.policies if one.role != "champion" and one.version == version)
    intervals = judgement.evaluation.intervals
    limit = judgement.study.world.problem.constraints.max_unsafe_per_1000
    rival = next((track for track in judgement.tracks if track.role == "champion"), None)
    over_champion = None
    if champion is not None and champion != version and rival is not None:
        requests = column(mine.rows, "requests")
        over_champion = _saving(savings(rival.usd - mine.usd, rival.usd, requests, judgement.resampling))
    return PromotionEvidence(
        candidate=version,
        champion=champion,
        intervals=intervals,
        saving_over_champion=over_champion,
        saving_over_best_static=None if result.saving is None else _saving(result.saving),
        violated_intervals=result.violated_intervals,
        tolerated_violations=int(limit * intervals / 1000),
    )


def require_held_out(provenance: Provenance, study: Study, who: str) -> None:
    """Raises Mismatch where the test intervals overlap what a policy was trained or validated on."""
    trace = study.world.problem.trace
    test = TracePart(trace.info.name, trace.sha256 or trace_sha256(trace), "test", study.test.start, study.test.stop)
    for part in provenance.traffic:
        if part.use != "test" and part.overlaps(test):
            raise Mismatch(
                f"{who}: its {part.use} intervals {part.first_interval} to {part.end_interval} of trace {part.name} "
                f"overlap the test intervals {study.test.start} to {study.test.stop} of trace {trace.info.name}, which "
                "is the same recording"
            )


def _saving(found: Savings) -> Saving:
    one: Estimate = found.usd_per_1000
    return Saving(one.mean, one.low, one.high, one.confidence)


def _setting(study: Study, resampling: Resampling) -> Setting:
    problem, info = study.world.problem, study.world.problem.trace.info
    return Setting(
        trace=info.name,
        trace_sha256=problem.trace.sha256,
        source=info.source,
        composed=info.composed,
        assumptions=info.assumptions,
        interval_seconds=problem.interval_seconds,
        training=(study.training.start, study.training.stop),
        validation=(study.validation.start, study.validation.stop),
        test=(study.test.start, study.test.stop),
        best_static=study.reference.settings.numbers(),
        default=problem.knobs.default().numbers(),
        prices=problem.prices.model_dump(),
        constraints=problem.constraints.model_dump(),
        serving=problem.serving.model_dump(),
        resamples=resampling.resamples,
        seed=resampling.seed,
        cache_policy=str(problem.policy),
    )
