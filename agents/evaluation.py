"""What the tracks of held-out traffic say about each policy: cost, saving, headroom, changes, constraints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.clairvoyant import Clairvoyant
from agents.results import BoundSearch, Changes, Evaluation, PolicyResult, Savings, SeedsResult, Setting
from agents.tracks import RUNNABLE, Track
from agents.uncertainty import Resampling, block_length, ratio_estimate, spread
from caches.errors import InputError
from caches.knobs import KnobSpace
from envs.interval import COSTS, column, violations
from envs.reward import CAUSES, Constraints

Array = NDArray[Any]

CHANGE_SHARE = 0.01  # of a knob's range: smaller moves are no change of settings
DAY_SECONDS = 86_400.0
ENOUGH_SEEDS = 5
ENOUGH_BLOCKS = 10

_START = (
    "The default, like every policy, starts from the cache and settings that best static left, and moves as fast as "
    "the limits allow."
)
_CLAIRVOYANT = (
    "The clairvoyant bound is the cheapest way through the test traffic that a search with full knowledge of it found, "
    "from the same start, within the same limits, and ignoring the constraints. It could be gone, so the true optimum "
    "costs as much or less; two searches, one half as wide and begun at best static, ended {percent:.2f} % apart."
)
_GHOSTS = (
    "The per-interval static bound prices each interval at its cheapest static setting of a grid, in hindsight, as if "
    "what other settings left in the cache were free. It bounds static settings; no cache can follow it."
)


@dataclass(frozen=True)
class Ground:
    """What tracks are measured with. tokens: asked for in each test interval, shape (intervals,)."""

    knobs: KnobSpace
    constraints: Constraints
    tokens: Array


def evaluate(
    tracks: Sequence[Track],
    setting: Setting,
    ground: Ground,
    resampling: Resampling,
    notes: Sequence[str] = (),
    search: Clairvoyant | None = None,
) -> Evaluation:
    """tracks: over the same intervals, "best static" among them. notes: shown with the others. search: what gave the
    track "bound". InputError where nothing was requested in the intervals."""
    best = next(track for track in tracks if track.role == "best static")
    bound = next((track for track in tracks if track.role == "bound"), None)
    requests = int(column(best.rows, "requests").sum())
    if not requests:
        raise InputError(
            f"test traffic of {setting.trace}: got no requests in intervals {setting.test[0]} to {setting.test[1]}, "
            "expected some"
        )
    judge = _Judge(best, bound, setting.interval_seconds, ground, resampling)
    policies = tuple(judge.policy(track) for track in tracks)
    learned = judge.together([track for track in tracks if track.role == "learned"], policies)
    warnings = tuple(_warnings(policies, learned, len(best.rows)))
    found = None if search is None else _bound_search(search, requests)
    every = (*_notes(tracks, found), *_choices(tracks), *notes)
    return Evaluation(setting, requests, len(best.rows), policies, learned, every, warnings, found)


def _bound_search(search: Clairvoyant, requests: int) -> BoundSearch:
    best, full, half = (1000.0 * usd / requests for usd in (search.way.usd, search.full_usd, search.half_usd))
    return BoundSearch(best, full, half, 100.0 * search.resolution, search.sweeps, search.settled)


def _notes(tracks: Sequence[Track], found: BoundSearch | None) -> Iterator[str]:
    yield _START
    if found is not None:
        yield _CLAIRVOYANT.format(percent=found.resolution_percent)
        if not found.settled:
            yield (
                f"The search for the clairvoyant bound was ended after {found.sweeps} sweeps, when the work allowed "
                "was done; a longer one may find a cheaper way."
            )
    if any(track.role == "ghost bound" for track in tracks):
        yield _GHOSTS


def _choices(tracks: Sequence[Track]) -> Iterator[str]:
    """How long who chooses the eviction policy was under each."""
    for track in tracks:
        if track.choice is not None and track.role != "bound":
            counts = np.bincount(track.choice, minlength=len(track.choices))
            told = (f"{policy} in {count}" for policy, count in zip(track.choices, counts, strict=True) if count)
            yield f"{track.name} chooses the eviction policy: {', '.join(told)} of the {len(track.choice)} intervals."


def savings(saved_usd: Array, other_usd: Array, requests: Array, resampling: Resampling) -> Savings:
    """saved_usd: what the other cost more in each interval, on the same requests. All of shape (intervals,)."""
    per_request = saved_usd.sum() / requests.sum()
    block = resampling.block_intervals or block_length(saved_usd - per_request * requests)
    percent = ratio_estimate(100.0 * saved_usd, other_usd, block, resampling) if other_usd.sum() > 0 else None
    return Savings(ratio_estimate(1000.0 * saved_usd, requests, block, resampling), percent, block)


def headroom(best_static_usd: float, usd: float, bound_usd: float) -> float | None:
    """Share of the saving of the bound over best static that a policy reaches; None where the bound saves nothing."""
    room = best_static_usd - bound_usd
    return (best_static_usd - usd) / room if room > 0 else None


def count_changes(positions: Array, before: Array, choice: Array | None = None) -> int:
    """Intervals in which any knob moved by more than CHANGE_SHARE, or the eviction policy changed. positions:
    (intervals, 3); before: (3,). choice: (intervals,), 0 before; None: it stays."""
    moved = (np.abs(np.diff(np.vstack((before, positions)), axis=0)) > CHANGE_SHARE + 1e-12).any(axis=1)
    return int((moved if choice is None else moved | (np.diff(choice, prepend=0) != 0)).sum())


@dataclass(frozen=True)
class _Judge:
    best: Track
    bound: Track | None
    interval_seconds: float
    ground: Ground
    resampling: Resampling

    @property
    def requests(self) -> Array:
        return column(self.best.rows, "requests")

    def policy(self, track: Track) -> PolicyResult:
        rows, total = track.rows, float(self.requests.sum())
        causes = 1000.0 * rows[:, COSTS].sum(axis=0) / total
        which = violations(rows, self.ground.constraints)
        broken, unsafe = {name: int(one.sum()) for name, one in which.items()}, _any(which)
        is_best = track.role == "best static"
        return PolicyResult(
            name=track.name,
            role=track.role,
            seed=track.seed,
            version=track.version,
            usd_per_1000=float(1000.0 * track.usd.sum() / total),
            usd_by_cause_per_1000=dict(zip(CAUSES, causes.tolist(), strict=True)),
            saving=None if is_best else self._savings(self.best.usd - track.usd),
            headroom_captured=None if is_best or track.role not in RUNNABLE else self._headroom(track),
            changes=self._changes(track),
            violated_intervals=broken,
            violations_per_1000_intervals={name: 1000.0 * count / len(rows) for name, count in broken.items()},
            hit_ratio=float(column(rows, "hits").sum() / total),
            token_hit_ratio=_weighted(column(rows, "token_hit_ratio"), self.ground.tokens),
            median_p99_ttft_seconds=_median(column(rows, "p99_ttft_seconds")),
            unsafe_intervals=unsafe,
            unsafe_per_1000_intervals=1000.0 * unsafe / len(rows),
            learned_within=track.learned_within,
        )

    def together(self, tracks: Sequence[Track], policies: Sequence[PolicyResult]) -> SeedsResult | None:
        results = [policy for policy in policies if policy.role == "learned"]
        cost = spread([result.usd_per_1000 for result in results])
        both = [result.saving for result in results if result.saving is not None]
        usd = spread([saving.usd_per_1000.mean for saving in both])
        if cost is None or usd is None:
            return None
        saved = np.mean([self.best.usd - track.usd for track in tracks], axis=0)  # exactly zero where each is
        return SeedsResult(
            seeds=tuple(track.seed for track in tracks),
            usd_per_1000=cost,
            saving_usd_per_1000=usd,
            saving_percent=spread([saving.percent.mean for saving in both if saving.percent is not None]),
            headroom_captured=spread([r.headroom_captured for r in results if r.headroom_captured is not None]),
            saving=self._savings(saved),
        )

    def _savings(self, saved_usd: Array) -> Savings:
        return savings(saved_usd, self.best.usd, self.requests, self.resampling)

    def _headroom(self, track: Track) -> float | None:
        if self.bound is None:
            return None
        return headroom(float(self.best.usd.sum()), float(track.usd.sum()), float(self.bound.usd.sum()))

    def _changes(self, track: Track) -> Changes | None:
        if track.settings is None or track.before is None:
            return None
        positions = positions_of(track.settings, self.ground.knobs)
        before, n = self.ground.knobs.positions(track.before), len(positions)
        count = count_changes(positions, before, track.choice)
        return Changes(count, 1000.0 * count / n, count / (n * self.interval_seconds / DAY_SECONDS))


def positions_of(settings: Array, knobs: KnobSpace) -> Array:
    """Settings of shape (intervals, 3) as positions in [0, 1]."""
    columns = [[knob.position(float(value)) for value in settings[:, i]] for i, knob in enumerate(knobs.knobs)]
    return np.array(columns).T


def _any(which: Mapping[str, NDArray[np.bool_]]) -> int:
    return int(np.any(list(which.values()), axis=0).sum())


def _weighted(ratios: Array, weights: Array) -> float | None:
    known = np.isfinite(ratios) & (weights > 0)
    return float(np.average(ratios[known], weights=weights[known])) if known.any() else None


def _median(values: Array) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def _warnings(policies: Sequence[PolicyResult], learned: SeedsResult | None, intervals: int) -> Iterator[str]:
    """What weakens the judgement."""
    seeds = 0 if learned is None else len(learned.seeds)
    if seeds < ENOUGH_SEEDS:
        counted = "Only one learned policy was" if seeds == 1 else f"Only {seeds} learned policies were"
        yield (
            f"{counted if seeds else 'No learned policy was'} judged; at least {ENOUGH_SEEDS} seeds are expected "
            "before a saving is taken for more than the luck of one training."
        )
    blocks = [policy.saving.block_intervals for policy in policies if policy.role == "learned" and policy.saving]
    if blocks and intervals < ENOUGH_BLOCKS * max(blocks):
        yield (
            f"The test traffic holds {intervals} intervals, and costs of up to {max(blocks)} in a row depend on each "
            "other: the intervals over time rest on little and are rather too narrow."
        )
    best = next(policy for policy in policies if policy.role == "best static")
    for name, count in best.violated_intervals.items():
        if count:
            yield f"Best static itself violates {name} in {count} of the {intervals} test intervals."
