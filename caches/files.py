"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from caches.errors import SetpointError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; it takes the place of `path` when the block ends without an error, and is gone
    otherwise. The folder is made if there is none.

    Raises SetpointError naming the path where it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(path)
    except OSError as error:
        raise SetpointError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if partial.parent.is_dir():
            partial.unlink(missing_ok=True)
