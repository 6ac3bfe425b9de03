"""Names of cache operations in logs, as Operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.trace import Operation

MEMCACHED = {
    **dict.fromkeys(("get", "gets"), Operation.READ),
    **dict.fromkeys(("set", "add", "replace", "cas", "append", "prepend", "incr", "decr"), Operation.WRITE),
    "delete": Operation.DELETE,
}
GENERIC = {**MEMCACHED, "read": Operation.READ, "write": Operation.WRITE, "put": Operation.WRITE}


def codes(names: Any, table: Mapping[str, Operation]) -> tuple[NDArray[np.uint8], int | None]:
    """(operation of each row, first row whose name the table lacks or None). names: pyarrow strings.

    Upper and lower case are the same.
    """
    encoded = names.dictionary_encode()
    found = [table.get(name.lower()) for name in encoded.dictionary.to_pylist()]
    indices = encoded.indices.to_numpy()
    unknown = np.flatnonzero(np.isin(indices, [i for i, code in enumerate(found) if code is None]))
    code_of = np.array([code or Operation.READ for code in found], dtype=np.uint8)
    return code_of[indices], int(unknown[0]) if len(unknown) else None
