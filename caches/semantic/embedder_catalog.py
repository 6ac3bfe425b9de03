"""From a setting to an embedder."""

from __future__ import annotations

from caches.errors import InputError
from caches.semantic.embedder import Embedder
from caches.semantic.endpoint_embedder import EndpointEmbedder
from caches.semantic.sentence_embedder import SentenceEmbedder
from caches.semantic.wordllama_embedder import WordLlamaEmbedder

DEFAULT = "wordllama"


def make_embedder(
    name_or_url: str = DEFAULT,
    model: str | None = None,
    dimensions: int | None = None,
    api_key: str | None = None,
    timeout_seconds: float = 2.0,
) -> Embedder:
    """`wordllama`; a URL of an OpenAI-compatible server up to and without `/embeddings`, with its model and the length
    of its vectors; or the name or folder of a sentence-transformers model.

    Raises InputError where something is missing. Nothing reaches over the network here, except that
    sentence-transformers fetches a model which is not on this machine.
    """
    if not name_or_url.startswith(("http://", "https://")):
        return WordLlamaEmbedder() if name_or_url == DEFAULT else SentenceEmbedder(name_or_url)
    if not model:
        raise InputError(f"embedder {name_or_url}: got no model, expected the name of one")
    if dimensions is None or dimensions < 1:
        raise InputError(f"embedder {name_or_url}: got {dimensions!r} dimensions, expected the length of its vectors")
    return EndpointEmbedder(name_or_url, model, dimensions, api_key, timeout_seconds)
