"""GPTCache, in an environment of its own: its last release is of 2024, and nothing of it shall get into our lock.

benchmarks/gptcache-requirements.txt has the versions of all that is installed there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import ROOT, say
from caches.semantic.embedder import Embedder

VERSION = "0.1.44"
FOLDER = ROOT / "out" / "benchmarks" / f"gptcache-{VERSION}"
REQUIREMENTS = Path(__file__).with_name("gptcache-requirements.txt")
SCRIPT = Path(__file__).with_name("gptcache_script.py")


class Unavailable(Exception):
    """GPTCache cannot be had here; the message says why."""


def interpreter() -> Path:
    """The Python of an environment with GPTCache in it, made where there is none. Raises Unavailable."""
    python, ready = FOLDER / "bin" / "python", FOLDER / "ready"
    if ready.exists():
        return python
    say(f"making an environment for gptcache {VERSION} in {FOLDER.relative_to(ROOT)} (200 MB)")
    install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-r", str(REQUIREMENTS)]
    for command in ([sys.executable, "-m", "venv", "--clear", str(FOLDER)], install):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"gptcache {VERSION} cannot be installed: {done.stderr.strip()[-300:]}")
    ready.touch()
    return python


def served(pairs: Sequence[tuple[str, str]], embedder: Embedder) -> list[bool]:
    """Whether it gives the first text's answer to the second, each pair in a cache of its own, with our embedder and
    its own settings else. Raises Unavailable."""
    texts = sorted({text for pair in pairs for text in pair})
    vectors = dict(zip(texts, embedder.embed(texts).tolist(), strict=True))
    python = interpreter()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(python), str(SCRIPT), folder],
            input=json.dumps({"vectors": vectors, "pairs": [list(pair) for pair in pairs]}),
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise Unavailable(f"gptcache {VERSION} failed: {done.stderr.strip()[-500:]}")
    found: list[bool] = json.loads(done.stdout)
    return found
