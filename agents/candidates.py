"""Registered policies to be judged: one version, its siblings from the same training, and the champion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agents.bundle import PolicyBundle
from agents.registry import PolicyVersion, Registry
from agents.tracks import BundlePolicy, Champion, Contender
from agents.version_tags import TRAINING
from caches.errors import Mismatch


@dataclass(frozen=True)
class Candidate:
    """A version with its policy."""

    version: PolicyVersion
    bundle: PolicyBundle

    @property
    def contender(self) -> Contender:
        seed = self.bundle.provenance.seed
        kind = "PPO" if self.bundle.kind == "ppo" else self.bundle.kind
        name = kind if seed is None else f"{kind} seed {seed}"
        return Contender(BundlePolicy(name, self.bundle), seed, self.version.version)


@dataclass(frozen=True)
class Candidates:
    """chosen: whose promotion is in question. siblings: all of its training, `chosen` among them, by version.

    champion: None without one and where it is `chosen`. champion_version: as it was when this was read.
    """

    chosen: Candidate
    siblings: tuple[Candidate, ...]
    champion: Champion | None
    champion_version: int | None


def find_candidates(registry: Registry, reference: int | str) -> Candidates:
    """By version number or alias. Raises NotFound for an unknown one, and Mismatch where siblings do not share
    reference, scale and knobs, so that they cannot be judged side by side."""
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
        if version.tags.get(TRAINING) == training
        and version.version != chosen.version.version
        and version.kind == chosen.version.kind
    ]


def _require_alike(chosen: Candidate, others: Iterable[Candidate]) -> None:
    mine = chosen.bundle
    for other in others:
        theirs = other.bundle
        for what in ("reference", "scale", "knob_space"):
            if getattr(mine, what) != getattr(theirs, what):
                raise Mismatch(
                    f"versions {chosen.version.version} and {other.version.version} are of one training, but their "
                    f"{what} differs: {getattr(mine, what)} and {getattr(theirs, what)}"
                )
