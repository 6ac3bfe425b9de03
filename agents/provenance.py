"""Where a policy comes from: the traffic, code, versions, seed and configuration it was made with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from caches.errors import InputError

TrafficUse = Literal["train", "validation", "test"]

RECORDED_PACKAGES = ("setpoint", "numpy", "numba", "gymnasium", "stable-baselines3", "torch")


@dataclass(frozen=True)
class TracePart:
    """Control intervals [first_interval, end_interval) of one trace and what they were used for."""

    name: str
    sha256: str
    use: TrafficUse
    first_interval: int
    end_interval: int

    def __post_init__(self) -> None:
        if not 0 <= self.first_interval < self.end_interval:
            raise InputError(
                f"{self.use} part of trace {self.name}: got intervals {self.first_interval} to "
                f"{self.end_interval}, expected 0 <= first < end"
            )

    def overlaps(self, other: TracePart) -> bool:
        same_trace = self.sha256 == other.sha256
        return same_trace and self.first_interval < other.end_interval and other.first_interval < self.end_interval


@dataclass(frozen=True)
class Provenance:
    """Everything needed to say how a policy was made, and to make it again.

    traffic: parts for training, validation and test are disjoint. metrics: of training and validation, by
    name with unit. config: the settings of the run as JSON values. git_commit: None outside a repository.
    """

    traffic: tuple[TracePart, ...]
    seed: int | None = None
    git_commit: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    config: Mapping[str, JsonValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, one in enumerate(self.traffic):
            for other in self.traffic[:index]:
                if one.use != other.use and one.overlaps(other):
                    raise InputError(
                        f"trace {one.name}: {other.use} intervals {other.first_interval} to "
                        f"{other.end_interval} overlap {one.use} intervals {one.first_interval} to "
                        f"{one.end_interval}, expected disjoint parts"
                    )

    @property
    def trace_sha256(self) -> tuple[str, ...]:
        """Each trace once, in the order of `traffic`."""
        return tuple(dict.fromkeys(part.sha256 for part in self.traffic))


def package_versions(packages: Iterable[str] = RECORDED_PACKAGES) -> dict[str, str]:
    """Installed versions by package name, and Python's; a package that is not installed is left out."""
    versions = {"python": ".".join(str(part) for part in sys.version_info[:3])}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def git_commit(folder: Path) -> str | None:
    """The commit checked out at `folder`, with `-dirty` when tracked files differ from it.

    None without git, outside a repository and before the first commit.
    """
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
