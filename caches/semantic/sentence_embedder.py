"""Any model of sentence-transformers, by name or folder. Better than word vectors, and a hundred times slower."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from caches.errors import InputError
from caches.semantic.embedder import Vectors, unit_rows


class SentenceEmbedder:
    slow = True

    def __init__(self, model: str) -> None:
        """Loads the model, from the hub where it is not on this machine; takes seconds."""
        try:
            from sentence_transformers import SentenceTransformer  # heavy, and not everyone's
        except ImportError as error:
            raise InputError(
                f'the embedder "{model}" needs the package sentence-transformers: '
                f'pip install "setpoint[sentences]", or choose "wordllama"'
            ) from error
        self.name = f"sentence-transformers:{model}"
        self._model = SentenceTransformer(model, device="cpu")
        self.dimensions = int(self._model.encode(["length"], show_progress_bar=False).shape[1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self.dimensions), np.float32)
        rows = self._model.encode(list(texts), convert_to_numpy=True, show_progress_bar=False)
        return unit_rows(np.asarray(rows, np.float32))

    def close(self) -> None:
        """Nothing is held."""
