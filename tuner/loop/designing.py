"""The design of an experiment that begins, as far as nobody has set it: filled in from past traffic, with a word on
what was taken and where it comes from. Pure.

From then on it is fixed; it stands in the ledger before any key changes sides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from caches.target import BalancedSalt
from tuner.experiment import ExperimentDesign
from tuner.keys.past import PastTraffic
from tuner.loop.experiments import BEGAN, Running, design_json
from tuner.records import ExperimentRecord, Tick

TAKEN = "taken"  # beside the plan in a record's design
TOO_LITTLE = "Not set: too little is known of past traffic."


def begun_in(tick: Tick) -> ExperimentRecord | None:
    """The experiment that begins with this tick; it decides in shadow at first."""
    fresh = (one for one in tick.experiments if one.ended_seconds is None and one.design.get(BEGAN) is None)
    return next(fresh, None)


def wants_salt(record: ExperimentRecord) -> bool:
    """Whether nobody chose one: it is the experiment's name then."""
    return Running.of(record).design.salt == record.id


def seed_of(record: ExperimentRecord) -> int:
    """Of the salts that are tried: another daemon that begins the same experiment tries the same."""
    return int.from_bytes(hashlib.sha256(record.id.encode()).digest()[:8], "big") >> 1


def filled(
    record: ExperimentRecord,
    past: PastTraffic | None,
    salt: BalancedSalt | str | None,
    shares: Sequence[float],
) -> ExperimentRecord:
    """past: None where nothing follows the keys. salt: the one that the cache found, a sentence on why it has none, or
    None where it knows no past; it counts where nobody chose one. shares: of the treatment arm, one after the other."""
    plan = Running.of(record).design
    changes: dict[str, object] = {}
    taken: dict[str, object] = {}
    if wants_salt(record):
        if isinstance(salt, BalancedSalt):
            changes["salt"] = salt.salt
        taken["salt"] = _of_salt(salt)
    for name, value, told in _of_past(past, shares):
        if getattr(plan, name) is None:
            if value:
                changes[name] = value
            taken[name] = told if value else TOO_LITTLE
    design = ExperimentDesign.model_validate(plan.model_dump() | changes)
    return replace(record, design=design_json(design, None) | {TAKEN: taken})


def _of_past(past: PastTraffic | None, shares: Sequence[float]) -> list[tuple[str, float | None, str]]:
    """Name in the design, value, where it comes from. Luck is that of the share at which it is largest."""
    looked = 0 if past is None else past.intervals
    lucks = [] if past is None else [luck for share in shares if (luck := past.luck_ratio(share)) is not None]
    back = f"of the last {looked:,} intervals in the key stream"
    return [
        ("concentration", None if past is None else past.concentration(), f"By the requests {back}."),
        (
            "luck_ratio",
            max(lucks, default=None),
            f"By what keys cost under the control's settings, {back}: over splits at random with the share "
            f"{min(shares, default=0.5):.3g}, the smallest.",
        ),
    ]


def _of_salt(salt: BalancedSalt | str | None) -> str:
    if isinstance(salt, BalancedSalt):
        return (
            f"The one of those tried that splits past traffic best, by the {salt.keys:,} heaviest keys of the cache: "
            f"{salt.imbalance:.2g} standard deviations off at most."
        )
    return f"The experiment's name: {salt or 'the cache knows of no requests yet.'}"
