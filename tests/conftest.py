"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.contracts", "tests.caches.tiers.server_contract")  # to see what was compared
pytest_plugins = ["tests.servers", "tests.stores"]

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of recorded traces beside the repository; the test is skipped where it is absent."""
    folder = ROOT.parent / "shared" / "traces"
    if not folder.is_dir():
        pytest.skip(f"the recorded traces are not at {folder}")
    return folder
