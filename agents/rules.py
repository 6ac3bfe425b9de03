"""Fitted policies without a network, kept in a bundle as arrays: the what-if controller and the schedule of hours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from agents.baselines.schedule import HourSchedule
from agents.whatif import WhatIf, WhatIfController
from caches.errors import InputError
from caches.knobs import KnobSettings, KnobSpace
from caches.policies.pair import CachePolicy

FloatArray = NDArray[np.float64]
Rule = WhatIfController | HourSchedule
RuleKind = Literal["whatif", "schedule"]
RULES: tuple[RuleKind, ...] = get_args(RuleKind)

ALLOWED, SLOTS = "whatif.allowed", "schedule.slots"
_OPTIONS = {field.name: f"whatif.{field.name}" for field in fields(WhatIf)}


def arrays_of(rule: Rule) -> dict[str, FloatArray]:
    """What `rule_from` needs besides knobs and reference. Numbers are of shape (1,), `schedule.slots` is (hours, 3)."""
    if isinstance(rule, HourSchedule):
        return {SLOTS: np.asarray(rule.slots, np.float64)}
    numbers = {_OPTIONS[name]: value for name, value in asdict(rule.options).items()} | {ALLOWED: rule.allowed}
    return {name: np.array([float(value)]) for name, value in numbers.items()}


def rule_from(
    kind: RuleKind,
    arrays: Mapping[str, NDArray[Any]],
    knobs: KnobSpace,
    reference: KnobSettings,
    choices: tuple[CachePolicy, ...] = (),
) -> Rule:
    """The rule around `reference`, with nothing remembered. choices: eviction policies that a what-if controller
    chooses between. InputError where the arrays are not those of one."""
    home = knobs.positions(reference)
    if kind == "schedule":
        return HourSchedule(home, _exactly(arrays, (SLOTS,))[SLOTS])
    found = {name: float(value.item()) for name, value in _numbers(arrays).items()}
    options = {field: found[name] for field, name in _OPTIONS.items()}
    how = WhatIf(**options | {"horizon": int(options["horizon"])})  # type: ignore[arg-type]
    return WhatIfController(home, knobs.max_steps, found[ALLOWED], how, choices)


def _numbers(arrays: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
    numbers = _exactly(arrays, (*_OPTIONS.values(), ALLOWED))
    for name, value in numbers.items():
        if value.shape != (1,):
            raise InputError(f"weights, {name}: got shape {value.shape}, expected (1,)")
    return numbers


def _exactly(arrays: Mapping[str, NDArray[Any]], names: tuple[str, ...]) -> Mapping[str, NDArray[Any]]:
    if set(arrays) != set(names):
        raise InputError(f"weights: got {', '.join(sorted(arrays)) or 'none'}, expected {', '.join(sorted(names))}")
    return arrays
