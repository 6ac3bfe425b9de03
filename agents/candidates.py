"""Registered policies to be judged: one version, its siblings from the same training, and the champion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agents.baselines.schedule import HourSchedule
from agents.bundle import PolicyBundle, PolicyKind
from agents.bundle_policy import BundlePolicy
from agents.registry import PolicyVersion, Registry
from agents.tracks import Champion, Contender, Role
from agents.version_tags import LEARNED_WITHIN, TRAINING
from agents.whatif import WhatIfController
from caches.errors import Mismatch

KIND_NAMES: dict[PolicyKind, str] = {
    "ppo": "PPO",
    "static": "static",
    "whatif": WhatIfController.name,
    "schedule": HourSchedule.name,
}


@dataclass(frozen=True)
class Candidate:
    """A version with its policy."""

    version: PolicyVersion
    bundle: PolicyBundle

    def contender(self, role: Role = "learned") -> Contender:
        """Ready to be judged, without anything remembered."""
        bundle, within = self.bundle, self.bundle.provenance.metrics.get(LEARNED_WITHIN)
        kind = KIND_NAMES[bundle.kind]
        name = kind if bundle.provenance.seed is None else f"{kind} seed {bundle.provenance.seed}"
        learned_within = None if within is None else int(within)
        return Contender(BundlePolicy(name, bundle), bundle.provenance.seed, self.version.version, role, learned_within)


@dataclass(frozen=True)
class Candidates:
    """chosen: whose promotion is in question. siblings: all of its training, of whatever kind, `chosen` among them, by
    version.

    champion: None without one and where it is `chosen`. champion_version: as it was when this was read.
    """

    chosen: Candidate
    siblings: tuple[Candidate, ...]
    champion: Champion | None
    champion_version: int | None

    @property
    def contenders(self) -> list[Contender]:
        """Those of the chosen one's kind as learned, those of other kinds to compare with."""
        kind = self.chosen.bundle.kind
        return [one.contender("learned" if one.bundle.kind == kind else "baseline") for one in self.siblings]


def find_candidates(registry: Registry, reference: int | str) -> Candidates:
    """By version number or alias. Raises NotFound for an unknown one, and Mismatch where siblings do not share
    reference, scale, knobs and the cache's policy, so that they cannot be judged side by side."""
    version = registry.version(reference)
    chosen = Candidate(version, registry.load(version.version))
    training = version.tags.get(TRAINING)
    others = [] if training is None else _others(registry, chosen, training)
    _require_alike(chosen, others)
    siblings = sorted([chosen, *others], key=lambda one: one.version.version)
    champion = registry.champion()
    rival = None
    if champion is not None and champion != version.version:
        rival = Champion(champion, registry.load(champion))
    return Candidates(chosen, tuple(siblings), rival, champion)


def _others(registry: Registry, chosen: Candidate, training: str) -> list[Candidate]:
    return [
        Candidate(version, registry.load(version.version))
        for version in registry.versions()
        if version.tags.get(TRAINING) == training and version.version != chosen.version.version
    ]


def _require_alike(chosen: Candidate, others: Iterable[Candidate]) -> None:
    mine = chosen.bundle
    for other in others:
        theirs = other.bundle
        for what in ("reference", "scale", "knob_space", "policy"):
            if getattr(mine, what) != getattr(theirs, what):
                raise Mismatch(
                    f"versions {chosen.version.version} and {other.version.version} are of one training, but their "
                    f"{what} differs: {getattr(mine, what)} and {getattr(theirs, what)}"
                )
