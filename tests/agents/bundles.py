"""Small policy bundles for the tests of this folder."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from agents.actor import Scaler
from agents.baselines.schedule import HourSchedule
from agents.bundle import PolicyBundle
from agents.provenance import Provenance, TracePart
from agents.rules import Rule, arrays_of
from caches.knobs import Knob, KnobSettings, KnobSpace
from envs.observation import ObservationScale

SPACE = KnobSpace(
    cache_size=Knob("cache_size", "bytes", 1e6, 1e9, 1e8, 0.1, "log"),
    ttl_seconds=Knob("ttl_seconds", "s", 1.0, 86_400.0, 3_600.0, 0.2, "log"),
    warmup_ratio=Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear"),
)
REFERENCE = KnobSettings(cache_size=2e8, ttl_seconds=600.0, warmup_ratio=0.25)
SCALE = ObservationScale(300.0, 4.5, 11.0, 700.0, 150.0, 0.02, 2.0, 0.05, True, False)
TRACE_SHA256 = "ab" * 32
PROVENANCE = Provenance(
    traffic=(
        TracePart("cluster52", TRACE_SHA256, "train", 0, 60),
        TracePart("cluster52", TRACE_SHA256, "validation", 60, 80),
        TracePart("cluster52", TRACE_SHA256, "test", 80, 100),
    ),
    seed=7,
    git_commit="0" * 40,
    versions={"numpy": "2.4.6"},
    metrics={"validation_saving_usd_per_1000": 0.25},
    config={"batch": 512, "learning_rate": 3e-5, "layers": [64, 64]},
)


def layered_weights(sizes: tuple[int, ...], seed: int) -> dict[str, np.ndarray]:
    """An actor with random weights; sizes: inputs, hidden..., 3."""
    rng = np.random.default_rng(seed)
    weights = {}
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        weights[f"actor.{index}.weight"] = rng.normal(size=(outputs, inputs)).astype(np.float32)
        weights[f"actor.{index}.bias"] = rng.normal(size=outputs).astype(np.float32)
    return weights


def ppo_bundle(seed: int = 0, observation_size: int = 5) -> PolicyBundle:
    return PolicyBundle(
        kind="ppo",
        knob_space=SPACE,
        reference=REFERENCE,
        provenance=PROVENANCE,
        observation_version="1",
        observation_size=observation_size,
        scale=SCALE,
        weights=layered_weights((observation_size, 8, 8, 3), seed),
        scaler=Scaler(np.linspace(-1, 1, observation_size), np.linspace(1, 2, observation_size)),
    )


def rule_bundle(rule: Rule) -> PolicyBundle:
    return PolicyBundle(
        kind="schedule" if isinstance(rule, HourSchedule) else "whatif",
        knob_space=SPACE,
        reference=REFERENCE,
        provenance=PROVENANCE,
        scale=SCALE,
        weights=arrays_of(rule),
    )


def static_bundle() -> PolicyBundle:
    return PolicyBundle(kind="static", knob_space=SPACE, reference=REFERENCE, provenance=PROVENANCE)
