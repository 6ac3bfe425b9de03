"""An index as one file: what it is, then fingerprints and vectors. The structures are built anew from these."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import orjson

from caches.errors import InputError, Mismatch
from caches.files import written_whole
from caches.keys.request_key import FINGERPRINT_BYTES, Partition
from caches.semantic.index import MATRIX_UP_TO, Group, VectorIndex

FORMAT = "setpoint vectors 1"


def save_index(index: VectorIndex, embedder_name: str, path: Path) -> None:
    """Whole or not at all. Raises SetpointError where it cannot be written."""
    parts = list(index.rows())
    fingerprints = b"".join(b"".join(names) for _, names, _ in parts)
    vectors = np.concatenate([np.empty((0, index.dimensions), np.float32), *(rows for _, _, rows in parts)])
    groups = [
        [group.partition.tenant, group.partition.namespace, group.context.hex(), len(names)]
        for group, names, _ in parts
    ]
    head = orjson.dumps({"format": FORMAT, "embedder": embedder_name, "groups": groups})
    with written_whole(path) as partial, partial.open("wb") as file:
        partial.chmod(0o600)  # the vector of a question tells much of it
        np.savez(
            file,
            head=np.frombuffer(head, np.uint8),
            fingerprints=np.frombuffer(fingerprints, np.uint8).reshape(-1, FINGERPRINT_BYTES),
            vectors=vectors,
        )


def load_index(path: Path, embedder_name: str, dimensions: int, matrix_up_to: int = MATRIX_UP_TO) -> VectorIndex:
    """All groups are matrices at first; `plan` says which of them are due to become cells.

    Raises Mismatch where the vectors are another embedder's, InputError where it is no such file.
    """
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            head, fingerprints, vectors = orjson.loads(file["head"].tobytes()), file["fingerprints"], file["vectors"]
        written_by = (head["format"], head["embedder"], vectors.shape[1])
        groups = [(Group(Partition(t, n), bytes.fromhex(context)), int(held)) for t, n, context, held in head["groups"]]
    except (OSError, EOFError, KeyError, TypeError, ValueError, IndexError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: cannot be read as an index of vectors: {error}") from error
    expected = (FORMAT, embedder_name, dimensions)
    if written_by != expected:
        raise Mismatch(f"{path}: got {written_by}, expected {expected}")
    if not sum(held for _, held in groups) == len(fingerprints) == len(vectors):
        raise InputError(f"{path}: its parts do not belong together")
    index, row = VectorIndex(dimensions, matrix_up_to), 0
    for group, held in groups:
        for place in range(row, row + held):
            index.add(group, fingerprints[place].tobytes(), vectors[place])
        row += held
    return index
