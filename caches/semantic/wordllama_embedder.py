"""Word vectors that come inside the package `wordllama`: no download, no framework, far below a millisecond a question
(`python benchmarks/stack.py` says what).

The weights are read directly. The package's own loader asks a model hub even where they are installed, and importing it
takes longer than reading them.

A text's vector is the mean of its tokens' vectors, so it is blind to the order of words: "10 USD to EUR" and "10 EUR to
USD" are the same to it. What tells these apart is the guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from caches.errors import InputError, SetpointError
from caches.semantic.embedder import Vectors, unit_rows

WEIGHTS = Path("weights", "l2_supercat_256.safetensors")
TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")


class WordLlamaEmbedder:
    name = "wordllama-l2-supercat-256"
    slow = False

    def __init__(self) -> None:
        folder = _package_folder()
        try:
            self._token_vectors = load_file(folder / WEIGHTS)["embedding.weight"].astype(np.float32)
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        except (OSError, KeyError) as error:
            raise SetpointError(f"{folder}: the weights of wordllama cannot be read: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @property
    def dimensions(self) -> int:
        return int(self._token_vectors.shape[1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        sums = np.zeros((len(texts), self.dimensions), np.float32)  # which point where the means do
        for row, tokens in enumerate(self._tokens(texts)):
            if tokens:
                np.add.reduce(self._token_vectors.take(tokens, axis=0), axis=0, out=sums[row])
        return unit_rows(sums)

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        if len(texts) == 1:  # a batch wakes threads
            return [self._tokenizer.encode(texts[0], add_special_tokens=False).ids]
        return [one.ids for one in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def close(self) -> None:
        """Nothing is held."""


def _package_folder() -> Path:
    """Found without importing the package."""
    spec = find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise InputError('the embedder "wordllama" needs the package wordllama: pip install "setpoint[live]"')
    return Path(spec.origin).parent
