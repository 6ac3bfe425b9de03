"""Fits a serving profile to measured runs, and says how far off it is on the runs that it was not fitted on.

The fit minimises the mean absolute log ratio of predicted to measured quantiles, which a few stray requests do not
move, over the logarithms of the parameters by the simplex search of Nelder and Mead ("A simplex method for function
minimization", Computer Journal 7, 1965): predictions jump where a cache comes to hold one prompt more, so gradients
say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from caches.errors import InputError
from envs.deployment import Deployment, Routing, simulate
from envs.measurement import Measurement, Part
from envs.serving import ServingProfile
from envs.units import GIB

Array = NDArray[Any]
REPORTED = (0.5, 0.9, 0.99)
# Many quantiles, so that one which flips between a hit and a miss counts little; those reported count more.
FITTED_QUANTILES = np.array([*np.linspace(0.05, 0.95, 19), *REPORTED])
QUANTILE_WEIGHTS = np.array([1.0] * 19 + [4.0] * 3)
WORST = float(np.log(10.0))  # what a quantile is off beyond ten times counts a tenth
LATENCY_WEIGHT = 0.5
ROUTER_SEEDS = 3
PULL = 0.005  # per factor of e from the base: what the runs hardly determine stays near what arithmetic says
USUAL_OVERHEAD_SECONDS, USUAL_CHUNK_TOKENS = 0.05, 2048
USUAL_HOST_BYTES, USUAL_TRANSFER_BYTES_PER_SECOND = 1e11, 1e10


class Parameter(NamedTuple):
    """What is fitted, with its range; `of` says whether a profile or a deployment has it."""

    name: str
    low: float
    high: float


PREFILL = Parameter("prefill_tokens_per_second", 10.0, 1e7)
OVERHEAD = Parameter("request_overhead_seconds", 1e-4, 60.0)
ALONE = Parameter("seconds_per_output_token_alone", 1e-5, 10.0)
SLOWDOWN = Parameter("slowdown of a full batch", 1.0, 100.0)
CHUNK = Parameter("prefill_chunk_tokens", 1.0, 1e6)
KV = Parameter("kv_tokens", 100.0, 1e10)
SHARE = Parameter("output_memory_share", 0.01, 1.0)
HOST = Parameter("host_tokens", 100.0, 1e12)
TRANSFER = Parameter("transfer_tokens_per_second", 100.0, 1e9)

# Factors around the base from which the search may start.
COARSE = {PREFILL: (0.25, 0.5, 1.0, 2.0), CHUNK: (1.0, 3.0), KV: (0.7, 1.0, 1.4), HOST: (0.7, 1.0, 1.4)}
STARTS, GLANCE, SEARCH, RESTARTS = 3, 80, 160, 5  # starts; predictions for each, and for the best at each restart
SPREAD = 0.25  # of the first simplex, in logarithms


@dataclass(frozen=True)
class Quantiles:
    """REPORTED quantiles of one part, measured and predicted (s)."""

    measured: tuple[float, ...]
    predicted: tuple[float, ...]

    @property
    def errors(self) -> tuple[float, ...]:
        """Predicted over measured, minus one."""
        return tuple(p / m - 1.0 for p, m in zip(self.predicted, self.measured, strict=True))


@dataclass(frozen=True)
class PartResult:
    """ttft_predicted, latency_predicted: of every request of the part, over all router seeds."""

    part: Part
    ttft: Quantiles
    latency: Quantiles
    ttft_predicted: Array
    latency_predicted: Array


@dataclass(frozen=True)
class Fitted:
    """A parameter's value, and the objective where it is halved and doubled over the objective at the fit: about 1 and
    1 where the runs do not determine it."""

    name: str
    value: float
    halved: float
    doubled: float

    @property
    def determined(self) -> bool:
        return max(self.halved, self.doubled) > 1.02


@dataclass(frozen=True)
class Calibration:
    """profile: fitted. objective: mean absolute log ratio over the fitted quantiles. tried: objective by routing."""

    profile: ServingProfile
    deployment: Deployment
    measurement: Measurement
    parts: tuple[PartResult, ...]
    fitted: tuple[Fitted, ...]
    objective: float
    tried: dict[str, float]

    def median_error(self, *, held: bool) -> float | None:
        """Median absolute error of P50 and P99 TTFT over the parts held back, or fitted; None without any."""
        errors = [abs(part.ttft.errors[q]) for part in self.parts if part.part.held == held for q in (0, 2)]
        return float(np.median(errors)) if errors else None


def calibrate(
    measurement: Measurement,
    base: ServingProfile,
    deployment: Deployment,
    routings: Sequence[Routing] = (),
    told: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """base: sizes of model and GPU, which no log tells, and what the runs do not determine. deployment: replicas and
    where prefixes are found again. routings: those to try, the best on the fitted runs wins; the deployment's own
    without any. told: hears what is being done. Deterministic."""
    base, deployment = _known(base, measurement), _usable(deployment, measurement)
    tried: dict[str, float] = {}
    starts: dict[str, Array] = {}
    fits: dict[str, _Fit] = {}
    for routing in dict.fromkeys(routings or (deployment.routing,)):
        told(f"routing {routing}")
        fit = _Fit(measurement, base, replace(deployment, routing=routing))
        fits[routing] = fit
        starts[routing], tried[routing] = fit.glance()
    best = min(tried, key=lambda name: tried[name])
    point, objective = fits[best].refine(starts[best], tried[best])
    told("judging")
    return fits[best].result(point, objective, tried)


def _known(base: ServingProfile, measurement: Measurement) -> ServingProfile:
    """The base with what the runs say of their engine."""
    limits = measurement.limits
    known = {
        name: getattr(limits, name)
        for name in ("max_sequences", "kv_tokens", "prefill_chunk_tokens")
        if getattr(limits, name) is not None
    }
    return ServingProfile.model_validate(base.model_dump() | known)


def _usable(deployment: Deployment, measurement: Measurement) -> Deployment:
    if measurement.has_sessions:
        return deployment
    if deployment.reuse != "none":
        raise InputError(f"reuse: got {deployment.reuse!r} for runs without sessions, expected none or session=COLUMN")
    if deployment.routing == "session":
        raise InputError("routing: got session for runs without sessions, expected another or session=COLUMN")
    return deployment


class _Fit:
    """The search for the parameters of one deployment."""

    def __init__(self, measurement: Measurement, base: ServingProfile, deployment: Deployment) -> None:
        self.measurement, self.base, self.deployment = measurement, base, deployment
        limits = measurement.limits
        wanted = {
            PREFILL: True,
            OVERHEAD: True,
            ALONE: True,
            SLOWDOWN: True,
            CHUNK: limits.prefill_chunk_tokens is None,
            KV: limits.kv_tokens is None,
            SHARE: True,
            HOST: deployment.reuse.endswith("host"),
            TRANSFER: deployment.reuse.endswith(("host", "pool")),
        }
        self.parameters = tuple(parameter for parameter, fit in wanted.items() if fit)
        self.low = np.log([p.low for p in self.parameters])
        self.high = np.log([p.high for p in self.parameters])
        self.seeds = range(ROUTER_SEEDS if deployment.routing not in {"queue", "round-robin"} else 1)
        self.pull = np.array(
            [PULL if parameter in {PREFILL, KV, HOST, TRANSFER} else 0.0 for parameter in self.parameters]
        )
        self.middle = np.zeros(len(self.parameters))
        self.kept: dict[bytes, float] = {}

    def starts(self) -> list[Array]:
        """The best of a coarse grid around the base: the search finds a near optimum, not the far one. Prefill starts
        also from what the calmest run shows, whose slower requests neither queued nor found their prompt cached."""
        fitted = [part for part in self.measurement.parts if not part.held]
        tokens = {
            name: [getattr(self.measurement.streams[part.stream], name)[part.rows] for part in fitted]
            for name in ("prompt", "output")
        }
        calm = min(range(len(fitted)), key=lambda i: float(np.median(fitted[i].ttft)))
        fastest = min(float(part.ttft.min()) for part in fitted)
        decode = np.concatenate([part.latency - part.ttft for part in fitted]) / np.concatenate(tokens["output"])
        overhead = min(0.5 * fastest, USUAL_OVERHEAD_SECONDS)
        middle = self.usual(overhead, float(np.quantile(decode, 0.05)))
        self.middle = np.clip(np.log([middle[p] for p in self.parameters]), self.low, self.high)
        slow = np.quantile(fitted[calm].ttft, (0.5, 0.75, 0.9, 0.99)) - overhead
        seen = np.median(tokens["prompt"][calm]) / np.maximum(slow, 1e-3) / middle[PREFILL]
        coarse = COARSE | {PREFILL: (*COARSE[PREFILL], *seen.tolist())}
        around = [coarse.get(parameter, (1.0,)) for parameter in self.parameters]
        points = [np.clip(self.middle + np.log(factors), self.low, self.high) for factors in product(*around)]
        return sorted(points, key=self.objective)[:STARTS]

    def usual(self, overhead: float, alone: float) -> dict[Parameter, float]:
        """Where each parameter starts."""
        base = self.base
        return {
            PREFILL: base.prefill_tokens_per_second,
            OVERHEAD: overhead,
            ALONE: max(alone, ALONE.low),
            SLOWDOWN: base.seconds_per_output_token / (base.seconds_per_output_token_alone or alone) * 1.05,
            CHUNK: float(base.prefill_chunk_tokens or USUAL_CHUNK_TOKENS),
            KV: float(base.kv_tokens or (base.vram_gib - base.weights_gib) * GIB / base.kv_bytes_per_token),
            SHARE: base.output_memory_share,
            HOST: USUAL_HOST_BYTES / base.kv_bytes_per_token,
            TRANSFER: USUAL_TRANSFER_BYTES_PER_SECOND / base.kv_bytes_per_token,
        }

    def glance(self) -> tuple[Array, float]:
        """A short search from each of the starts."""
        return min((self.search(point, GLANCE) for point in self.starts()), key=lambda found: found[1])

    def models(self, point: Array) -> tuple[ServingProfile, Deployment]:
        """The profile and the deployment at a point."""
        value = dict(zip(self.parameters, np.exp(point).tolist(), strict=True))
        fields: dict[str, Any] = {
            PREFILL.name: value[PREFILL],
            OVERHEAD.name: value[OVERHEAD],
            ALONE.name: value[ALONE],
            "seconds_per_output_token": value[ALONE] * value[SLOWDOWN],
            SHARE.name: min(value[SHARE], 1.0),
        }
        fields |= {p.name: round(value[p]) for p in (CHUNK, KV) if p in value}
        profile = self.base.model_copy(update=fields)
        own = {p.name: value[p] for p in (HOST, TRANSFER) if p in value}
        return profile, replace(self.deployment, **own)

    def predict(self, point: Array) -> list[tuple[Array, Array]]:
        """TTFT and latency of every request of each part, over all seeds of the router."""
        profile, deployment = self.models(point)
        answers = [
            [simulate(profile, deployment, sent, seed) for seed in self.seeds] for sent in self.measurement.streams
        ]
        return [
            (
                np.concatenate([answer.ttft[part.rows] for answer in answers[part.stream]]),
                np.concatenate([answer.latency[part.rows] for answer in answers[part.stream]]),
            )
            for part in self.measurement.parts
        ]

    def objective(self, point: Array) -> float:
        """Mean over fitted parts and quantiles of the absolute log ratio."""
        key = point.tobytes()
        if key not in self.kept:
            total = weight = 0.0
            for part, (ttft, latency) in zip(self.measurement.parts, self.predict(point), strict=True):
                if not part.held:
                    total += _distance(part.ttft, ttft) + LATENCY_WEIGHT * _distance(part.latency, latency)
                    weight += 1.0 + LATENCY_WEIGHT
            self.kept[key] = total / weight + float(self.pull @ np.abs(point - self.middle))
        return self.kept[key]

    def search(self, point: Array, most: int) -> tuple[Array, float]:
        """The best of at most `most` predictions by the simplex search from a point."""
        corners = point + SPREAD * np.eye(point.size)
        inside = corners <= self.high + 1e-12
        corners = np.where(inside, corners, point - SPREAD * np.eye(point.size))
        found = minimize(
            lambda moved: self.objective(np.clip(moved, self.low, self.high)),
            point,
            method="Nelder-Mead",
            options={
                "initial_simplex": np.vstack([point, corners]),
                "maxfev": most,
                "xatol": 0.005,
                "fatol": 1e-4,
                "adaptive": True,
            },
        )
        return np.clip(found.x, self.low, self.high), float(found.fun)

    def refine(self, point: Array, value: float) -> tuple[Array, float]:
        """Restarts the search where it ended, with a fresh simplex, until that gains less than a hundredth."""
        for _ in range(RESTARTS):
            before = value
            point, value = min((point, value), self.search(point, SEARCH), key=lambda found: found[1])
            if value > 0.99 * before:
                break
        return self.settled(point, value)

    def settled(self, point: Array, value: float) -> tuple[Array, float]:
        """What the runs do not determine goes back to where it started."""
        for axis in range(point.size):
            back = point.copy()
            back[axis] = self.middle[axis]
            if self.objective(back) <= 1.001 * value:
                point = back
        return point, self.objective(point)

    def result(self, point: Array, objective: float, tried: dict[str, float]) -> Calibration:
        profile, deployment = self.models(point)
        parts = []
        for part, (ttft, latency) in zip(self.measurement.parts, self.predict(point), strict=True):
            parts.append(
                PartResult(part, _quantiles(part.ttft, ttft), _quantiles(part.latency, latency), ttft, latency)
            )
        fitted = tuple(
            Fitted(parameter.name, value, *(self.beside(point, axis, factor) / objective for factor in (0.5, 2.0)))
            for axis, (parameter, value) in enumerate(zip(self.parameters, np.exp(point).tolist(), strict=True))
        )
        return Calibration(profile, deployment, self.measurement, tuple(parts), fitted, objective, tried)

    def beside(self, point: Array, axis: int, factor: float) -> float:
        """The objective with one parameter multiplied, within its range."""
        moved = point.copy()
        moved[axis] = np.clip(moved[axis] + np.log(factor), self.low[axis], self.high[axis])
        return self.objective(moved)


def _distance(measured: Array, predicted: Array) -> float:
    off = np.abs(np.log(np.quantile(predicted, FITTED_QUANTILES) / np.quantile(measured, FITTED_QUANTILES)))
    return float(np.average(np.where(off > WORST, WORST + 0.1 * (off - WORST), off), weights=QUANTILE_WEIGHTS))


def _quantiles(measured: Array, predicted: Array) -> Quantiles:
    return Quantiles(tuple(np.quantile(measured, REPORTED).tolist()), tuple(np.quantile(predicted, REPORTED).tolist()))
