"""Results of long tasks, kept on disk: a benchmark of an hour that was interrupted goes on where it was.

They are those of the sources as they are: after any change of the packages or the benchmarks all is done anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import joblib

from benchmarks.harness import ROOT

Given = ParamSpec("Given")
Result = TypeVar("Result")
FOLDER = ROOT / "out" / "benchmarks" / "kept"
SOURCES = ("caches", "traces", "envs", "agents", "tuner", "benchmarks")


def kept(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function, which looks for its result before it works. Processes may share it, and so may runs."""
    return joblib.Memory(FOLDER / _sources(), verbose=0).cache(function)  # type: ignore[no-any-return]


def _sources() -> str:
    """A digest of all code that a result may depend on."""
    digest = hashlib.sha256()
    for package in SOURCES:
        for path in sorted((ROOT / package).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
