"""A whole what-if: from settings, a trace and what runs now to surfaces in money, the best setting and its saving."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from agents.evaluation import ENOUGH_BLOCKS, savings
from agents.uncertainty import Resampling
from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.policies.pair import CachePolicy
from envs.interval import column, total_usd
from envs.world import Progress, World
from traces.trace import Trace
from traces.whatif import EXACT_REQUESTS, Sampling
from tuner.config import TunerConfig
from tuner.problem import largest_bytes, problem_of, under
from tuner.whatif_current import Place, Wish, policy_of, settle
from tuner.whatif_policies import Chosen, Policies
from tuner.whatif_prefix import prefix_cells
from tuner.whatif_pricing import DAY_SECONDS
from tuner.whatif_result import ENTRIES, HeldOut, Knee, Sampled, Saving, Subject, UnderPolicy, WhatIf, knee_of
from tuner.whatif_sample import enlarged, miniature, resized
from tuner.whatif_surface import Cells, axis_of, half_width, response_cells

Array = NDArray[Any]
Watch = Callable[[str, int, int], None]  # what is being done, how far, of how many

SIZES, TTLS = 16, 8
NOTHING_GIVEN, DEFAULT_SAMPLING, DEFAULT_RESAMPLING = Wish(), Sampling(), Resampling()
LEAST_RESAMPLED = 8  # intervals, for an interval of the saving
LEAST_HALF = 2  # intervals in each half of a trace for the second to test what the first suggests


@dataclass(frozen=True)
class Ask:
    """What to find out. current: what runs now. sizes, ttls: points of the grid, equally spaced over the knobs' ranges.
    exact_up_to: requests; longer traces are sampled. policies: of the cache, those to compare; None: the settings'."""

    current: Wish = NOTHING_GIVEN
    sizes: int = SIZES
    ttls: int = TTLS
    exact_up_to: int = EXACT_REQUESTS
    sampling: Sampling = DEFAULT_SAMPLING
    resampling: Resampling = DEFAULT_RESAMPLING
    policies: tuple[CachePolicy, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("sizes", "ttls"):
            if getattr(self, name) < 2:
                raise InputError(f"{name}: got {getattr(self, name)}, expected at least 2")


def what_if(config: TunerConfig, trace: Trace, ask: Ask, watch: Watch | None = None) -> WhatIf:
    """The whole trace under every setting of a grid, and the saving of the best over what runs now.

    Raises InputError where settings and trace do not go together.
    """
    require_intervals(trace, config.trace.interval_seconds)
    share = 1.0 if trace.sample is None else trace.sample.share
    policies = config.cache.policies if ask.policies is None else ask.policies
    small = under(config if trace.sample is None else miniature(config, share), policies[0])
    world = World(problem_of(small, trace), max(config.run.workers, config.run.threads))
    knobs = world.problem.knobs
    footprint = largest_bytes(small, trace, world.problem.profile)
    unit = "bytes" if world.problem.prefix else size_unit_of(trace, config.cache.entry_overhead_bytes)
    place = Place(config.knobs.space(footprint / share), footprint / share, trace.span_seconds, unit)
    wish, remarks = settle(ask.current, place)
    here, more = policy_of(ask.current, config.cache.policies)
    current = resized(wish, share)
    axes = (replace(axis_of(knobs.cache_size, ask.sizes), unit=unit), axis_of(knobs.ttl_seconds, ask.ttls))
    asked = Policies(world, policies, (here, current), _watched(watch, "pricing settings in full"))
    sampling = ask.sampling if trace.sample is not None or len(trace) > ask.exact_up_to else None

    def cells_of(there: World, bounded: bool, progress: Progress | None) -> Cells:
        if there.problem.prefix is not None:
            return prefix_cells(there, axes, current.warmup_ratio, progress, bounded)
        return response_cells(there, axes, current.warmup_ratio, sampling, progress, bounded)

    asked.survey(cells_of, _watched(watch, "replaying the grid"))
    each = asked.choose(slice(None))
    held_out = _held_out(asked, ask.resampling)
    subject = _subject(config, world, footprint, ask, remarks + more)
    found = _Found(subject, asked, each, asked.best(each, slice(None)), held_out, share)
    result = _assemble(found, ask.resampling)
    return result if trace.sample is None else enlarged(result, config, trace.sample)


def require_intervals(trace: Trace, interval_seconds: float) -> None:
    """Raises InputError for a trace that is too short for two control intervals."""
    span = trace.span_seconds
    if not span > 0:
        raise InputError(f"trace {trace.info.name}: all requests arrive at one time, expected times that differ")
    if span < 2 * interval_seconds:
        raise InputError(
            f"--interval: got {interval_seconds:g} s, expected at most half of the {span:.3g} s that {trace.info.name} "
            f"spans, for example --interval {float(f'{span / 30:.0e}'):g}"
        )


def size_unit_of(trace: Trace, overhead_bytes: int) -> str:
    """Entries where every response counts 1, as it does where the source had no sizes."""
    alike = overhead_bytes == 0 and trace.size_bytes.min() == trace.size_bytes.max() == 1
    return ENTRIES if alike else "bytes"


def _watched(watch: Watch | None, what: str) -> Callable[[int, int], None] | None:
    return None if watch is None else lambda done, total: watch(what, done, total)


def _subject(config: TunerConfig, world: World, footprint: float, ask: Ask, remarks: list[str]) -> Subject:
    trace = world.problem.trace
    info = trace.info
    return Subject(
        trace=info.name,
        source=info.source,
        composed=info.composed,
        assumptions=info.assumptions,
        requests=len(trace),
        intervals=len(world),
        interval_seconds=world.problem.interval_seconds,
        span_seconds=trace.span_seconds,
        footprint_bytes=footprint,
        current_given=not ask.current.empty,
        remarks=tuple(remarks),
        prices=config.prices.model_dump(),
        constraints=config.constraints.model_dump(),
        serving=config.serving.model_dump(),
        kind=config.cache.kind,
    )


def _held_out(asked: Policies, resampling: Resampling) -> HeldOut | None:
    """None where half of the trace holds too little."""
    here, current = asked.current
    half = len(asked.world) // 2
    first, second = slice(half), slice(half, None)
    requests = column(asked.pricers[here].rows[current], "requests")
    if half < LEAST_HALF or not requests[first].sum() or not requests[second].sum():
        return None
    best = asked.best(asked.choose(first), first)
    there = best.choice.settings
    safe = asked.pricers[best.policy].safe(there, second)
    return HeldOut(there, safe, _saving(asked, best, second, resampling), str(best.policy))


def _saving(asked: Policies, there: Chosen, span: slice, resampling: Resampling) -> Saving:
    """Over what runs now."""
    here, current = asked.current
    rows, other = asked.pricers[here].rows[current], asked.pricers[there.policy].rows[there.choice.settings]
    usd, requests = total_usd(rows[span]), column(rows[span], "requests")
    saved = usd - total_usd(other[span])
    days = len(saved) * asked.world.problem.interval_seconds / DAY_SECONDS
    return Saving(
        usd_per_1000=1000.0 * float(saved.sum() / requests.sum()),
        percent=100.0 * float(saved.sum() / usd.sum()) if usd.sum() > 0 else None,
        usd_per_day=float(saved.sum()) / days,
        over_time=savings(saved, usd, requests, resampling) if _enough(requests) else None,
    )


def _enough(requests: Array) -> bool:
    """Whether resampling intervals makes sense: several with requests, and few without, so that no sample is empty."""
    return len(requests) >= LEAST_RESAMPLED and float((requests > 0).mean()) > 0.5


@dataclass(frozen=True, eq=False)
class _Found:
    """Everything that was found out. each: the best under every policy; best: over all. share: of the keys in the
    trace, 1 for all."""

    subject: Subject
    asked: Policies
    each: tuple[Chosen, ...]
    best: Chosen
    held_out: HeldOut | None
    share: float = 1.0

    @property
    def cells(self) -> Cells:
        """Of the best policy; of the first where what runs now is best and its policy has no surface."""
        cells = self.asked.cells
        return cells.get(self.best.policy, next(iter(cells.values())))

    @property
    def stays(self) -> bool:
        return (self.best.policy, self.best.choice.settings) == self.asked.current


def _assemble(found: _Found, resampling: Resampling) -> WhatIf:
    cells, asked, best = found.cells, found.asked, found.best
    here, current = asked.current
    saving = _saving(asked, best, slice(None), resampling)
    return WhatIf(
        subject=found.subject,
        axes=cells.axes,
        hit_ratio=cells.hit_ratio,
        usd_per_1000=cells.usd_per_1000,
        bound=cells.bound,
        knee=_knee(cells, best.choice.settings),
        current=asked.pricers[here].priced(current),
        best=asked.pricers[best.policy].priced(best.choice.settings),
        saving=saving,
        held_out=found.held_out,
        priced=asked.priced,
        proven=best.choice.proven,
        sampled=Sampled(cells.samples, cells.share) if cells.samples > 1 else None,
        notes=tuple(_notes(found, saving)),
        policies=tuple(_under(asked, one, resampling) for one in found.each),
    )


def _under(asked: Policies, one: Chosen, resampling: Resampling) -> UnderPolicy:
    cells, settings = asked.cells[one.policy], one.choice.settings
    return UnderPolicy(
        policy=str(one.policy),
        hit_ratio=cells.hit_ratio,
        usd_per_1000=cells.usd_per_1000,
        knee=_knee(cells, settings),
        best=asked.pricers[one.policy].priced(settings),
        saving=_saving(asked, one, slice(None), resampling),
        proven=one.choice.proven,
    )


def _spread_by_keys(found: _Found) -> float:
    """Half the width of the saving's 95 % interval over samples of keys, in percent of the current cost, between the
    cells of the grid that are nearest to the two settings; between two policies by the surface of the better one,
    where the other has none."""
    sizes, ttls = found.cells.axes
    here, current = found.asked.current
    both = ((found.asked.cells.get(here, found.cells), current), (found.cells, found.best.choice.settings))
    now, then = (
        cells.usd.sum(axis=-1)[:, sizes.nearest(one.cache_size), ttls.nearest(one.ttl_seconds)] for cells, one in both
    )
    return float(half_width(100.0 * (1.0 - then / now)))


def _knee(cells: Cells, best: KnobSettings) -> Knee | None:
    """Of the curve over sizes at the lifetime of the grid that is nearest to the best one."""
    sizes, curve = cells.axes[0].values, cells.hit_ratio.values[:, cells.axes[1].nearest(best.ttl_seconds)]
    bend = knee_of(sizes, curve)
    return None if bend is None else Knee(float(sizes[bend]), float(curve[bend]))


def _notes(found: _Found, saving: Saving) -> Iterator[str]:
    """What a reader has to know about the numbers."""
    cells, choice, asked = found.cells, found.best.choice, found.asked
    yield (
        "The surface leaves out slow requests, which need the queue before the backend. "
        f"{asked.priced} settings were priced with everything they cause: what runs now, and others in order of the "
        "surface, cheapest first."
    )
    if cells.samples > 1:
        yield (
            f"The surface is estimated from {cells.samples} samples of {cells.share * found.share:.2%} of the keys "
            f"each{'; prices in full are not' if found.share == 1 else ''}. Its 95 % interval is at most "
            f"±{cells.hit_ratio.largest_error:.4f} of the hit ratio and ±{cells.usd_per_1000.largest_error:.2g} USD "
            "per 1,000 requests."
        )
    if found.share < 1 and not found.stays:
        yield (
            "Which keys were drawn moves the saving as well: by the same samples, its 95 % interval reaches "
            f"{_spread_by_keys(found):.2g} percentage points to either side."
        )
    if len(asked.cells) > 1:
        yield "The best of several policies on one trace is the best of more guesses: its saving is the more flattered."
    if choice.safe:
        every = sum(len(one.grid.settings) for one in asked.cells.values())
        proven = f"No other of the {every} settings of the grid is cheaper and keeps the constraints."
        yield proven if choice.proven else "Settings that were not priced in full may be cheaper still."
    intervals, block = len(asked.world), 1 if saving.over_time is None else saving.over_time.block_intervals
    if saving.over_time is None:
        yield (
            f"With {intervals} control intervals there is no interval of the saving; at least {LEAST_RESAMPLED} are "
            "needed, most of them with requests. A longer trace or a shorter --interval helps."
        )
    elif intervals < ENOUGH_BLOCKS * block:
        yield (
            f"The trace holds {intervals} control intervals, and costs of {block} in a row depend on each other: the "
            "saving's interval rests on little and is rather too narrow. A longer trace or a shorter --interval helps."
        )
    if cells.bound is None:
        yield "No clairvoyant bound is shown: with warm-ups a cache may hit what was never asked for before."
    else:
        yield cells.bound.method
