"""Material for reports, from tracks whose numbers can be checked in the head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agents.evaluation import evaluate
from agents.tracks import Track
from agents.uncertainty import Resampling
from api.report.material import Material
from tests.agents.tracks_by_hand import TRAFFIC, four_tracks, ground

HOW = Resampling(200)
REASON = "The saving against the best static setting is too small."


def material(tracks: Sequence[Track] | None = None, setting: dict[str, Any] | None = None, **changes: Any) -> Material:
    """Of `four_tracks` unless others are given: four hours, 1,000 requests; version 10 (seed 0) is judged."""
    shown = tuple(four_tracks() if tracks is None else tracks)
    traffic, grounds = replace(TRAFFIC, **(setting or {})), ground()
    hours = 3600.0 * np.arange(len(shown[0].rows))
    made = Material(
        version=10,
        evaluation=evaluate(shown, traffic, grounds, HOW),
        tracks=shown,
        resampling=HOW,
        knobs=grounds.knobs,
        constraints=grounds.constraints,
        starts=hours,
        dated=False,
        made_on="2026-02-03",
        run_id="abc123",
        packages={"setpoint": "0.1.0", "python": "3.11.2"},
    )
    return replace(made, **changes)
