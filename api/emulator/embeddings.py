"""Embeddings of an emulator: unit vectors that follow from model, seed and text, and mean nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from api.emulator.bodies import EmbeddingBody
from api.emulator.tokens import prompt_tokens

DIMENSIONS = 384


def embedding(seed: int, model: str, text: str | Sequence[int], dimensions: int) -> NDArray[np.float32]:
    """float32[dimensions] of length 1. Texts that differ at all have vectors near to a right angle."""
    told = orjson.dumps([str(seed), model, text])
    data = hashlib.shake_256(told).digest(2 * dimensions)
    values = np.frombuffer(data, "<i2").astype(np.float64) + 0.5  # never all zero
    return np.asarray(values / np.linalg.norm(values), np.float32)


def embedding_tokens(body: EmbeddingBody) -> int:
    return sum(map(prompt_tokens, body.inputs))


def embedding_answer(body: EmbeddingBody, seed: int) -> dict[str, Any]:
    """The JSON of POST /v1/embeddings."""
    dimensions = body.dimensions or DIMENSIONS
    data = []
    for index, text in enumerate(body.inputs):
        vector = embedding(seed, body.model, text, dimensions)
        told: Any = vector.tolist()
        if body.encoding_format == "base64":
            told = base64.b64encode(vector.astype("<f4").tobytes()).decode()
        data.append({"object": "embedding", "index": index, "embedding": told})
    tokens = embedding_tokens(body)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": body.model, "data": data, "usage": usage}
