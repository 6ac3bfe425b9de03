"""Records of an access log for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from traces.access.record import AccessRecord

SECRET = b"sixteen or more bytes"
BEGIN = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC


def cached(seconds: float, key: str = "a", outcome: str = "memory", **fields: Any) -> AccessRecord:
    """A request for a key of which an answer is known. seconds: after BEGIN."""
    told = {"size_bytes": 100, "prompt_tokens": 10, "output_tokens": 5, **fields}
    return AccessRecord(BEGIN + seconds, key.encode(), "default", "default", outcome, 200, **told)


def bypass(seconds: float) -> AccessRecord:
    return AccessRecord(BEGIN + seconds, None, "default", "default", "bypass", 200)


def files(folder: Path) -> list[Path]:
    """Of a log, those that are complete."""
    return sorted(folder.glob("*.parquet"))
