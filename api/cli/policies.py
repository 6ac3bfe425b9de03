"""`setpoint policies`: what is registered."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from agents.registry import PolicyVersion
from agents.version_tags import TEST_SAVING, TRAINING, VALIDATION_SAVING
from api.cli.options import AsJson, ConfigFile, TrackingUri
from api.cli.output import print_json, print_table
from api.cli.registry import open_registry
from tuner.config import load_tuner_config

NONE = "–"


def policies(
    config_file: ConfigFile = None,
    tracking_uri: TrackingUri = None,
    as_json: AsJson = False,
) -> None:
    """List the registered policies, newest first: aliases, kind, savings on validation and test traffic, traces."""
    config = load_tuner_config(config_file, Path.cwd(), os.environ, {"tracking.uri": tracking_uri})
    registry = open_registry(config, Path.cwd())
    found = registry.versions()
    if as_json:
        print_json([describe(version) for version in found])
        return
    columns = ("version", "aliases", "kind", "created", "seed", "saves % (validation)", "saves % (test)", "traces")
    print_table(f"Policies named {registry.model_name}", columns, [_row(version) for version in found])


def describe(version: PolicyVersion) -> Mapping[str, object]:
    """One version for JSON. Savings are percent of best static's cost; None where they were not measured."""
    validation, test = version.metrics.get(VALIDATION_SAVING), version.tags.get(TEST_SAVING)
    return {
        "version": version.version,
        "aliases": version.aliases,
        "kind": version.kind,
        "created": datetime.fromtimestamp(version.created_unix_seconds, UTC).isoformat(timespec="seconds"),
        "seed": version.tags.get("seed"),
        "training": version.tags.get(TRAINING),
        "validation_saving_percent": None if validation is None else 100.0 * validation,
        "test_saving_percent": None if test is None else float(test),
        "trace_sha256": version.trace_sha256,
        "bundle_sha256": version.bundle_sha256,
        "run_id": version.run_id,
    }


def _row(version: PolicyVersion) -> tuple[str, ...]:
    said = describe(version)
    created = datetime.fromtimestamp(version.created_unix_seconds, UTC)
    return (
        str(version.version),
        ", ".join(version.aliases) or NONE,
        version.kind or NONE,
        f"{created:%Y-%m-%d %H:%M} UTC",
        str(said["seed"] or NONE),
        _percent(said["validation_saving_percent"]),
        _percent(said["test_saving_percent"]),
        ", ".join(sha256[:12] for sha256 in version.trace_sha256) or NONE,
    )


def _percent(value: object) -> str:
    return f"{value:+.2f}" if isinstance(value, float) else NONE
