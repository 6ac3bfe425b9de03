from __future__ import annotations

import json
import sys
from collections.abc import Callable

import httpx
import numpy as np
import pytest

from caches.errors import InputError
from caches.semantic.embedder import unit_rows
from caches.semantic.embedder_catalog import make_embedder
from caches.semantic.endpoint_embedder import EndpointEmbedder
from caches.semantic.wordllama_embedder import WordLlamaEmbedder
from caches.tiers.tier import TierError

URL = "http://embeddings.test/v1"


@pytest.fixture(scope="module")
def words() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


def test_word_vectors_are_unit_rows_of_the_stated_length(words: WordLlamaEmbedder) -> None:
    rows = words.embed(["How do I reset my password?", "Größe in 日本 🤷"])
    assert (rows.shape, rows.dtype) == ((2, words.dimensions), np.float32)
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1.0, 1.0], abs=1e-6)


def test_word_vectors_do_not_depend_on_company(words: WordLlamaEmbedder) -> None:
    texts = ["one", "a much longer text with more tokens in it", "three"]
    assert np.array_equal(words.embed(texts), np.vstack([words.embed([text]) for text in texts]))


def test_alike_is_above_unlike(words: WordLlamaEmbedder) -> None:
    asked, alike, unlike = words.embed(
        ["How do I reset my password?", "How can I reset my password?", "When was the Eiffel Tower built?"]
    )
    assert asked @ alike > 0.9
    assert asked @ unlike < 0.3


def test_a_text_without_tokens_is_like_nothing(words: WordLlamaEmbedder) -> None:
    assert not words.embed([""]).any()
    assert words.embed([]).shape == (0, words.dimensions)


def test_the_slow_package_itself_is_not_imported(words: WordLlamaEmbedder) -> None:
    assert "wordllama" not in sys.modules


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caches.semantic.wordllama_embedder.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"setpoint\[live\]"):
        WordLlamaEmbedder()


def test_a_row_of_zeros_stays_one() -> None:
    assert unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)) == pytest.approx(
        np.array([[0.6, 0.8], [0.0, 0.0]])
    )


def test_the_catalog_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_embedder().name == "wordllama-l2-supercat-256"
    with pytest.raises(InputError, match="model"):
        make_embedder(URL)
    with pytest.raises(InputError, match="dimensions"):
        make_embedder(URL, model="m")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(InputError, match=r"setpoint\[sentences\]"):
        make_embedder("all-MiniLM-L6-v2")
    endpoint = make_embedder(URL, model="m", dimensions=3, api_key="secret")
    assert "secret" not in endpoint.name
    endpoint.close()


def endpoint(answer: Callable[[httpx.Request], httpx.Response]) -> EndpointEmbedder:
    return EndpointEmbedder(URL, "m", 2, api_key="secret", transport=httpx.MockTransport(answer))


def test_the_endpoint_is_asked_once_and_rows_are_put_in_order() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        data = [{"index": 1, "embedding": [0.0, 5.0]}, {"index": 0, "embedding": [3.0, 4.0]}]
        return httpx.Response(200, json={"data": data})

    rows = endpoint(answer).embed(["a", "b"])
    assert rows == pytest.approx(np.array([[0.6, 0.8], [0.0, 1.0]]))
    assert [str(request.url) for request in asked] == [f"{URL}/embeddings"]
    assert json.loads(asked[0].content) == {"model": "m", "input": ["a", "b"]}
    assert asked[0].headers["authorization"] == "Bearer secret"


def test_no_texts_ask_nothing() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise AssertionError("asked")

    assert endpoint(answer).embed([]).shape == (0, 2)


@pytest.mark.parametrize(
    "body",
    [
        {"data": [{"index": 0, "embedding": [1.0, 2.0, 3.0]}]},
        {"data": []},
        {"data": [{"embedding": [1.0, 2.0]}]},
        {"data": None},
        {"error": "no"},
        ["no"],
        {"data": [{"index": 0, "embedding": ["x", "y"]}]},
    ],
)
def test_nonsense_is_an_error_of_the_tier(body: object) -> None:
    with pytest.raises(TierError):
        endpoint(lambda request: httpx.Response(200, json=body)).embed(["a"])


def test_what_is_not_finite_is_nonsense_too() -> None:
    body = b'{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}'
    with pytest.raises(TierError, match="finite"):
        endpoint(lambda request: httpx.Response(200, content=body)).embed(["a"])


def test_status_and_connection_errors_do_not_show_the_key() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("late")

    for answer in (refuse, lambda request: httpx.Response(401, text="secret is wrong")):
        with pytest.raises(TierError) as raised:
            endpoint(answer).embed(["a"])
        assert "secret" not in str(raised.value)


def test_an_answer_that_is_no_json_is_an_error_of_the_tier() -> None:
    with pytest.raises(TierError):
        endpoint(lambda request: httpx.Response(200, text="<html>")).embed(["a"])
