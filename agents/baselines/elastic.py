"""Elastic TTL: an entry stays until holding it has cost as much as computing it again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policy import Sight
from agents.study import Study
from caches.errors import InputError
from caches.knobs import KnobSpace
from envs.interval import COLUMN, column
from envs.reward import Prices
from envs.serving import backend_of, gpu_seconds
from envs.world import Problem, entry_bytes

FloatArray = NDArray[np.float64]
Array = NDArray[Any]

NUM_CLASSES = 16
BISECTIONS = 60
AGES = 65  # tried between the extremes, evenly in the logarithm
REQUESTS, HITS, HELD, COMPUTE, SLOW, RENT = range(6)
COLUMNS = np.array(
    [COLUMN[name] for name in ("requests", "hits", "used_bytes", "compute_usd", "slow_usd", "memory_usd")]
)


@dataclass(frozen=True)
class EntryClasses:
    """Keys that were requested more than once, in classes by how often. Shapes (classes,).

    rate: requests per second of one key while it is in use, from its first request to its last. miss: price of a miss
    relative to the mean over all requests. size: bytes of an entry. active: seconds in use, summed over keys.
    """

    rate: FloatArray
    miss: FloatArray
    size: FloatArray
    active: FloatArray


def entry_classes(
    key: Array, arrival_seconds: Array, miss: Array, size: Array, number: int = NUM_CLASSES
) -> EntryClasses | None:
    """In order of rate, with as equal numbers of requests as keys allow. key: integers from 0. miss: of each request,
    in any unit. size: bytes of each request's entry. None where no key comes back."""
    count = np.bincount(key)
    first, last = np.full(len(count), np.inf), np.full(len(count), -np.inf)
    np.minimum.at(first, key, arrival_seconds)
    np.maximum.at(last, key, arrival_seconds)
    again = np.flatnonzero(last > first)
    if not len(again):
        return None
    span = (last - first)[again]
    order = np.argsort((count[again] - 1) / span, kind="stable")
    requests = np.cumsum(count[again][order])
    group = np.empty(len(again), np.int64)
    group[order] = np.minimum((requests - 1) * number // requests[-1], number - 1)
    _, group = np.unique(group, return_inverse=True)

    def mean(values: Array) -> FloatArray:
        """Over the requests of each class."""
        per_key = np.bincount(key, values)[again]
        return np.asarray(np.bincount(group, per_key) / np.bincount(group, count[again]))

    active = np.bincount(group, span).astype(np.float64)
    rate = np.bincount(group, count[again] - 1.0) / active
    return EntryClasses(rate, mean(miss / miss.mean()), mean(size), active)


@dataclass(frozen=True)
class Holding:
    """What it costs to hold an entry and to lose it. Shapes (classes,): miss_usd, rent_usd_per_second, hits_per_second
    while it is held."""

    miss_usd: FloatArray
    rent_usd_per_second: FloatArray
    hits_per_second: FloatArray
    stale_answer_usd: float
    answer_lifetime_seconds: float

    def paid_usd(self, age_seconds: FloatArray) -> FloatArray:
        """Rent and expected outdated answers from the writing of an entry to that age, for each class in the last axis:
        rent x T + stale_answer_usd x hits/s x (T - L (1 - exp(-T / L))), L the lifetime of an answer."""
        lifetime = self.answer_lifetime_seconds
        outdated = age_seconds + lifetime * np.expm1(-age_seconds / lifetime)
        return self.rent_usd_per_second * age_seconds + self.stale_answer_usd * self.hits_per_second * outdated


def break_even_seconds(holding: Holding, bounds: tuple[float, float]) -> FloatArray:
    """The age at which what was paid for holding equals the price of a miss, within `bounds`; shape (classes,).

    Where answers never go stale it is miss / rent, the break-even rule of ski rental. Where holding costs outdated
    answers alone, it is about sqrt(2 x miss x L / (stale_answer_usd x hits/s)), which is also the cheapest age.
    """
    low, high = (np.full(len(holding.miss_usd), math.log(bound)) for bound in bounds)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        longer = holding.paid_usd(np.exp(middle)) < holding.miss_usd
        low, high = np.where(longer, middle, low), np.where(longer, high, middle)
    return np.asarray(np.exp(0.5 * (low + high)))


def common_seconds(holding: Holding, active_seconds: FloatArray, bounds: tuple[float, float]) -> float:
    """One lifetime for all classes: of AGES between the smallest and the largest break-even age the one with the least
    cost over all classes, active seconds x (miss + paid for holding) / (T + 1 / hits per second).

    That is the cost per second of an entry that is written when it is asked for, held for T, and asked for again after
    a wait of 1 / hits per second, for requests as a Poisson process. A single class gets its break-even age.
    """
    own = break_even_seconds(holding, bounds)
    ages = np.geomspace(own.min(), own.max(), AGES)[:, None]
    cost = active_seconds * (holding.miss_usd + holding.paid_usd(ages)) / (ages + 1.0 / holding.hits_per_second)
    return float(ages[np.argmin(cost.sum(axis=1)), 0])


@dataclass(frozen=True)
class Elastic:
    """memory: weight of the past in the averages, per interval. headroom: capacity above what is held, as a share."""

    memory: float = 0.9
    headroom: float = 0.25

    def __post_init__(self) -> None:
        if not 0.0 <= self.memory < 1.0:
            raise InputError(f"memory: got {self.memory}, expected in [0, 1)")
        if not self.headroom > 0.0:
            raise InputError(f"headroom: got {self.headroom}, expected above 0 (a full cache would never grow)")


@dataclass(frozen=True)
class Economy:
    """What the policy has to know beforehand. requests_per_second: when the classes were measured. miss_usd: price of a
    mean miss; None: what misses cost lately."""

    classes: EntryClasses
    prices: Prices
    interval_seconds: float
    requests_per_second: float
    miss_usd: float | None = None


class ElasticTtl:
    """Moves ttl_seconds to the break-even age and cache_size to what is then held; the warm-up stays home.

    D. Carra, G. Neglia, P. Michiardi, Elastic provisioning of cloud caches: a cost-aware TTL approach, IEEE/ACM
    Transactions on Networking 28 (2020), in the break-even form of ski rental: hold an entry until that has cost the
    price of a miss, and without foresight it costs at most twice what it would with. This cache has one lifetime for
    all entries, so the break-even ages of the classes are combined by `common_seconds`.

    Rent is paid for the capacity given, not for what is held. So an entry's rent is its share of the bytes held, times
    the rent of the whole capacity; and the capacity follows what is held, plus some headroom, as it does where servers
    are added and taken away. Outdated answers are a price of holding too. The price of a miss is compute and missed
    objectives per miss lately; rates of keys go up and down with the load.

    In a prefix cache the entries are tokens, all alike: a miss is the prefill of one, and keys and values never go out
    of date, so the age is price of prefill over rent. It counts from the last touch there, as ski rental wants it. In a
    cache of responses whose lifetimes run from the writing, a hit does not begin the rent anew.
    """

    name = "elastic TTL"

    def __init__(self, home: FloatArray, knobs: KnobSpace, economy: Economy, options: Elastic = Elastic()) -> None:
        self.home, self.knobs, self.economy, self.options = home, knobs, economy, options
        self.reset(0)

    def reset(self, seed: int) -> None:
        self._sums, self._weight = np.zeros(len(COLUMNS)), 0.0

    def act(self, sight: Sight) -> FloatArray:
        seen = sight.row[COLUMNS]
        wish = np.array([sight.positions[0], sight.positions[1], self.home[2]])
        if np.isfinite(seen).all():
            self._sums = self.options.memory * self._sums + seen
            self._weight = self.options.memory * self._weight + 1.0
            wish[0] = self.knobs.cache_size.position((1.0 + self.options.headroom) * float(seen[HELD]))
            seconds = self.seconds()
            if seconds is not None:
                wish[1] = self.knobs.ttl_seconds.position(seconds)
        return wish - self.home

    def seconds(self) -> float | None:
        """The common lifetime for what was seen lately; None before anything missed or was held."""
        sums, economy = self._sums, self.economy
        if sums[REQUESTS] <= sums[HITS] or sums[HELD] <= 0.0:
            return None
        miss = (sums[COMPUTE] + sums[SLOW]) / (sums[REQUESTS] - sums[HITS])
        classes, interval = economy.classes, economy.interval_seconds
        load = sums[REQUESTS] / self._weight / interval / economy.requests_per_second
        holding = Holding(
            (miss if economy.miss_usd is None else economy.miss_usd) * classes.miss,
            sums[RENT] / (sums[HELD] * interval) * classes.size,
            load * classes.rate,
            economy.prices.stale_answer_usd,
            economy.prices.answer_lifetime_seconds,
        )
        knob = self.knobs.ttl_seconds
        return common_seconds(holding, classes.active, (knob.low, knob.high))


def fit_elastic_ttl(study: Study, options: Elastic = Elastic()) -> ElasticTtl | None:
    """The classes are those of training traffic; rent, load and, for responses, the price of a miss are measured on the
    way. None where no key of training traffic is requested twice."""
    problem = study.world.problem
    economy = _economy_of_responses(study) if problem.prefix is None else economy_of_tokens(problem)
    if economy is None:
        return None
    return ElasticTtl(problem.knobs.positions(study.reference.settings), problem.knobs, economy, options)


def economy_of_tokens(problem: Problem) -> Economy:
    """Of a prefix cache: one class, a token."""
    token = EntryClasses(*(np.array([value]) for value in (1.0, 1.0, float(problem.profile.kv_bytes_per_token), 1.0)))
    prefill_usd = problem.prices.gpu_usd_per_hour / 3600.0 / problem.profile.prefill_tokens_per_second
    prices = problem.prices.model_copy(update={"stale_answer_usd": 0.0})
    return Economy(token, prices, problem.interval_seconds, 1.0, prefill_usd)


def _economy_of_responses(study: Study) -> Economy | None:
    problem, edges = study.world.problem, study.world.timeline.edges
    trace, part = problem.trace, slice(int(edges[study.training.start]), int(edges[study.training.stop]))
    assert trace.prompt_tokens is not None  # World refuses a trace without
    assert trace.output_tokens is not None
    backend = backend_of(problem.profile, problem.serving)
    classes = entry_classes(
        trace.key[part],
        trace.arrival_seconds[part],
        gpu_seconds(backend, trace.prompt_tokens[part], trace.output_tokens[part]).astype(np.float64),
        entry_bytes(trace, problem.entry_overhead_bytes)[part].astype(np.float64),
    )
    if classes is None:
        return None
    requests = column(study.reference.rows[study.training.start : study.training.stop], "requests")
    load = float(requests.mean()) / problem.interval_seconds
    return Economy(classes, problem.prices, problem.interval_seconds, load)
