"""Where `setpoint serve` keeps answers from a stop to the next start when nobody says where: the user's cache folder.

A file for each backend, since what one answers is nothing to another; for each machine, since a home may be shared
over a network; and for each version of the format. Several gateways in front of the same backend share it. The folder
can be read by its owner only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from api.gateway.config import ServeConfig
from api.gateway.settings import base_url, listed, shown_url
from caches.tiers.disk_file import VERSION

OWNER_ONLY = 0o700
OTHERS = 0o077
OFF = "--no-disk turns this off."


def with_default_disk(config: ServeConfig, environ: Mapping[str, str], machine: str) -> tuple[ServeConfig, list[str]]:
    """With a path for the tier on disk where there is to be one and none is named; and what an operator should know, in
    sentences. Makes the folder. What is in Redis or Cassandra outlives the gateway already, so beside it the tier has
    to be asked for. machine: its name. A folder that cannot be used is no error: nobody asked for it."""
    tiers, upstream = config.tiers, config.gateway.upstream
    is_shared = tiers.redis or tiers.cassandra.is_there or tiers.semantic.shared
    is_kept_elsewhere = tiers.disk.path is not None or is_shared
    if not tiers.disk.enabled or is_kept_elsewhere or upstream is None:
        return config, []
    folder = cache_folder(environ)
    if folder is None:
        return config, ["Answers are not kept on disk: there is no home folder; --disk names a file."]
    try:
        _make_private(folder)
    except OSError as error:
        return config, [f"Answers are not kept on disk: {folder} cannot be used ({error.strerror})."]
    path = folder / file_name(listed(upstream), machine)
    disk = tiers.disk.model_copy(update={"path": path})
    config = config.model_copy(update={"tiers": tiers.model_copy(update={"disk": disk})})
    return config, [f"Answers are kept in {path} for the next start; {OFF}"]


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """Ours, by the rules of freedesktop.org for XDG_CACHE_HOME, which ignore what is no absolute path."""
    for variable, *below in (("XDG_CACHE_HOME",), ("HOME", ".cache")):
        base = Path(environ.get(variable, ""))
        if base.is_absolute():
            return base.joinpath(*below, "setpoint")
    return None


def file_name(backends: Sequence[str], machine: str) -> str:
    """The same with or without a password in the URLs, and with or without /v1."""
    told = sorted(shown_url(base_url(url)) for url in backends)
    digest = hashlib.sha256("\n".join([machine, *told]).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return f"answers-{digest}-v{VERSION}.sqlite"


def _make_private(folder: Path) -> None:
    """Raises OSError."""
    folder.mkdir(OWNER_ONLY, parents=True, exist_ok=True)
    if folder.stat().st_mode & OTHERS:
        folder.chmod(OWNER_ONLY)
    if not os.access(folder, os.W_OK):
        raise PermissionError(0, "it cannot be written")
