"""What logprobs of an answer say, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.freshness.answer_facts import NONE_KNOWN, REST, divergence_nats, facts_of


def chat(*tokens: tuple[float, dict[str, float]]) -> bytes:
    content = [
        {
            "token": "x",
            "logprob": math.log(chance),
            "top_logprobs": [{"token": token, "logprob": math.log(one)} for token, one in top.items()],
        }
        for chance, top in tokens
    ]
    return orjson.dumps({"choices": [{"message": {"content": "x"}, "logprobs": {"content": content}}]})


def test_of_a_chat() -> None:
    facts = facts_of(chat((0.5, {"x": 0.5, "y": 0.5}), (0.125, {"x": 0.25, "z": 0.25})))
    assert facts.mean_logprob == pytest.approx((math.log(0.5) + math.log(0.125)) / 2)
    # one bit; then 1/4, 1/4 and the rest 1/2: 0.5 + 0.5 + 0.5
    assert facts.entropy_bits == pytest.approx((1.0 + 1.5) / 2)
    assert dict(facts.distribution) == pytest.approx({"x": 0.375, "y": 0.25, "z": 0.125, REST: 0.25})


def test_without_alternatives_only_the_mean_is_known() -> None:
    facts = facts_of(chat((0.5, {}), (0.5, {})))
    assert facts.mean_logprob == pytest.approx(math.log(0.5))
    assert (facts.entropy_bits, dict(facts.distribution)) == (None, {})


def test_of_a_completion() -> None:
    """The first token of an echoed prompt has none."""
    logprobs = {"token_logprobs": [None, -1.0, -3.0], "top_logprobs": [None, {"a": 0.0}, {"b": 0.0}]}
    facts = facts_of(orjson.dumps({"choices": [{"text": "ab", "logprobs": logprobs}]}))
    assert (facts.mean_logprob, facts.entropy_bits) == (-2.0, 0.0)
    assert dict(facts.distribution) == {"a": 0.5, "b": 0.5, REST: 0.0}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"logprobs"',
        b'["logprobs"]',
        b'{"choices": [{"logprobs": null}, 3, {"logprobs": {"content": [{"logprob": "x"}, 4]}}]}',
        b'{"choices": [{"logprobs": {"content": null}}]}',
        b'{"choices": [{"logprobs": {"content": [{"logprob": true}]}}]}',
        b'{"choices": [{"message": {"content": "no logs"}}]}',
    ],
)
def test_what_has_none_has_no_facts(body: bytes) -> None:
    assert facts_of(body) == NONE_KNOWN


TEXTS = st.sampled_from(["a", "b", "c"])
CHANCES = st.dictionaries(TEXTS, st.floats(0.01, 1.0), min_size=1)


@given(one=CHANCES, other=CHANCES)
def test_divergence_is_never_below_nothing_and_nothing_of_equal_ones(one: Any, other: Any) -> None:
    one, other = ({name: chance / sum(each.values()) for name, chance in each.items()} for each in (one, other))
    found = divergence_nats(one, other)
    assert found is not None
    assert 0.0 <= found < math.log(300.0)
    assert divergence_nats(one, one) == pytest.approx(0.0)


def test_divergence_by_hand() -> None:
    """Mixed with 2 % of the even one: 0.99 and 0.01 against 0.01 and 0.99."""
    found = divergence_nats({"a": 1.0}, {"b": 1.0}, smoothing=0.02)
    assert found == pytest.approx(0.98 * math.log(99.0))
    assert divergence_nats({}, {"a": 1.0}) is None
    assert divergence_nats({"a": 1.0}, {}) is None
