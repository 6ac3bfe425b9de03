"""The traces that come with Setpoint, by name; see traces/data/README.md."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def shipped_traces() -> dict[str, Path]:
    """Name -> file."""
    folder = Path(str(resources.files("traces") / "data"))
    return {file.stem: file for file in sorted(folder.glob("*.parquet"))}


def located(path: Path) -> Path:
    """The path itself or, where nothing is there and it is the name of a shipped trace, that trace's file."""
    return path if path.exists() else shipped_traces().get(str(path), path)
