"""What must not be told: keys and what people ask, in logs at any level, in errors, and in what is shown of objects."""

from __future__ import annotations

import logging

import orjson
import pytest

from api.gateway.settings import GatewaySettings, KeyHolder, key_hash
from api.gateway.verifying import said
from caches.place import Place
from caches.tiers.memory import MemoryTier
from caches.tiers.tier import Answer
from tests.api.gateway.conftest import CHAT, SPACE, ask, chat, emulated, gateway, outcome, send
from tests.servers import free_port

UPSTREAM_KEY, CLIENT_KEY, QUESTION = "sk-of-the-backend", "sp-of-the-client", "A question of somebody"
SECRETS = (UPSTREAM_KEY, CLIENT_KEY, QUESTION)


def test_nothing_is_logged_at_any_level(caplog: pytest.LogCaptureFixture) -> None:
    """Hits, misses, streams, bad requests, errors of the backend, and no backend at all."""
    caplog.set_level(logging.DEBUG)
    place = Place(MemoryTier(SPACE))
    keyed = {"keys": {key_hash(CLIENT_KEY): KeyHolder()}, "upstream_key": UPSTREAM_KEY}
    bearer = {"authorization": f"Bearer {CLIENT_KEY}"}
    answers = []
    with emulated() as good, gateway(good.address, places=[place], **keyed) as front:
        answers += [ask(front, chat(QUESTION), **bearer) for _ in range(2)]
        assert [outcome(one) for one in answers] == ["miss", "hit-l1"]
        for more in ({"stream": True, "seed": 1}, {"temperature": "hot"}, {"messages": 7}):
            answers.append(ask(front, chat(QUESTION, **more), **bearer))
        answers.append(send("POST", front + CHAT, content=f'{{"messages": "{QUESTION}', headers=bearer))
        answers.append(ask(front, chat(QUESTION), authorization=f"Bearer {UPSTREAM_KEY}"))
        assert answers[-1].status_code == 401
        assert not any(UPSTREAM_KEY.encode() in body for body in _bodies(place.tier))
    with emulated(fail_ratio=1.0) as bad, gateway(bad.address, **keyed) as front:
        answers.append(ask(front, chat(QUESTION), **bearer))
    with gateway(f"http://127.0.0.1:{free_port()}", **keyed) as front:
        answers.append(ask(front, chat(QUESTION), **bearer))
        assert answers[-1].status_code == 502
    ours = "\n".join(record.getMessage() for record in caplog.records)
    told = "\n".join(f"{one.headers}" for one in answers)
    for secret in SECRETS:
        assert secret not in ours
        assert secret not in told
    assert not any(UPSTREAM_KEY in one.text or CLIENT_KEY in one.text for one in answers)


def _bodies(tier: object) -> list[bytes]:
    assert isinstance(tier, MemoryTier)
    found = [repr(entry).encode() for _, entry in tier._cache.items()]
    assert found
    return found


def test_nothing_is_in_what_is_shown_of_the_settings() -> None:
    told = GatewaySettings(
        "http://me:password@host/v1", upstream_key=UPSTREAM_KEY, keys={key_hash(CLIENT_KEY): KeyHolder("acme")}
    )
    assert not any(secret in repr(told) for secret in (*SECRETS, "password", key_hash(CLIENT_KEY)))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"choices": [{"message": {"content": "One."}}, {"message": {"content": "Two."}}]}, "One.\nTwo."),
        ({"id": "x", "created": 7, "choices": [{"text": "One.", "finish_reason": "stop"}]}, "One."),
        (
            {
                "choices": [
                    {
                        "message": {
                            "content": None,
                            "tool_calls": [{"id": "a1", "function": {"name": "f", "arguments": "{}"}}],
                        }
                    }
                ]
            },
            "\nf {}",
        ),
        ({"data": []}, '{"data":[]}'),
    ],
)
def test_what_an_answer_says_is_compared_and_not_its_ids(body: object, text: str) -> None:
    assert said(Answer(orjson.dumps(body), 0.0)) == text
