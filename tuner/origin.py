"""Where a policy that was fitted here comes from, for its bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agents.provenance import Provenance, TracePart, git_commit, package_versions
from agents.study import Study
from traces.store import trace_sha256
from tuner.config import TunerConfig


def provenance_of(
    traffic: tuple[TracePart, ...], config: TunerConfig, metrics: Mapping[str, float], seed: int | None
) -> Provenance:
    """Made now, by this code. seed: None for what needs none."""
    return Provenance(
        traffic=traffic,
        seed=seed,
        git_commit=git_commit(Path(__file__).parent),
        versions=package_versions(),
        metrics=metrics,
        config=config.model_dump(mode="json"),
    )


def traffic_of(study: Study) -> tuple[TracePart, ...]:
    """The three parts of a study's trace."""
    trace = study.world.problem.trace
    name, sha256 = trace.info.name, trace.sha256 or trace_sha256(trace)
    return (
        TracePart(name, sha256, "train", study.training.start, study.training.stop),
        TracePart(name, sha256, "validation", study.validation.start, study.validation.stop),
        TracePart(name, sha256, "test", study.test.start, study.test.stop),
    )
