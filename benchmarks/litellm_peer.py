"""The LiteLLM proxy, in an environment of its own: it pins what we do not, and nothing of it shall get into our lock.

benchmarks/litellm-requirements.txt has the versions of all that is installed there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.harness import ROOT, say

VERSION = "1.108.7"
FOLDER = ROOT / "out" / "benchmarks" / f"litellm-{VERSION}"
REQUIREMENTS = Path(__file__).with_name("litellm-requirements.txt")
TTL_SECONDS = 3_600
# Nothing is fetched, little is written, as its documentation advises for production.
ENVIRONMENT = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}


class Unavailable(Exception):
    """LiteLLM cannot be had here; the message says why."""


def program() -> Path:
    """The proxy's command, installed where it is not. Raises Unavailable."""
    ready = FOLDER / "ready"
    if not ready.exists():
        say(f"making an environment for litellm {VERSION} in {FOLDER.relative_to(ROOT)} (600 MB)")
        for command in ([sys.executable, "-m", "venv", "--clear", str(FOLDER)], _installing()):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise Unavailable(f"litellm {VERSION} cannot be installed: {done.stderr.strip()[-300:]}")
        ready.touch()
    return FOLDER / "bin" / "litellm"


def _installing() -> list[str]:
    """By uv where it is beside our Python, since pip takes minutes for a hundred packages."""
    python, uv = FOLDER / "bin" / "python", Path(sys.executable).with_name("uv")
    pip = [str(uv), "pip", "install", "--python", str(python)] if uv.exists() else [str(python), "-m", "pip", "install"]
    return [*pip, "--quiet", "-r", str(REQUIREMENTS)]


def config(model: str, upstream: str, redis_url: str | None) -> str:
    """Its configuration (YAML, of which JSON is a part). Without keys, as our gateway beside it; redis_url: of its
    cache; None for the one in memory."""
    cache: dict[str, Any] = {"type": "local", "ttl": TTL_SECONDS}
    if redis_url is not None:
        place = urlsplit(redis_url)
        cache = {"type": "redis", "host": place.hostname, "port": place.port, "ttl": TTL_SECONDS}
    return json.dumps(
        {
            "model_list": [
                {
                    "model_name": model,
                    "litellm_params": {"model": f"openai/{model}", "api_base": f"{upstream}/v1", "api_key": "none"},
                }
            ],
            "litellm_settings": {"cache": True, "cache_params": cache, "telemetry": False},
            "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},
        }
    )
