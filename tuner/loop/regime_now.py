"""What a change of regime means for the next interval: hold, the what-if controller, a training. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agents.bundle import PolicyBundle
from agents.bundle_policy import BundlePolicy
from agents.rules import arrays_of
from agents.whatif import WhatIfController
from envs.traffic import DRIFT, ENTROPY, OUTPUT, PROMPT
from tuner.loop.arms_now import Wanted
from tuner.loop.closing import Closed
from tuner.loop.policies import LivePolicy
from tuner.loop.standpoint import Seen
from tuner.records import ControlState, Verdict
from tuner.regime import RegimeWatch, Response, TrafficFeatures, intervals_since_shift, response, settled

REGIME, RETRAIN = "regime", "retrain"  # names in ControlState.memory
STAND_IN = "what-if controller, in place of the champion"
HELD = "Traffic is no longer what it was: settings stay until there is more to go by."


@dataclass(frozen=True)
class RegimeNow:
    """response: None while traffic is what it was. memory: for the next interval, under its names."""

    response: Response | None
    memory: dict[str, Any]


def regime_now(before: ControlState, seen: Seen, closed: Closed, watch: RegimeWatch | None) -> RegimeNow:
    """watch: None where nobody watches."""
    if watch is None:
        return RegimeNow(None, {})
    told = before.memory.get(REGIME)
    memory, _shift = watch.update(_features(closed, seen), told if isinstance(told, Mapping) else None)
    answer = response(intervals_since_shift(memory), seen.looked.keys.ghosts is not None, watch.config)
    kept: dict[str, Any] = {REGIME: memory}
    if answer is Response.RETRAIN_REQUESTED:
        kept[RETRAIN] = before.memory.get(RETRAIN, seen.index)
    return RegimeNow(answer, kept)


def at_rest(memory: Mapping[str, Any]) -> dict[str, Any]:
    """Once a newer policy has been promoted: that traffic has changed is dealt with."""
    told = memory.get(REGIME)
    return {} if told is None else {REGIME: settled(told)}


def held(want: Wanted) -> Wanted:
    """The same, with its settings as they are."""
    verdict = Verdict.HOLD if want.verdict is Verdict.ALLOW else want.verdict
    follows = want.role.settings if want.verdict is Verdict.ALLOW else want.follows
    return replace(want, verdict=verdict, follows=follows, reasons=(HELD, *want.reasons))


def stand_in(champion: LivePolicy) -> LivePolicy:
    """The what-if controller around the champion's reference, with the champion's ranges and choices. It has learned
    nothing that could be out of date."""
    bundle = champion.bundle
    home = bundle.knob_space.positions(bundle.reference)
    rule = WhatIfController(home, bundle.knob_space.max_steps, 0.0, choices=bundle.choices)
    made = PolicyBundle(
        kind="whatif",
        knob_space=bundle.knob_space,
        reference=bundle.reference,
        provenance=bundle.provenance,
        scale=bundle.scale,
        weights=arrays_of(rule),
        policy=bundle.policy,
        choices=bundle.choices,
    )
    return LivePolicy(STAND_IN, champion.version, made, BundlePolicy(STAND_IN, made))


def _features(closed: Closed, seen: Seen) -> TrafficFeatures:
    """Of all keys; the hit ratio of a ghost is not known here."""
    windows = [record for record in closed.records.values() if record.window is not None]
    requests = [record.window.get("requests") for record in windows if record.window is not None]
    rate = None
    if windows and len(windows) == len(closed.records) and None not in requests:
        seconds = windows[0].ended_seconds - windows[0].began_seconds
        rate = sum(one for one in requests if one is not None) / seconds if seconds > 0 else None
    traffic = seen.looked.keys.traffic
    entropy, drift, prompt, output = (_known(float(traffic[place])) for place in (ENTROPY, DRIFT, PROMPT, OUTPUT))
    return TrafficFeatures(rate, None, entropy, drift, prompt, output)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
