"""An OpenAI-compatible embeddings endpoint."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import numpy as np

from caches.semantic.embedder import Vectors, unit_rows
from caches.tiers.tier import TierError


class EndpointEmbedder:
    """The key goes into the header of each request and nowhere else: not into the name, not into an error."""

    slow = True

    def __init__(
        self,
        url: str,
        model: str,
        dimensions: int,
        api_key: str | None = None,
        timeout_seconds: float = 2.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """url: up to and without `/embeddings`. transport: in place of the network, for tests."""
        self.dimensions = dimensions
        self._model = model
        self._url = f"{url.rstrip('/')}/embeddings"
        self.name = f"endpoint:{model}@{httpx.URL(self._url).host}"
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._client = httpx.Client(headers=headers, timeout=timeout_seconds, transport=transport)

    def embed(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self.dimensions), np.float32)
        try:
            answer = self._client.post(self._url, json={"model": self._model, "input": list(texts)})
            answer.raise_for_status()
            rows = _rows_of(answer.json())
        except httpx.HTTPStatusError as error:
            raise TierError(f"{self.name}: answers with status {error.response.status_code}") from error
        except httpx.HTTPError as error:
            raise TierError(f"{self.name}: cannot be reached: {type(error).__name__}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise TierError(f"{self.name}: answers with something that is no list of embeddings") from error
        if rows.shape != (len(texts), self.dimensions):
            raise TierError(f"{self.name}: got shape {rows.shape}, expected {(len(texts), self.dimensions)}")
        if not np.isfinite(rows).all():
            raise TierError(f"{self.name}: answers with numbers that are not finite")
        return unit_rows(rows)

    def close(self) -> None:
        self._client.close()


def _rows_of(body: dict[str, list[dict[str, object]]]) -> Vectors:
    """In the order of the texts: `index` says which one a row belongs to."""
    ordered = sorted(body["data"], key=lambda item: int(str(item["index"])))
    return np.array([item["embedding"] for item in ordered], np.float32)
