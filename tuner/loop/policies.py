"""The policies at work beside a live cache: champion and challenger, by their aliases, exchanged between two ticks.

A version that cannot be had or does not fit is refused with a sentence, and what worked goes on working: no tick
depends on the registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agents.bundle import PolicyBundle
from agents.bundle_policy import BundlePolicy
from agents.candidates import KIND_NAMES
from agents.registry import CHALLENGER, CHAMPION, Registry
from caches.errors import Mismatch, NotFound, SetpointError
from caches.knobs import KNOB_NAMES, KnobSpace
from caches.policies.pair import PLAIN, CachePolicy
from envs.observation import OBSERVATION_VERSION, SIZE


@dataclass(frozen=True)
class LivePolicy:
    """A registered policy, ready to decide."""

    name: str
    version: int
    bundle: PolicyBundle
    policy: BundlePolicy


class Policies(Protocol):
    """What a tick knows of the registry. Nothing here waits for anything."""

    def champion(self) -> LivePolicy | None:
        """None where there is none: the operator's static settings hold."""

    def challenger(self) -> LivePolicy | None:
        """None where there is none, where it is the champion, and where both choose between eviction policies, but not
        between the same: the ghosts that both are told of stand for one list of them."""

    def problems(self) -> Mapping[str, str]:
        """By alias, why what it names is not at work; "registry" where that cannot be read."""

    def promote(self, version: int, expected: int | None) -> None:
        """To be made the champion in place of `expected`, as soon as the registry can be reached."""


@dataclass
class RegistryPolicies:
    """`Policies` as the registry has them at each `refresh`. knobs: the operator's ranges of the cache.
    interval_seconds: of control. cache_policies: what ghosts follow the cache under, the policy that it was made with
    first; the others may be chosen."""

    registry: Registry
    knobs: KnobSpace
    interval_seconds: float
    cache_policies: tuple[CachePolicy, ...] = (PLAIN,)
    _loaded: dict[str, LivePolicy] = field(default_factory=dict)
    _refused: dict[str, tuple[int, str]] = field(default_factory=dict)
    _problems: dict[str, str] = field(default_factory=dict)
    _wanted: tuple[int, int | None] | None = None

    def champion(self) -> LivePolicy | None:
        return self._loaded.get(CHAMPION)

    def challenger(self) -> LivePolicy | None:
        found, champion = self._loaded.get(CHALLENGER), self.champion()
        if found is None or champion is None:
            return found
        return None if champion.version == found.version or _at_odds(champion, found) else found

    def problems(self) -> Mapping[str, str]:
        return dict(self._problems)

    def promote(self, version: int, expected: int | None) -> None:
        self._wanted = (version, expected)

    def refresh(self) -> None:
        """Reads the registry, which may take long; called between ticks, by one thread at a time. Raises nothing for
        what the registry does."""
        problems: dict[str, str] = {}
        try:
            self._promote(problems)
            for alias in (CHAMPION, CHALLENGER):
                self._follow(alias, problems)
        except SetpointError as error:
            problems["registry"] = str(error)
        champion, challenger = self.champion(), self._loaded.get(CHALLENGER)
        if champion is not None and challenger is not None and _at_odds(champion, challenger):
            told = (
                f"Version {challenger.version} waits: it chooses between {_listed(challenger.bundle.choices)}, the "
                f"champion between {_listed(champion.bundle.choices)}; both have to choose between the same."
            )
            problems[CHALLENGER] = " ".join(filter(None, (problems.get(CHALLENGER), told)))
        self._problems = problems

    def _promote(self, problems: dict[str, str]) -> None:
        if self._wanted is None:
            return
        version, expected = self._wanted
        found = self.registry.champion()
        if found != version:
            found = self.registry.swap_champion(version, expected)
            if found != expected:
                problems[CHAMPION] = f"Version {version} was to replace {expected}, but the champion is {found} by now."
        self._wanted = None

    def _follow(self, alias: str, problems: dict[str, str]) -> None:
        try:
            version = self.registry.version(alias).version
        except NotFound:
            if alias in self._loaded:
                self.registry.versions()  # raises where all is gone: that is a loss, not somebody's decision
            self._loaded.pop(alias, None)
            self._refused.pop(alias, None)
            return
        there = self._loaded.get(alias)
        if there is not None and there.version == version:
            return
        if alias in self._refused and self._refused[alias][0] == version:
            problems[alias] = self._refused[alias][1]
            return
        try:
            self._loaded[alias] = self._load(version)
            self._refused.pop(alias, None)
        except SetpointError as error:
            stays = "" if there is None else f" Version {there.version} goes on."
            problems[alias] = f"Version {version} is refused: {error}.{stays}"
            if isinstance(error, Mismatch):  # that stays so; anything else may pass
                self._refused[alias] = (version, problems[alias])

    def _load(self, version: int) -> LivePolicy:
        bundle = self.registry.load(version)
        require_fit(bundle, self.knobs, self.interval_seconds, self.cache_policies)
        name = KIND_NAMES[bundle.kind]
        return LivePolicy(name, version, bundle, BundlePolicy(name, bundle))


def require_fit(
    bundle: PolicyBundle, knobs: KnobSpace, interval_seconds: float, cache_policies: Sequence[CachePolicy] = (PLAIN,)
) -> None:
    """Raises Mismatch, naming both sides of every difference, unless the policy can decide for a cache with these
    ranges, intervals and policies: it was made for the first of them, and every setting that it can choose is one that
    the operator allows."""
    bundle.require(
        observation_version=OBSERVATION_VERSION,
        observation_size=SIZE,
        knob_space=bundle.knob_space,
        policy=cache_policies[0],
    )
    told = []
    if not set(bundle.choices) <= set(cache_policies):
        told.append(
            f"eviction policy: it chooses between {_listed(bundle.choices)}, what is followed is "
            f"{_listed(cache_policies)}; [cache] eviction_policy of the daemon names what may be chosen"
        )
    for name in KNOB_NAMES:
        theirs, ours = getattr(bundle.knob_space, name), getattr(knobs, name)
        if theirs.low < ours.low or theirs.high > ours.high:
            told.append(
                f"{name}: it moves in {theirs.low:g} to {theirs.high:g}, the cache in {ours.low:g} to {ours.high:g}"
            )
    seconds = None if bundle.scale is None else bundle.scale.interval_seconds
    if seconds is not None and seconds != interval_seconds:
        told.append(f"interval: it was trained at {seconds:g} s, control runs at {interval_seconds:g} s")
    if told:
        raise Mismatch(f"policy bundle {bundle.sha256[:12]} does not fit: {'; '.join(told)}")


def _at_odds(champion: LivePolicy, challenger: LivePolicy) -> bool:
    mine, other = champion.bundle.choices, challenger.bundle.choices
    return bool(mine and other and mine != other)


def _listed(policies: Sequence[CachePolicy]) -> str:
    return ", ".join(map(str, policies))
