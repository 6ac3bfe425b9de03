"""Columns that a source lacks and a reader fills in, with the sentence that says so."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BYTES_PER_TOKEN = 4
SIZE_FROM_OUTPUT = f"Response sizes are modelled as {BYTES_PER_TOKEN} bytes per output token; the source has none."


def size_from_output(output_tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes of responses of so many tokens: English text is about 4 characters to a token."""
    return output_tokens * BYTES_PER_TOKEN
